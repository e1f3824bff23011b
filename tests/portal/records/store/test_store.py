"""Both stores fence writes, leave runs to others, take the first decision, and keep things for their owners."""

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import anyio
import pytest

from portal.base.caller import LOCAL
from portal.base.requests import ExecuteCode
from portal.identity.approvers import Approvers, Decider
from portal.library.observed import Observations, Observed, shape_of
from portal.records.store.records import CallRow, FencedError, RunRow, StoreError
from portal.records.store.run_tables import RunTables
from portal.records.store.tables import DAY_SECONDS, UNSOURCED
from portal.runs.decisions import RunsError, decide_call
from portal.runs.past import HEAD, RunHead, new_row, new_run_id
from portal.runs.shapes import SharedShapes
from portal.runs.workspaces import SharedWorkspace
from tests.portal.rows import Tables, alive, asked, begun, kinds, living, store_of, together


@pytest.fixture
def run(file: RunTables) -> RunRow:
    """A run that has begun."""
    return begun(file)


def due(file: RunTables, *profiles: str | None) -> list[str]:
    return [*file.due(time.time(), profiles or [None], 10)]


def decide(
    file: RunTables, run: str, seq: int | None = 1, by: str = "ann", *, is_approved: bool = True
) -> str:
    """The code of the error; "" if it counts."""
    try:
        with file.transaction():
            decide_call(file, run, seq, Decider(by), Approvers(), is_approved=is_approved)
    except RunsError as error:
        return error.code
    return ""


def waits(file: RunTables, run: RunRow, *calls: CallRow) -> None:
    with file.transaction():
        file.advance(run.id, run.epoch, calls=calls or [CallRow(run.id, 1, "ask", "git.merge", "waiting")])


def parks(file: RunTables, run: str, epoch: int = 1, waiting: Sequence[int] = (1,)) -> None:
    with file.transaction():
        file.park(run, epoch, waiting)


# The holder of a run


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


def test_the_time_of_a_run_is_that_of_its_state_and_questions_and_not_of_its_calls(
    file: RunTables, run: RunRow
) -> None:
    waits(file, run, CallRow(run.id, 2, "call", "git.push", "intended"))
    times = [file.row(run.id).updated]
    waits(file, run)
    times.append(file.row(run.id).updated)
    parks(file, run.id)
    times.append(file.row(run.id).updated)
    assert times[0] == run.updated and times == sorted({*times})


def test_a_run_belongs_to_its_portal_while_that_lives_and_then_to_the_first(tables: Tables) -> None:
    with living(tables) as second, living(tables) as third:
        with living(tables) as first:
            run = begun(first)
            assert not first.left([None]) and not second.left([None])
            with pytest.raises(FencedError), second.transaction():
                second.claim(run.id)
        assert [*alive(second).left([None])] == [*alive(third).left([None])] == [run.id]
        with second.transaction():
            second.claim(run.id)
        with pytest.raises(FencedError), third.transaction():
            third.claim(run.id)
        with pytest.raises(FencedError), alive(first).transaction():
            first.advance(run.id, run.epoch, chunk=b"late")


def test_a_portal_that_ends_leaves_its_runs_at_once(tables: Tables) -> None:
    with living(tables) as first, living(tables) as second:
        run = begun(first)
        with first.transaction():
            first.leave()
        assert [*second.left([None])] == [run.id]


def test_a_run_is_taken_up_by_portals_that_serve_its_profile(tables: Tables) -> None:
    with living(tables) as other:
        with living(tables) as file:
            due_run, left_run = (begun(file, profile="dev") for _ in range(2))
            asked(file, due_run)
            decide(file, due_run.id)
        alive(other)
        assert due(other, "ops") == due(other, None) == [*other.left(["ops", None])] == []
        assert (due(other, "ops", "dev"), [*other.left(["dev"])]) == ([due_run.id], [left_run.id])


def test_what_a_run_did_is_read_back_as_it_was_written(tables: Tables) -> None:
    file = tables(key="k" * 16)
    run = begun(file, "print('ö')")
    call = CallRow(run.id, 1, "call", "git.push", "intended", "digest", "hash")
    with file.transaction(is_lasting=True):
        file.advance(run.id, run.epoch, chunk=b"one", calls=[call])
    with file.transaction():
        file.advance(run.id, run.epoch, chunk=b"two", n=2, outcomes=[(1, b'{"state": "done"}')])
    again = tables(key="k" * 16).load(run.id)
    assert (again.chunks, again.row.title) == ((b"one", b"two"), "print('ö')")
    assert [(each.state, each.outcome) for each in again.calls] == [("done", b'{"state": "done"}')]


# Decisions


def test_of_two_who_decide_at_once_the_first_wins_and_the_other_is_told(tables: Tables) -> None:
    file, sides = tables(), [(tables(), by) for by in ("ann", "bob")]
    for _ in range(20):
        run = begun(file)
        asked(file, run)
        told = together(*(partial(decide, own, run.id, 1, by, is_approved=by == "ann") for own, by in sides))
        call = file.call(run.id, 1)
        assert (call.state, call.decided_by, told) in (
            ("approved", "ann", ["", "already_decided"]),
            ("denied", "bob", ["already_decided", ""]),
        )
        assert decide(file, run.id, None, "eve") == "already_decided"


def test_a_call_that_was_decided_while_its_run_went_on_wakes_it(file: RunTables, run: RunRow) -> None:
    asked(file, run)
    with file.transaction():
        file.database.execute("UPDATE runs SET wake_at = 0")  # something else came
        file.claim(run.id)
        file.decide(run.id, 1, "approved", b"{}", "ann")
        file.advance(run.id, run.epoch + 1, outcomes=[(1, b'{"state": "done", "value": true}')])
    parks(file, run.id, run.epoch + 1)
    assert due(file) == [run.id]


def test_a_run_is_woken_by_nothing_that_its_script_gave_up(file: RunTables, run: RunRow) -> None:
    now = time.time()
    event = CallRow(run.id, 2, "event", "portal.event", "waiting", name="x", due_at=now)
    sleep = CallRow(run.id, 3, "sleep", "portal.sleep", "waiting", due_at=now + 3_600)
    waits(file, run, CallRow(run.id, 1, "ask", "git.merge", "waiting"), event, sleep)
    parks(file, run.id, waiting=[3])
    assert (decide(file, run.id), due(file), file.next_due(now)) == ("already_decided", [], sleep.due_at)


def test_what_is_due_is_nothing_to_wait_for(file: RunTables, run: RunRow) -> None:
    waits(file, run, CallRow(run.id, 1, "sleep", "portal.sleep", "waiting", due_at=time.time() - 1))
    parks(file, run.id)
    assert due(file) == [run.id]
    assert file.next_due(time.time()) == run.expires  # a portal that must not wake it does not spin


def test_no_decision_is_lost_while_its_run_is_being_parked(tables: Tables) -> None:
    portal, other = tables(), tables()
    for _ in range(20):
        run = begun(portal)
        waits(portal, run)
        together(partial(parks, portal, run.id), partial(decide, other, run.id))
        row = portal.row(run.id)
        assert (row.state, row.wake_at) == ("waiting", 0.0)


def test_which_of_two_waiting_calls_is_meant_has_to_be_said(file: RunTables, run: RunRow) -> None:
    waits(file, run, *(CallRow(run.id, seq, "ask", "git.merge", "waiting") for seq in (1, 2)))
    with pytest.raises(RunsError, match=r"1 \(git.merge\), 2 \(git.merge\)"), file.transaction():
        decide_call(file, run.id, None, Decider("ann"), Approvers(), is_approved=True)
    assert decide(file, run.id, 2) == ""
    assert [call.state for call in file.calls(run.id)] == ["waiting", "approved"]


def test_an_event_is_delivered_once_whether_it_comes_before_or_after_the_wait(file: RunTables) -> None:
    early, late = begun(file), begun(file)
    with file.transaction():
        tokens = [file.hook(run.id, "deployed") for run in (early, late)]
        assert file.hook(early.id, "deployed") == tokens[0]
        assert file.deliver(tokens[0], b"1") == (early.id, True)
        assert file.deliver(tokens[0], b"2") == (early.id, False)
        assert file.deliver("no such token", b"3") is None
    for run in (early, late):
        waits(file, run, CallRow(run.id, 1, "event", "portal.event", "waiting", name="deployed"))
        parks(file, run.id)
    assert due(file) == [early.id]
    with file.transaction():
        assert file.deliver(tokens[1], b"4") == (late.id, True)
    assert due(file) == [early.id, late.id]
    assert (file.payload(early.id, "deployed"), file.payload(late.id, "deployed")) == (b"1", b"4")


# Owners, and retention


def test_runs_that_wait_for_a_person_are_listed_by_tenant(file: RunTables) -> None:
    for owner in ("red/dev/1", "red//2", "redder//3", "//4", "local"):
        asked(file, begun(file, owner=owner))
    begun(file, owner="red//2")

    def listed(owner: str, tenant: str | None) -> set[str]:
        return {each.owner for each in file.listed(owner, tenant=tenant, is_asking=True)}

    assert listed("red//9", "red") == {"red/dev/1", "red//2"}
    assert listed("//9", "") == {"//4", "local"}
    assert listed("red//2", None) == {"red//2"}
    assert len(file.listed("red//2")) == 2 and len(file.listed()) == 6


def test_calls_that_waited_are_told_by_run_and_number(file: RunTables, run: RunRow) -> None:
    asked(file, run, 3)
    with file.transaction():
        file.advance(run.id, run.epoch, calls=[CallRow(run.id, 4, "call", "git.push", "intended")])
    other = begun(file)
    assert {row.id: row.waited for row in file.history(None)} == {run.id: {3: "ask"}, other.id: {}}


def test_caller_of_a_run_is_known_by_the_last_name(file: RunTables) -> None:
    head = RunHead(ExecuteCode("1"), LOCAL, None)
    for name in ("token 1", "token ops"):
        with file.transaction():
            file.create(new_row(new_run_id(), "red//1", head, None, 1), HEAD.dump_json(head), name)
    assert [file.caller(owner) for owner in ("red//1", "blue//1", "local")] == ["token ops", "", "local"]


def test_forgotten_runs_expire_and_ended_ones_are_deleted_after_their_days(file: RunTables) -> None:
    run = begun(file, max_age_days=1)
    asked(file, run)
    now = time.time()
    with file.transaction():
        file.keep("kept_1", "local", b"[]", [])
        assert file.sweep(now, DAY_SECONDS) == []
        assert file.sweep(now + DAY_SECONDS + 1, 7 * DAY_SECONDS) == [run.id]
    assert file.row(run.id).state == "expired"
    with file.transaction():
        file.sweep(now + 9 * DAY_SECONDS, 7 * DAY_SECONDS)
    assert (file.load(run.id), file.calls(run.id), file.kept("kept_1", "local")) == (None, (), None)


def test_of_what_an_earlier_version_kept_nobody_knows_the_sources(tables: Tables) -> None:
    old = tables()
    with old.transaction():
        old.keep("kept_1", "local", b"1", ["mail"])
        old.database.execute("ALTER TABLE results DROP COLUMN sources")
        old.database.execute("UPDATE meta SET value = ? WHERE key = 'format'", (b"3",))
    new = tables(holder="portal")
    assert (new.kept("kept_1", "local"), new.get(*UNSOURCED)) == ((b"1", None), b"")


def test_only_a_portal_converts_tables_of_an_earlier_format(tables: Tables) -> None:
    """A command that looks at them leaves them to the portals of that version."""
    old = tables()
    run = begun(old)
    with old.transaction():
        old.database.execute("UPDATE meta SET value = ? WHERE key = 'format'", (b"4",))
    with pytest.raises(StoreError, match="earlier format"):
        tables()
    assert old.database.rows("SELECT value FROM meta WHERE key = 'format'") == [(b"4",)]
    assert tables(holder="portal").load(run.id) is not None
    assert tables().load(run.id) is not None


# Portals that share a store


async def test_writers_of_one_moment_share_a_transaction_and_one_failure_undoes_only_itself(
    tables: Tables, run: RunRow
) -> None:
    def fail(file: RunTables) -> None:
        file.note(run.id, "undone")
        raise ValueError("the writer's own failure")

    async with store_of(tables) as store:
        writers = [store.write(lambda file, n=n: file.note(run.id, f"note {n}")) for n in range(5)]
        results = await asyncio.gather(*writers, store.write(fail), return_exceptions=True)
        assert [type(result) for result in results] == [type(None)] * 5 + [ValueError]
        told = await store.read(partial(kinds, run=run.id))
    assert told == ["began", *(f"note {n}" for n in range(5))]


async def test_a_write_that_nobody_waits_for_any_more_is_done(tables: Tables, run: RunRow) -> None:
    async with store_of(tables) as store:
        with anyio.move_on_after(0) as given_up:
            await store.write(partial(RunTables.note, run=run.id, kind="noted"), is_lasting=True)
        await store.write(lambda file: None)
        assert given_up.cancelled_caught
        assert await store.read(partial(kinds, run=run.id)) == ["began", "noted"]


async def test_portals_know_at_once_what_another_one_wrote_into_a_folder(
    tables: Tables, tmp_path: Path
) -> None:
    async with store_of(tables) as own, store_of(tables) as others:
        one, other = (SharedWorkspace(each, tmp_path) for each in (own, others))

        async def known(workspace: SharedWorkspace) -> list[set[str] | None]:
            return [await workspace.sources(folder) for folder in ("anna", "bert", "")]

        assert await known(other) == [set()] * 3
        await one.add("anna", {"mail"})
        assert await known(other) == [{"mail"}, set(), {"mail"}]
        await other.add("anna", {"web", "mail"})
        await one.add("", {"note"})
        assert (await known(other))[1] == {"note"}
        assert (await known(one))[0] == {"mail", "note", "web"}
        await other.add("bert", None)
        assert await known(one) == [{"mail", "note", "web"}, None, None]
        assert await SharedWorkspace(others, tmp_path / "other").sources("") == set()


async def test_two_portals_share_what_they_learnt_of_results(tables: Tables) -> None:
    async with store_of(tables) as one, store_of(tables) as other:
        for store, tool in ((one, "get"), (other, "list")):
            portal = Observations(SharedShapes(store))
            portal._known["tickets"] = {tool: Observed("digest", shape_of({"id": 1}, {}))}
            portal._unsaved.add("tickets")
            await portal.save()
        third = Observations(SharedShapes(one))
        await third.load(["tickets", "unknown"])
    assert ({*third.of("tickets")}, third.of("unknown")) == ({"get", "list"}, {})


async def test_a_source_that_a_run_gets_while_it_writes_counts_for_its_next_write(tmp_path: Path) -> None:
    async with store_of(Tables(tmp_path)) as store:
        workspace, sources = SharedWorkspace(store, tmp_path), {"note"}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(workspace.add, "", sources)
            await anyio.lowlevel.checkpoint()
            sources.add("mail")
        await workspace.add("", sources)
        assert await workspace.sources("") == {"mail", "note"}
