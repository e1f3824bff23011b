"""Races, and a store that fails or is slow: nothing is done twice, lost or misreported."""

from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp_types import CallToolResult

from manifests.json_value import Json
from manifests.loader import load_manifest
from portal.identity.approvers import Decider
from portal.records.store.places import place_of, present
from portal.records.store.records import StoreError
from portal.records.store.run_tables import RunTables
from portal.runs.answer import Answer
from portal.runs.changes import Changes
from portal.runs.decisions import fork_run
from portal.runs.service import Runs
from tests.portal.peers import DEADLINE_SECONDS, Peer, never, opened, states, structured, tool, write_manifest
from tests.portal.rows import failing
from tests.portal.rows import opened as tables_in
from tests.portal.runs.test_waiting import ASKS, KEPT, SOON, answer_of, approved, end_of, found, git, waiting
from tests.sandbox_runtime.fetching import served


async def test_a_run_does_not_wait_for_what_its_script_gave_up(tmp_path: Path) -> None:
    """Also through middleware that waits in a task of its own, which is cancelled without the script's reason."""
    bounded = "async def bounded(call, next):\n    return await asyncio.wait_for(next(call), 30)\n"
    (tmp_path / "bounded.py").write_text(f"import asyncio\n\n{bounded}")
    code = """
for call in (portal.approve("first?"), git.merge(id=1)):
    try:
        await asyncio.wait_for(call, 0.2)
    except TimeoutError:
        pass
await portal.sleep(hours=1)
"""
    sections: Json = {
        "middleware": ["bounded:bounded"],
        "capabilities": ASKS,
        "runs": {"park_after_seconds": 600},
    }
    async with opened(tmp_path, {"git": git()}, **sections) as portal, anyio.create_task_group() as tasks:
        tasks.start_soon(partial(portal.call, "execute_code", code=code))
        listed = await found(portal, RunTables.listed, len)
        calls, states = partial(RunTables.calls, run=listed[0].id), ["done", "done", "waiting"]
        await found(portal, calls, lambda calls: [call.state for call in calls] == states)
        tasks.cancel_scope.cancel()


async def test_what_decides_nothing_does_not_postpone_that_a_run_is_parked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (always := anyio.Event()).set()
    monkeypatch.setattr(Changes, "register", lambda *_: always)
    async with opened(tmp_path, runs=SOON) as portal:
        with anyio.fail_after(DEADLINE_SECONDS):
            await waiting(portal, "await portal.approve('?')")


async def test_a_run_whose_row_is_gone_says_what_it_called(tmp_path: Path) -> None:
    async def push(arguments: dict[str, Json]) -> CallToolResult:
        def delete(tables: RunTables) -> None:
            tables.database.execute("DELETE FROM runs")

        await portal.portal.runs.store_or_error().write(delete)
        return structured(arguments)

    async with opened(tmp_path, {"git": git(push=push)}, runs=KEPT) as portal:
        answer = await portal.run("await git.push(n=1)\nawait git.push(n=2)")
    assert (answer["status"], answer["error"]["code"]) == ("error", "unknown_run")
    assert states(answer) == [("git.push", "done"), ("git.push", "not_started")]


async def test_a_fork_after_an_approval_can_be_loaded(tmp_path: Path) -> None:
    code = "await portal.approve('?')\nawait git.push(n=1)"
    async with opened(tmp_path, {"git": git()}, runs=SOON) as portal:
        run = (await waiting(portal, code))["run_id"]
        await approved(portal, run)
        row = await portal.portal.runs.store_or_error().write(partial(fork_run, run=run, seq=2))
        portal.portal.runs.changes.wake(row.id)
        assert (await answer_of(portal, row.id))["result"] == {"n": 1}


async def test_a_damaged_default_store_is_an_error_at_once(tmp_path: Path) -> None:
    manifest = load_manifest(write_manifest(tmp_path, {}), {})
    place = place_of(manifest)
    with present(place):
        place.write_bytes(b"x" * 8192)
    with pytest.raises(StoreError, match="damaged"):
        async with opened(tmp_path):
            pass


async def test_a_run_whose_answer_was_given_but_not_written_does_nothing_after_a_restart(
    tmp_path: Path,
) -> None:
    peer, after = git(), git()
    code = """
for n in (1, 2):
    try:
        await git.push(n=n)
    except ToolError as error:
        print(n, error.code)
"""
    async with opened(tmp_path, {"git": peer}, runs=KEPT) as portal:
        with failing(portal.portal.runs.store, lambda rows: peer.calls):
            answer = await portal.run(code)
        assert answer["stdout"] == "2 journal_failed\n", "nothing was sent, says the answer"
    async with opened(tmp_path, {"git": after}, runs=KEPT) as portal:
        await end_of(portal, answer["run_id"])
        assert after.calls == []


async def test_a_call_that_asks_no_more_waits_for_nobody(tmp_path: Path) -> None:
    peer = Peer(tool("look", annotations={"readOnlyHint": True}))
    code = "import asyncio\nawait asyncio.gather(git.look(), portal.sleep(2))\nawait portal.sleep(hours=1)"
    rules: Json = {"tools": {"ask": ["git.look"]}}
    async with opened(tmp_path, {"git": peer}, capabilities=rules, runs=KEPT) as portal:
        run = (await waiting(portal, code))["run_id"]
    async with opened(tmp_path, {"git": peer}, runs=KEPT) as portal:
        waits = partial(RunTables.calls, run=run, which="state = 'waiting'")
        await found(portal, waits, lambda calls: [call.kind for call in calls] == ["sleep"])


async def test_an_outcome_is_written_when_the_portal_closes(tmp_path: Path) -> None:
    look = tool("look", annotations={"readOnlyHint": True})
    first, second = Peer(tool("push"), look, look=never), Peer(tool("push"), look)
    code = "try:\n    a = await git.push(n=1)\nexcept ToolError as error:\n    a = error.code\nawait git.look()\na"
    async with opened(tmp_path, {"git": first}, runs=KEPT) as portal:
        result = await portal.call("execute_code", background=True, code=code)
        await first.until(lambda: ("look", {}) in first.calls)
    async with opened(tmp_path, {"git": second}, runs=KEPT) as portal:
        assert (await answer_of(portal, result.structured_content["run_id"]))["result"] == {"n": 1}


async def test_the_end_of_a_run_that_could_not_be_written_is_told_and_written_later(tmp_path: Path) -> None:
    peer = git()
    async with opened(tmp_path, {"git": peer}, runs=KEPT) as portal:
        with failing(portal.portal.runs.store, lambda rows: peer.calls):
            answer = await portal.run("await git.push(n=1)")
        assert (answer["status"], answer["result"]) == ("ok", {"n": 1})
        assert any("store of runs cannot be written" in notice for notice in answer["notices"])
        assert await end_of(portal, answer["run_id"]) == "ok"


async def test_a_question_stays_open_when_the_portal_ends_before_its_run_is_parked(tmp_path: Path) -> None:
    """A run with another call in flight is not parked. What the end of the portal cancels, the script did not."""
    look = tool("look", annotations={"readOnlyHint": True})
    code = "import asyncio\nawait asyncio.gather(git.look(), portal.approve('?'))\n1"
    async with opened(tmp_path, {"git": Peer(look, look=never)}, runs=KEPT) as portal:
        started = await portal.call("execute_code", background=True, code=code)
        run = started.structured_content["run_id"]
        asked = partial(RunTables.calls, run=run, which="state = 'waiting'")
        await found(portal, asked, len)
    async with opened(tmp_path, {"git": Peer(look)}, runs=KEPT) as portal:
        await found(portal, asked, len)
        assert (await approved(portal, run))["result"] == 1


async def test_requests_and_file_operations_count_on_when_a_run_goes_on(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w/a").touch()
    async with served() as server:
        files = {"workspace": "w", "operations": 1}
        network = {"private": [f"127.0.0.1:{server.port}"], "requests": 1}
        each = f'await portal.fetch("{server.base}/a")', "open('a').close()"
        for call, grant in zip(each, ({"network": network}, {"files": files}), strict=True):
            async with opened(tmp_path, capabilities=grant, runs=SOON) as portal:
                run = (await waiting(portal, f"{call}\nawait portal.approve('?')\n{call}"))["run_id"]
                error = (await approved(portal, run, until="error"))["error"]
            assert "is used up" in error["message"]


async def test_a_store_that_fails_costs_an_event_and_not_its_run(tmp_path: Path) -> None:
    code = "try:\n    await portal.event_url('x')\nexcept ToolError as error:\n    a = error.code\na"
    async with opened(tmp_path, runs={"public_url": "https://p.example"}) as portal:
        with failing(portal.portal.runs.store):
            assert await portal.result_of(code) == "journal_failed"


async def test_a_store_that_cannot_be_read_does_not_end_the_wait_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unread(*_: object) -> Answer:
        raise StoreError("away")

    async with opened(tmp_path, runs=SOON) as portal:
        with monkeypatch.context() as patch:
            patch.setattr(Runs, "final_answer", unread)
            patch.setattr(Runs, "answer", unread)
            told = await portal.call("execute_code", code="await portal.approve('?')\n2")
            assert told.structured_content["status"] == "waiting"
            patch.undo()
            run = told.structured_content["run_id"]
            assert (await approved(portal, run))["result"] == 2
        monkeypatch.setattr(Runs, "final_answer", unread)
        answer = await waiting(portal, "await portal.approve('?')\n1")
        assert (await approved(portal, answer["run_id"]))["result"] == 1


async def test_a_portal_that_lost_a_run_does_not_end_it_later(tmp_path: Path) -> None:
    """Another one goes on with it. Its client had left with `waiting`, so none has the answer of this one."""
    has_begun, may_answer = anyio.Event(), anyio.Event()

    async def hold(arguments: Json) -> Any:
        has_begun.set()
        await may_answer.wait()
        return structured({})

    async with opened(tmp_path, {"git": git(push=hold)}, runs=KEPT) as portal:
        runs = portal.portal.runs
        run = (await waiting(portal, "await portal.approve('?')\nawait git.push()"))["run_id"]
        await runs.decide(run, None, Decider("ann"), is_approved=True)
        await has_begun.wait()
        with failing(runs.store):
            may_answer.set()
            with anyio.fail_after(DEADLINE_SECONDS):
                while not runs.unwritten:  # noqa: ASYNC110
                    await anyio.sleep(0.01)
            with closing(tables_in(tmp_path)) as tables, tables.transaction():
                tables._execute("UPDATE runs SET epoch = epoch + 1, holder = 'other' WHERE id = ?", (run,))
        await runs.write_ends()
        assert (await found(portal, partial(RunTables.row, run=run), bool)).state == "running"
