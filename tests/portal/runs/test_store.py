"""The store of runs: fenced writes, the first decision, what is kept for whom, and files that cannot be used."""

import asyncio
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from portal.base.caller import LOCAL
from portal.base.requests import ExecuteCode
from portal.identity.approvers import Approvers, Decider
from portal.records.store.records import CallRow, FencedError, RunRow, StoreError
from portal.records.store.run_tables import RunTables
from portal.records.store.tables import DAY_SECONDS
from portal.records.store.writer import RunStore
from portal.runs.decisions import RunsError, cancel_run, decide_call
from portal.runs.past import HEAD, RunHead, new_row, new_run_id
from tests.portal.runs.rows import Tables, asked, begun, kinds, opened


@pytest.fixture
def file(tables: Tables) -> RunTables:
    return tables()


@pytest.fixture
def run(file: RunTables) -> RunRow:
    """A run that has begun."""
    return begun(file)


def test_a_portal_that_lost_its_run_to_another_writes_nothing_more(file: RunTables, run: RunRow) -> None:
    with file.transaction():
        taken = file.claim(run.id)
    assert taken.row.epoch == run.epoch + 1
    for write in (
        lambda: file.advance(run.id, run.epoch, chunk=b"late"),
        lambda: file.park(run.id, run.epoch, []),
        lambda: file.finish(run.id, "ok", b"{}", run.epoch),
    ):
        with pytest.raises(FencedError), file.transaction():
            write()
    found = file.load(run.id)
    assert (found.row.state, found.chunks, found.answer) == ("running", (), None)


def test_what_a_run_did_is_read_back_as_it_was_written(tables: Tables) -> None:
    file = tables(key="k" * 16)
    run = begun(file, "print('ö')")
    call = CallRow(run.id, 1, "call", "git.push", "intended", "digest", "hash")
    with file.transaction(is_lasting=True):
        file.advance(run.id, run.epoch, chunk=b"one", calls=[call])
    with file.transaction():
        file.advance(run.id, run.epoch, chunk=b"two", n=2, outcomes=[(1, b'{"state": "done"}')])
    again = tables(key="k" * 16).load(run.id)
    assert again.chunks == (b"one", b"two")
    assert again.row.title == "print('ö')"
    assert [(each.state, each.outcome) for each in again.calls] == [("done", b'{"state": "done"}')]


def test_a_command_that_closes_the_file_leaves_the_portal_its_log(tmp_path: Path) -> None:
    writer, reader = opened(tmp_path), opened(tmp_path)  # as a portal has them
    count = (
        "import sqlite3, sys; file = sqlite3.connect(sys.argv[1]); "
        "print(*file.execute('SELECT count(*) FROM runs').fetchone()); file.close()"
    )
    for runs in range(3):
        # Another process, because SQLite's locks are those of a process.
        command = [sys.executable, "-c", count, str(tmp_path / "runs.sqlite")]
        told = subprocess.check_output(command, text=True)
        assert int(told) == len(reader.listed(limit=10)) == runs
        begun(writer)
    assert (tmp_path / "runs.sqlite-wal").exists()


@pytest.mark.parametrize("named", [1, None])
def test_the_first_decision_wins_and_wakes_the_run(file: RunTables, run: RunRow, named: int | None) -> None:
    asked(file, run)
    assert [*file.due(time.time(), [None], 10)] == []
    with file.transaction():
        decide_call(file, run.id, None, Decider("ann"), Approvers(), is_approved=True)
    with pytest.raises(RunsError, match="approved by ann") as error, file.transaction():
        decide_call(file, run.id, named, Decider("bob"), Approvers(), is_approved=False)
    assert error.value.code == "already_decided"
    assert [*file.due(time.time(), [None], 10)] == [run.id]


def test_a_decision_that_came_before_the_run_was_parked_wakes_it_at_once(
    file: RunTables, run: RunRow
) -> None:
    call = CallRow(run.id, 1, "ask", "git.merge", "waiting")
    with file.transaction():
        file.advance(run.id, run.epoch, calls=[call])
        decide_call(file, run.id, 1, Decider("ann"), Approvers(), is_approved=True)
        file.park(run.id, run.epoch, [1])
    assert [*file.due(time.time(), [None], 10)] == [run.id]


@pytest.mark.parametrize("ended", ["ok", "cancelled", "expired"])
def test_nothing_of_an_ended_run_can_be_decided(file: RunTables, run: RunRow, ended: str) -> None:
    asked(file, run)
    with file.transaction():
        file.finish(run.id, ended, None)  # type: ignore[arg-type]
    with pytest.raises(RunsError) as error, file.transaction():
        decide_call(file, run.id, 1, Decider("ann"), Approvers(), is_approved=True)
    assert error.value.code == "run_ended"
    with pytest.raises(RunsError) as error, file.transaction():
        cancel_run(file, run.id)
    assert error.value.code == "run_ended"


def test_the_run_of_somebody_else_is_as_unknown_as_none(file: RunTables) -> None:
    run = begun(file, owner="ann")
    asked(file, run)
    errors = []
    for name in (run.id, "run_" + "0" * 32):
        with pytest.raises(RunsError) as error, file.transaction():
            decide_call(file, name, 1, Decider("bob", "bob"), Approvers(), is_approved=True)
        errors.append(str(error.value).replace(name, "RUN"))
    assert errors[0] == errors[1]
    assert file.listed("bob") == []
    assert [each.id for each in file.listed("ann")] == [run.id]


def test_runs_that_wait_for_a_person_are_listed_by_tenant(file: RunTables) -> None:
    owners = ("red/dev/1", "red//2", "redder//3", "//4", "local")
    runs = {owner: begun(file, owner=owner) for owner in owners}
    for run in runs.values():
        asked(file, run)
    begun(file, owner="red//2")

    def listed(owner: str, tenant: str | None) -> set[str]:
        return {each.owner for each in file.listed(owner, tenant=tenant, is_asking=True)}

    assert listed("red//9", "red") == {"red/dev/1", "red//2"}
    assert listed("//9", "") == {"//4", "local"}
    assert listed("red//2", None) == {"red//2"}
    assert len(file.listed("red//2")) == 2 and len(file.listed()) == 6


def test_caller_of_a_run_is_known_by_the_last_name(file: RunTables) -> None:
    head = RunHead(ExecuteCode("1"), LOCAL, None)
    for name in ("token 1", "token ops"):
        with file.transaction():
            file.create(new_row(new_run_id(), "red//1", head, None, 1), HEAD.dump_json(head), name)
    assert [file.caller(owner) for owner in ("red//1", "blue//1", "local")] == ["token ops", "", "local"]


def test_which_of_two_waiting_calls_is_meant_has_to_be_said(file: RunTables, run: RunRow) -> None:
    calls = [CallRow(run.id, seq, "ask", "git.merge", "waiting") for seq in (1, 2)]
    with file.transaction():
        file.advance(run.id, run.epoch, calls=calls)
    with pytest.raises(RunsError, match=r"1 \(git.merge\), 2 \(git.merge\)"), file.transaction():
        decide_call(file, run.id, None, Decider("ann"), Approvers(), is_approved=True)
    with file.transaction():
        assert decide_call(file, run.id, 2, Decider("ann"), Approvers(), is_approved=True).seq == 2


def test_an_event_is_delivered_once_whether_it_comes_before_or_after_the_wait(file: RunTables) -> None:
    early, late = begun(file), begun(file)
    with file.transaction():
        tokens = [file.hook(run.id, "deployed") for run in (early, late)]
        assert file.hook(early.id, "deployed") == tokens[0]
        assert file.deliver(tokens[0], b"1") == (early.id, True)
        assert file.deliver(tokens[0], b"2") == (early.id, False)
        assert file.deliver("no such token", b"3") is None
    for run in (early, late):
        call = CallRow(run.id, 1, "event", "portal.event", "waiting", name="deployed")
        with file.transaction():
            file.advance(run.id, run.epoch, calls=[call])
            file.park(run.id, run.epoch, [1])
    assert [*file.due(time.time(), [None], 10)] == [early.id]
    with file.transaction():
        assert file.deliver(tokens[1], b"4") == (late.id, True)
    assert [*file.due(time.time(), [None], 10)] == [early.id, late.id]
    assert (file.payload(early.id, "deployed"), file.payload(late.id, "deployed")) == (b"1", b"4")


def test_forgotten_runs_expire_and_ended_ones_are_deleted_after_their_days(file: RunTables) -> None:
    run = begun(file, max_age_days=1)
    asked(file, run)
    now = time.time()
    with file.transaction():
        file.keep("kept_1", "local", b"[]", [])
        assert file.sweep(now, DAY_SECONDS) == []
        assert file.sweep(now + DAY_SECONDS + 1, 7 * DAY_SECONDS) == [run.id]
    expired = file.row(run.id)
    assert expired.state == "expired"
    with file.transaction():
        file.sweep(now + 9 * DAY_SECONDS, 7 * DAY_SECONDS)
    assert file.load(run.id) is None
    assert file.calls(run.id) == ()
    assert file.kept("kept_1", "local") is None


def test_only_the_owner_of_the_file_can_read_it_and_a_key_hides_what_is_in_it(tmp_path: Path) -> None:
    file = opened(tmp_path, key="a key of some length")
    run = begun(file, "the_script()")
    asked(file, run, function="git.merge")
    with file.transaction():
        file.keep("kept_1", "local", b'"the result"', [])
    for path in tmp_path.iterdir():
        assert path.stat().st_mode & 0o077 == 0, path
        content = path.read_bytes()
        for hidden in (b"the_script", b"the result", b'arguments":'):
            assert hidden not in content
    for key, how in ((None, "with a"), ("another key of length", "with another")):
        with pytest.raises(StoreError, match=rf"written {how} runs\.key"):
            opened(tmp_path, key)
    (tmp_path / "open").mkdir()
    opened(tmp_path / "open")
    with pytest.raises(StoreError, match=r"written without runs\.key"):
        opened(tmp_path / "open", "a key of some length")


def test_a_file_that_is_no_store_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    path.write_bytes(b"something else " * 1000)
    with pytest.raises(StoreError, match="damaged"):
        opened(tmp_path)
    assert path.read_bytes() == b"something else " * 1000
    (tmp_path / "newer").mkdir()
    newer = opened(tmp_path / "newer")
    with newer.transaction():
        newer.database.execute("UPDATE meta SET value = ? WHERE key = 'format'", (b"99",))
    with pytest.raises(StoreError, match="format 99"):
        opened(tmp_path / "newer")


@pytest.mark.anyio
async def test_writers_of_one_moment_share_a_transaction_and_one_failure_undoes_only_itself(
    tables: Tables,
    file: RunTables,
    run: RunRow,
) -> None:
    store = RunStore(file, tables())

    def fail(file: RunTables) -> None:
        file.note(run.id, "undone")
        raise ValueError("the writer's own failure")

    writers = [store.write(lambda file, n=n: file.note(run.id, f"note {n}")) for n in range(5)]
    results = await asyncio.gather(*writers, store.write(fail), return_exceptions=True)
    assert [type(result) for result in results] == [type(None)] * 5 + [ValueError]
    told = await store.read(partial(kinds, run=run.id))
    assert told == ["began", *(f"note {n}" for n in range(5))]
    await store.close()


@pytest.mark.anyio
async def test_a_full_disk_is_an_error_at_once_and_loses_nothing_that_was_written(tmp_path: Path) -> None:
    file = opened(tmp_path)
    run = begun(file)
    pages = file.database.rows("PRAGMA page_count")[0][0]
    file.database.execute(f"PRAGMA max_page_count = {pages + 2}")
    store = RunStore(file, opened(tmp_path))
    with pytest.raises(StoreError, match="full"):
        await store.write(lambda file: file.advance(run.id, 1, chunk=os.urandom(1 << 20)))
    await store.write(lambda file: file.advance(run.id, 1, chunk=b"small"))
    found = await store.read(lambda file: file.load(run.id))
    assert found.chunks == (b"small",)
    await store.close()
