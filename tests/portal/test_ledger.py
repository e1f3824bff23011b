"""The ledger tells what became of each call, and stays readable for ten thousand of them."""

from portal.records.ledger import MAX_ROWS, Ledger
from sandbox_runtime.call_port import CallError

REFUSAL = CallError("tool_calls_limit", "too many")


def test_a_call_that_was_sent_is_unknown_until_its_answer_is_read() -> None:
    ledger = Ledger()
    ledger.open(1, "git.git_log")
    entry = ledger[1]
    entry.sent()
    assert ledger.rows()[0]["state"] == "unknown"
    entry.end("done")
    assert ledger.rows()[0]["state"] == "done"


def test_a_long_ledger_is_summarised_and_still_counts_every_call() -> None:
    ledger = Ledger()
    for seq in range(1, 1_001):
        ledger.open(seq, "a.b")
        ledger[seq].end("failed" if seq == 501 else "done", REFUSAL if seq == 501 else None)
    rows = ledger.rows()
    assert len(rows) <= MAX_ROWS
    assert {"seq": 501, "state": "failed"}.items() <= rows[0].items()
    assert sum(row.get("count", 1) for row in rows) == 1_000
