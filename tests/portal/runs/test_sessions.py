"""A run in a session may wait for a person. It does not survive the portal, and is never run anew."""

import shutil
from functools import partial
from pathlib import Path

import anyio
import pytest

from manifests.json_value import Json
from portal.identity.approvers import Decider
from portal.records.store.run_tables import RunTables
from tests.portal.peers import Opened, opened, states
from tests.portal.runs.test_waiting import ASKS, answer_of, found, git

pytestmark = pytest.mark.anyio

RUNS: Json = {"store": "runs.sqlite", "park_after_seconds": 0.05}
CODE = "await git.push(n=1)\n[x, await git.merge(id=x)]"


async def asked(portal: Opened) -> str:
    """The run that waits for a person."""
    (run,) = await found(portal, RunTables.listed, bool)
    calls = partial(RunTables.calls, run=run.id)
    await found(portal, calls, lambda rows: any(row.state == "waiting" for row in rows))
    return run.id


def copy_store(folder: Path, to: Path) -> None:
    to.mkdir()
    for path in folder.glob("runs.sqlite*"):
        if path.is_file():
            shutil.copy(path, to)


async def test_run_in_a_session_that_asks_waits_in_its_worker_and_is_not_run_after_a_crash(
    tmp_path: Path,
) -> None:
    peer, answers = git(), []
    async with opened(tmp_path, {"git": peer}, capabilities=ASKS, runs=RUNS) as portal:
        session = (await portal.run("x = 7", session="new"))["session"]

        async def run() -> None:
            answers.append(await portal.run(CODE, session=session))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            identifier = await asked(portal)
            await anyio.sleep(2 * RUNS["park_after_seconds"])  # a run without a session would be parked
            copy_store(tmp_path, tmp_path / "later")  # as a crash leaves it
            await portal.portal.runs.decide(identifier, None, Decider("ann"), is_approved=True)
        assert answers[0]["result"] == [7, {"id": 7}]
        assert states(answers[0]) == [("git.push", "done"), ("git.merge", "done")]
        assert await portal.result_of("x", session=session) == 7
    later = git()
    async with opened(tmp_path / "later", {"git": later}, capabilities=ASKS, runs=RUNS) as portal:
        answer = await answer_of(portal, identifier, until="error")
        assert answer["error"]["code"] == "run_lost"
        assert later.calls == []
