"""The answer of execute_code: value, prints, errors and notices of one script, and the outcomes of its calls."""

from pathlib import Path

import pytest

from manifests.json_value import Json
from manifests.loader import load_manifest
from portal.base.caller import LOCAL
from portal.base.requests import ExecuteCode
from portal.records.ledger import MAX_ROWS, Ledger, not_done
from portal.runs.execution import run_limits
from portal.runs.past import RunHead
from sandbox_runtime.call_port import CallError
from tests.portal.peers import Peer, never, opened, schema, states, tool, write_manifest


@pytest.mark.parametrize(
    ("limits", "is_background", "asked", "seconds", "where", "lowered"),
    [
        ({"wall_seconds": 20}, False, None, 20, "portal.yaml:", ""),
        ({"wall_seconds": 20}, False, 0.3, 0.3, "timeout_seconds of this call", ""),
        ({"wall_seconds": 20}, False, 1e308, 20, "portal.yaml:", "wall_seconds = 20"),
        ({"wall_seconds": 20}, True, 7200, 20, "portal.yaml:", "wall_seconds = 20"),
        ({}, True, 7200, 3600, "background_seconds", "background_seconds = 3600"),
        ({"wall_seconds": 20, "background_seconds": 9}, True, None, 9, "background_seconds", ""),
    ],
)
def test_a_shorter_timeout_is_kept_and_a_longer_one_lowered_and_told(
    tmp_path: Path,
    limits: Json,
    is_background: bool,
    asked: float | None,
    seconds: float,
    where: str,
    lowered: str,
) -> None:
    manifest = load_manifest(write_manifest(tmp_path, {}, capabilities={"limits": limits}), {})
    head = RunHead(ExecuteCode("1", timeout_seconds=asked), LOCAL, None, is_background=is_background)
    found, place, notices = run_limits(manifest, head)
    assert found.wall_seconds == seconds
    assert where in place("wall_seconds")
    assert [f"lowered to limits.{lowered}" in each for each in notices] == [True] * bool(lowered)


async def test_an_answer_has_these_fields(tmp_path: Path) -> None:
    async with opened(tmp_path, {"store": Peer()}) as portal:
        answer = await portal.run("print('said')\n{'a': 1}")
    run_id = answer.pop("run_id")
    assert isinstance(run_id, str) and run_id
    empty: Json = {"error": None, "calls": [], "notices": []}
    assert answer == {"status": "ok", "result": {"a": 1}, "stdout": "said\n", **empty}


@pytest.mark.parametrize(
    ("server", "script", "status", "code"),
    [
        ({"check": "warn"}, "print('ran')\nawait store.typed(a=1, b='z')", "error", "invalid_arguments"),
        ({"check": "warn"}, "print('ran')\nawait store.tiped(a=1)", "error", "script_error"),
        *(
            ({"check": check, "repairs": False}, "print('ran')\nawait store.typed(a='7')", status, code)
            for check, status, code in (
                ("strict", "refused", "check_failed"),
                ("warn", "error", "invalid_arguments"),
                ("off", "error", "invalid_arguments"),
            )
        ),
    ],
)
async def test_what_is_wrong_is_refused_or_told_as_server_check_and_repairs_say(
    tmp_path: Path, server: Json, script: str, status: str, code: str
) -> None:
    peer = Peer(tool("typed", schema("a", a={"type": "integer"}, b={"enum": ["x", "y"]})))
    async with opened(tmp_path, {"store": peer}, server=server) as portal:
        answer = await portal.run(script)
    assert (answer["status"], answer["error"]["code"], peer.calls) == (status, code, [])
    assert bool(answer["stdout"]) is (status == "error")
    told = [notice for notice in answer["notices"] if notice.startswith("line 2: ")]
    assert bool(told) is (server["check"] == "warn")


async def test_an_exception_ends_the_calls_in_flight_and_tells_they_may_have_acted(tmp_path: Path) -> None:
    peer = Peer(tool("echo"), tool("hang"), hang=never)
    async with opened(tmp_path, {"store": peer}) as portal:
        code = (
            "import asyncio\n"
            "call = asyncio.create_task(store.hang())\n"
            "await asyncio.sleep(0)\n"
            "await store.echo()\n"
            "raise ValueError('enough')"
        )
        answer = await portal.run(code)
        await peer.until(lambda: peer.cancelled == ["hang"])
    assert answer["error"]["code"] == "script_error"
    assert states(answer) == [("store.hang", "unknown"), ("store.echo", "done")]
    assert "1 done, 1 unknown" in answer["error"]["hint"]


def test_answers_of_middleware_are_not_told_as_calls_that_were_not_made() -> None:
    ledger = Ledger()
    for seq in range(1, 121):
        ledger.open(seq, "kb.get")
        if seq > 90:
            ledger[seq].end("failed", CallError("tool_error", "gone"))
        else:
            ledger[seq].answered_by = "middleware" if seq % 2 else "kb.other"
    assert not_done(ledger.rows(), lambda _: False) == ["kb.get failed #91, #92, #93, #94, #95…: gone"]


def test_a_long_ledger_is_summarised_and_still_counts_every_call() -> None:
    ledger = Ledger()
    for seq in range(1, 1_001):
        ledger.open(seq, "a.b")
        ledger[seq].end(
            "failed" if seq == 501 else "done",
            CallError("tool_calls_limit", "too many") if seq == 501 else None,
        )
    rows = ledger.rows()
    assert len(rows) <= MAX_ROWS
    assert {"seq": 501, "state": "failed"}.items() <= rows[0].items()
    assert sum(row.get("count", 1) for row in rows) == 1_000
