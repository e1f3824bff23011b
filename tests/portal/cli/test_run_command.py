"""What `run` says of a run that waits: for whom, and whether it goes on without the command."""

from argparse import Namespace
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest

from manifests.json_value import Json
from manifests.loader import load_manifest
from portal.cli import run
from portal.identity.approvers import Approvers, Decider
from portal.runs.answer import Answer
from portal.runs.decisions import decide_call
from portal.runs.execution import Execution
from portal.runs.service import Runs
from tests.portal.clients import UPSTREAMS, chatty_upstreams
from tests.portal.commands import Told
from tests.portal.peers import DEADLINE_SECONDS, write_manifest
from tests.portal.rows import opened as tables_in


@dataclass(eq=False)
class Command:
    told: Told
    scope: anyio.CancelScope
    statuses: list[int] = field(default_factory=list)


@asynccontextmanager
async def running(
    folder: Path, script: str, *, is_json: bool = False, upstreams: dict[str, dict[str, Json]] | None = None
) -> AsyncIterator[Command]:
    """`run` with this script, which ends before the block does. Its run is parked as soon as it waits."""
    (folder / "script.py").write_text(script)
    path = write_manifest(folder, upstreams or {}, runs={"store": "runs.sqlite", "park_after_seconds": 0})
    options = Namespace(script=folder / "script.py", profile=None, kernel=None, timeout=None, json=is_json)
    async with anyio.create_task_group() as tasks:
        command = Command(Told(), tasks.cancel_scope)

        async def work() -> None:
            command.statuses.append(await run.command(load_manifest(path, {}), options, command.told))

        tasks.start_soon(work)
        with anyio.fail_after(DEADLINE_SECONDS):
            yield command


async def test_it_names_every_call_that_a_run_waits_for(tmp_path: Path) -> None:
    script = "await portal.approve('a')\nawait portal.approve('b')\n1"
    async with running(tmp_path, script) as command:
        for seq in (1, 2):
            waits = f"the run waits for call {seq} (portal.approve)"
            while waits not in command.told.notes:  # noqa: ASYNC110
                await anyio.sleep(0.01)
            with closing(tables_in(tmp_path)) as tables, tables.transaction():
                (row,) = tables.listed()
                decide_call(tables, row.id, seq, Decider("ann"), Approvers(), is_approved=True)
            assert f"runs approve {row.id} {seq}" in command.told.notes[-1]
    assert (command.statuses, command.told.results) == ([0], [1])


async def test_it_waits_for_a_run_that_goes_on_before_its_wait_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, asked = Runs.answer, []

    async def late(self: Runs, run: str, owner: str | None) -> Answer:
        asked.append(await usual(self, run, owner))
        if len(asked) == 2:
            await self.decide(run, None, Decider("ann"), is_approved=True)
            while asked[-1].status == "waiting":  # nothing tells that it goes on
                await anyio.sleep(0.01)
                asked[-1] = await usual(self, run, owner)
        return asked[-1]

    monkeypatch.setattr(Runs, "answer", late)
    async with running(tmp_path, "await portal.approve('a')\nsum(range(3 * 10**6))") as command:
        pass
    assert (command.statuses, command.told.results) == ([0], [4499998500000])


async def test_question_without_a_client_has_its_code(tmp_path: Path) -> None:
    script = "codes = []\n" + "".join(
        f"try:\n    await {name}.ask()\nexcept ToolError as error:\n    codes.append(error.code)\n"
        for name in UPSTREAMS
    )
    async with (
        chatty_upstreams() as upstreams,
        running(tmp_path, f"{script}codes", upstreams=upstreams) as command,
    ):
        pass
    assert command.told.results == [["question_unsupported"] * len(UPSTREAMS)]


async def test_answer_is_there_before_the_upstreams_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = run.open_portal

    @asynccontextmanager
    async def opening(*given: Any, **named: Any) -> AsyncIterator[Any]:
        async with usual(*given, **named) as portal:
            yield portal
            await anyio.sleep_forever()

    monkeypatch.setattr(run, "open_portal", opening)
    async with running(tmp_path, "1 + 1") as command:
        while not command.told.results:  # noqa: ASYNC110
            await anyio.sleep(0.01)
        command.scope.cancel()
    assert command.told.results == [2]


async def test_interrupted_it_says_that_a_run_which_has_waited_stays_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that goes on at once, so that the command never knew that it waited."""
    usual, is_going_on = Execution.segment, anyio.Event()

    async def segment(self: Execution, piece: Any, *rest: Any) -> Answer:
        if piece.epoch:
            is_going_on.set()
            return await usual(self, piece, *rest)
        answer = await usual(self, piece, *rest)
        await self.runs.decide(piece.run_id, None, Decider("ann"), is_approved=True)
        await is_going_on.wait()
        return answer

    monkeypatch.setattr(Execution, "segment", segment)
    async with running(tmp_path, "await portal.approve('a')\nwhile True: pass", is_json=True) as command:
        await is_going_on.wait()
        await anyio.sleep(0.1)
        command.scope.cancel()
    (answer,) = command.told.results
    assert (answer["status"], answer["error"]) == ("running", None)
    cancel = f"mcp-code-portal runs cancel {answer['run_id']}"
    told = f"the run stays open, and goes on in the next portal. To end it: {cancel}"
    assert command.told.notes[-1].startswith(told)
