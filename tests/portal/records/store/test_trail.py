"""The trail and the lists of runs, in both databases."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from portal.records.store import run_tables, trail
from portal.records.store.records import CallRow
from portal.records.store.run_tables import RunTables
from portal.records.store.tables import DAY_SECONDS
from portal.records.store.trail import HistoryRow, TrailRow
from portal.runs.past import new_run_id
from tests.portal.rows import Tables, asked, begun, opened

NOW = time.time()


def left(file: RunTables, began: float = NOW, owner: str = "local", **values: Any) -> TrailRow:
    """The row of a run that no one has to resume."""
    given = {"client": "test 1", "state": "ok", "title": "1 + 1", "ms": 10.0}
    row = TrailRow(**{"id": new_run_id(), "owner": owner, "began": began} | given | values)
    write(file, row)
    return row


def write(file: RunTables, *rows: TrailRow, **read: int) -> None:
    with file.transaction():
        file.add_trail(rows, read)


def ids(rows: list[HistoryRow]) -> list[str]:
    return [row.id for row in rows]


def test_a_run_without_a_journal_is_listed_with_its_calls(file: RunTables) -> None:
    listed = [[1, "git.log", "done", 2.0, 5.5, ""], [2, "git.push", "refused", 8.0, 0.1, "denied"]]
    row = left(file, calls=2, denied=1, result_bytes=300, answer_bytes=90, listed=listed, ms=1500.0)
    (found,) = file.history("local")
    assert (found.told, found.ended, found.is_journaled, found.waiting) == ("ok", NOW + 1.5, False, ())
    assert (found.calls, found.denied, found.result_bytes, found.answer_bytes) == (2, 1, 300, 90)
    assert (found.title, found.client, found.listed) == ("1 + 1", "test 1", listed)
    assert file.history_row(row.id) == found
    assert (file.history("other"), file.history_row("run_\x00")) == ([], None)


def test_segments_of_a_run_are_added_up_and_its_last_state_is_kept(file: RunTables) -> None:
    first = left(file, state="waiting", calls=1, check_ms=3.0, result_bytes=5, answer_bytes=1)
    later = replace(first, state="error", code="boom", calls=3, began=NOW + 9, answer_bytes=2)
    write(file, later, replace(later), **{first.id: 40})
    (found,) = file.history("local")
    assert (found.state, found.code, found.began, found.calls) == ("error", "boom", NOW, 3)
    assert (found.ms, found.check_ms, found.result_bytes, found.answer_bytes) == (30.0, 9.0, 15, 45)


def test_a_journaled_run_is_listed_once_as_its_journal_says(file: RunTables) -> None:
    run = begun(file)
    asked(file, run)
    assert [(row.state, row.calls, row.listed) for row in file.history("local")] == [("waiting", 0, [])]
    left(file, id=run.id, state="waiting", is_journaled=True, calls=1, listed=[[1, "git.merge", "unknown"]])
    (found,) = file.history("local")
    assert (found.told, found.waiting, found.calls, found.ended) == ("waiting", ("ask",), 1, None)
    with file.transaction():
        file.decide(run.id, 1, "approved", b"{}", "ann")
    assert [row.told for row in file.history("local")] == ["waiting"]  # for a portal
    file.holder = "one"
    assert [row.told for row in file.history("local")] == ["running"]  # it is due
    with file.transaction():
        file.finish(run.id, "cancelled", None)
    (found,) = file.history("local")
    assert (found.told, found.waiting, found.is_journaled, found.calls) == ("cancelled", (), True, 1)


def test_each_list_has_its_runs_and_its_count(file: RunTables) -> None:
    waiting, sleeping, failed = begun(file), begun(file), begun(file)
    asked(file, waiting)
    with file.transaction():
        file.advance(sleeping.id, 1, calls=[CallRow(sleeping.id, 1, "sleep", "portal.sleep", "waiting")])
        file.finish(failed.id, "stuck", None)
    done, refused = left(file, NOW - 50), left(file, NOW - 60, state="refused")
    others = left(file, NOW - 70, "other", state="error")
    assert {*ids(file.history("local", state="open"))} == {waiting.id, sleeping.id}
    assert ids(file.history("local", state="person")) == [waiting.id]
    assert ids(file.history("local", state="failed")) == [failed.id, refused.id]
    assert ids(file.history(None, state="failed")) == [failed.id, refused.id, others.id]
    of_all = {waiting.id, sleeping.id, failed.id, done.id, refused.id}
    assert {*ids(file.history("local", state="what"))} == of_all
    assert file.history_counts("local") == {"all": 5, "open": 2, "person": 1, "failed": 2}
    assert file.history_counts(None) == {"all": 6, "open": 2, "person": 1, "failed": 3}
    assert file.history_counts("nobody") == {"all": 0, "open": 0, "person": 0, "failed": 0}


def test_pages_go_through_all_runs_once(file: RunTables) -> None:
    expected = {left(file, NOW - n // 3).id for n in range(8)} | {begun(file).id for _ in range(3)}
    seen, before = list[HistoryRow](), None
    while page := file.history("local", before=before, limit=2):
        seen, before = seen + page, (page[-1].began, page[-1].id)
    assert len(seen) == 11 and {*ids(seen)} == expected
    assert [row.began for row in seen] == sorted((row.began for row in seen), reverse=True)


@pytest.mark.parametrize("q", ["INVOICES", "crm.list", "id"])
def test_titles_functions_and_ids_are_searched(
    file: RunTables, q: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(5):
        left(file, NOW - n, title="crm", listed=[[1, "portal.sleep", "done", 1.0, 12.0, ""]])
    row = left(file, NOW - 9, title="# All invoices", listed=[[1, "crm.list_all", "done", 1.0, 12.0, ""]])
    assert ids(file.history("local", q=row.id[:12] if q == "id" else q)) == [row.id]
    assert file.history("local", q="12.0") == file.history("other", q="invoices") == []
    monkeypatch.setattr(trail, "MAX_SEARCHED", 4)
    assert file.history("local", q="invoices") == []


def test_the_last_day_is_counted_by_half_hours_of_the_clock(file: RunTables) -> None:
    now = 1_000_000 * 1_800.0 + 900
    left(file, now - 1, ms=5.0, answer_bytes=7)
    left(file, now - 899, ms=1.0, state="error", result_bytes=100)
    left(file, now - 901, "other", ms=9.0)
    left(file, now - DAY_SECONDS - 1)
    day = file.day(None, now)
    assert (day.runs, day.failed, day.p50_ms, day.result_bytes, day.answer_bytes) == (3, 1, 5.0, 100, 7)
    assert day.half_hours == ((0, 0),) * 46 + ((1, 0), (2, 1))
    assert file.day("other", now).half_hours[-2:] == ((1, 0), (0, 0))
    assert file.day("nobody", now).p50_ms == 0.0


def test_a_run_that_expired_while_it_waited_has_failed_in_its_day(file: RunTables) -> None:
    run = begun(file)
    left(file, id=run.id, is_journaled=True, state="waiting")
    with file.transaction():
        file.finish(run.id, "expired", None)
    assert file.day("local", NOW).failed == file.history_counts("local")["failed"] == 1


def test_old_rows_and_those_beyond_the_limit_are_deleted(
    file: RunTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = [left(file, NOW - n).id for n in range(4)]
    left(file, NOW - 100)
    with file.transaction():
        file.sweep(NOW, keep_seconds=50)
    assert ids(file.history(None)) == kept
    monkeypatch.setattr(run_tables, "MAX_TRAIL", 3)
    with file.transaction():
        file.sweep(NOW, keep_seconds=50)
    assert ids(file.history(None)) == kept[:3]


def test_the_row_of_a_run_that_goes_on_for_long_stays_as_long_as_its_journal(file: RunTables) -> None:
    run = begun(file)
    left(file, NOW - 100, id=run.id, is_journaled=True, state="waiting", ms=5.0)
    for state, expected in (("waiting", 5.0), ("ok", 10.0)):
        with file.transaction():
            file.sweep(NOW, keep_seconds=50)
        assert [row.ms for row in file.history(None)] == [expected]
        left(file, NOW - 100, id=run.id, is_journaled=True, state=state, ms=5.0)
    with file.transaction():
        file.finish(run.id, "ok", None)
        file.sweep(file.now() + 60, keep_seconds=50)
    assert file.history(None) == file.database.rows("SELECT id FROM trail") == []


def test_a_run_that_is_kept_whole_after_its_end_has_its_own_times(file: RunTables) -> None:
    began, ended = NOW - 60, NOW - 58.5
    row, run = left(file, began, ms=1500.0), begun(file, code="2")
    with file.transaction(), file.afterwards(row):
        file.create(replace(run, id=row.id, began=began), b"{}")
        file.finish(row.id, "ok", b"2")
    found = file.history_row(row.id)
    assert found is not None and (found.is_journaled, found.ended, found.ms) == (True, ended, 1500.0)
    assert [(each.kind, each.at) for each in file.log_after(0, row.id)] == [("began", began), ("ok", ended)]


def test_a_damaged_row_hides_no_other(file: RunTables) -> None:
    good, *bad = left(file), left(file, NOW - 1), left(file, NOW - 2)
    with file.transaction():
        for column, row in zip(("title", "listed"), bad, strict=True):
            file.database.execute(f"UPDATE trail SET {column} = ? WHERE id = ?", (b"-\xff", row.id))
    assert [row.title for row in file.history(None)] == [good.title, "(damaged)", "(damaged)"]


def test_tables_of_the_format_before_gain_the_trail_and_keep_their_runs(tables: Tables) -> None:
    file = tables()
    run = begun(file)
    with file.transaction():
        file.database.execute("DROP TABLE trail")
        file.database.execute("UPDATE meta SET value = ? WHERE key = 'format'", (b"4",))
    again = tables(holder="portal")
    row = left(again, NOW - 5)
    assert ids(again.history("local")) == [run.id, row.id]
    assert (loaded := again.load(run.id)) is not None and loaded.row == run


def test_with_a_key_titles_and_calls_are_not_in_the_file(tmp_path: Path) -> None:
    file = opened(tmp_path, "a key of 16 bytes")
    left(file, title="# the merger", listed=[[1, "crm.merger", "done", 1.0, 2.0, ""]])
    assert [row.title for row in file.history("local", q="merger")] == ["# the merger"]
    file.close()
    files = [*tmp_path.glob("runs.sqlite*")]
    assert files and not any(b"merger" in each.read_bytes() for each in files)
