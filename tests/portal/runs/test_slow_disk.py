"""What happens while a transaction takes long, fails, or is not waited for any more."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from manifests.json_value import Json
from portal.records.store.records import StoreError
from portal.records.store.run_tables import RunTables
from portal.records.store.writer import RunStore
from portal.runs.journal import Journal
from tests.portal.peers import DEADLINE_SECONDS, Peer, never, opened, tool
from tests.portal.runs.rows import Write, intercepted
from tests.portal.runs.test_waiting import answer_of, approved, end_of, found, git, waiting

pytestmark = pytest.mark.anyio
SOON: Json = {"park_after_seconds": 0.2, "store": "r.sqlite"}
SLOW_SECONDS = 0.5


def slow(monkeypatch: pytest.MonkeyPatch, which: Callable[[dict[str, Any]], bool]) -> None:
    """Let transactions take long if `which` says so of what one writes, or of its name under "name"."""
    commit = RunStore._commit

    def slowed(store: RunStore, jobs: list[Any]) -> None:
        for job in jobs:
            work = getattr(job.work, "func", job.work)
            if which({**getattr(job.work, "keywords", {}), "name": getattr(work, "__name__", "")}):
                time.sleep(SLOW_SECONDS)
        commit(store, jobs)

    monkeypatch.setattr(RunStore, "_commit", slowed)


async def test_a_run_whose_first_intent_is_written_at_its_end_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import asyncio\nt = asyncio.create_task(git.push(n=1))\nawait git.status()\n5"
    async with opened(tmp_path, {"git": git()}, runs=SOON) as portal:
        slow(monkeypatch, lambda write: bool(write.get("calls")))
        answer = await portal.run(code)
        assert (answer["status"], answer["result"]) == ("ok", 5)
        assert await end_of(portal, answer["run_id"]) == "ok"


async def test_a_wait_that_is_given_up_while_its_run_is_parked_holds_up_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """
import asyncio
try:
    await asyncio.wait_for(portal.approve("?"), 0.4)
except TimeoutError:
    pass
await git.push(n=1)
"""
    async with opened(tmp_path, {"git": git()}, runs=SOON) as portal:
        slow(monkeypatch, lambda write: write["name"] == "_write" and not write["calls"])
        with anyio.fail_after(DEADLINE_SECONDS):
            run = (await waiting(portal, code))["run_id"]
            await approved(portal, run)


async def test_an_outcome_is_written_when_the_portal_closes(tmp_path: Path) -> None:
    look = tool("look", annotations={"readOnlyHint": True})
    first, second = Peer(tool("push"), look, look=never), Peer(tool("push"), look)  # type: ignore[arg-type]
    code = "try:\n    a = await git.push(n=1)\nexcept ToolError as error:\n    a = error.code\nawait git.look()\na"
    async with opened(tmp_path, {"git": first}, runs=SOON) as portal:
        result = await portal.call("execute_code", background=True, code=code)
        await first.until(lambda: ("look", {}) in first.calls)
    async with opened(tmp_path, {"git": second}, runs=SOON) as portal:
        assert (await answer_of(portal, result.structured_content["run_id"]))["result"] == {"n": 1}


async def test_an_outcome_that_could_not_be_written_is_written_later(tmp_path: Path) -> None:
    peer = Peer(tool("push"), tool("look", annotations={"readOnlyHint": True}), look=never)  # type: ignore[arg-type]
    async with opened(tmp_path, {"git": peer}, runs=SOON) as portal:
        failures = [StoreError("locked")]

        def fails_once(write: Write) -> StoreError | None:
            return failures.pop() if write.outcomes and failures else None

        store = portal.portal.runs.store_or_error()
        with intercepted(store, fails_once):
            code = "await git.push(n=1)\nawait git.look()"
            result = await portal.call("execute_code", background=True, code=code)
            run = result.structured_content["run_id"]
            calls = partial(RunTables.calls, run=run)
            await found(portal, calls, lambda rows: any(row.state == "done" for row in rows))
        assert not failures


async def test_the_end_of_a_run_that_could_not_be_written_is_written_later(tmp_path: Path) -> None:
    peer = git()
    async with opened(tmp_path, {"git": peer}, runs=SOON) as portal:
        store = portal.portal.runs.store_or_error()
        with intercepted(store, lambda write: StoreError("full") if peer.calls else None):
            answer = await portal.run("await git.push(n=1)")
        assert await end_of(portal, answer["run_id"]) == "ok"


async def test_a_fault_of_the_portal_while_it_journals_leaves_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(journal: Journal, seq: int) -> None:
        raise KeyError(seq)

    peer = git()
    async with opened(tmp_path, {"git": peer}, runs=SOON) as portal:
        monkeypatch.setattr(Journal, "_entry_row", broken)
        with anyio.fail_after(DEADLINE_SECONDS):
            result = await portal.client.call_tool("execute_code", {"code": "await git.push(n=1)"})
        assert result.is_error
        assert peer.calls == []
