"""A portal that was stopped or killed: it stops work that another one took over, and nothing is done twice."""

import json
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp_types import CallToolResult

from benchmarks.durable import EDGES, RANDOM
from manifests.json_value import Json
from portal.identity.approvers import Decider
from portal.records.store.places import present
from portal.records.store.records import StoredRun
from portal.records.store.run_tables import RunTables
from tests.acceptance.portal_process import http_portal
from tests.portal.commands import ROOT
from tests.portal.peers import (
    DEADLINE_SECONDS,
    Peer,
    opened,
    states,
    structured,
    tool,
    write_manifest,
)
from tests.portal.rows import opened as tables_in
from tests.portal.runs.test_waiting import ASKS, KEPT, answer_of, found, git
from tests.upstreams.peers import http_peer

CODE = "await git.push(n=1, holds=True)\nawait git.status(n=2)\nawait git.push(n=3)"


@dataclass
class Holding:
    """Tools that answer a call with `holds` only once released."""

    arrived: anyio.Event = field(default_factory=anyio.Event)
    may_answer: anyio.Event = field(default_factory=anyio.Event)

    async def __call__(self, arguments: dict[str, Json]) -> CallToolResult:
        if arguments.get("holds"):
            self.arrived.set()
            await self.may_answer.wait()
        return structured(arguments)


def taken_over(file: RunTables, holder: str) -> StoredRun:
    """Acts as another portal that considers the stopped one dead."""
    file.holder = holder
    with file.transaction():
        file.database.execute("DELETE FROM replicas")
        file.beat("")
        (run,) = file.left([None])
        return file.claim(run)


async def test_stopped_portal_writes_and_sends_nothing_after_its_run_was_taken_over(tmp_path: Path) -> None:
    peer = Peer(tool("push"), tool("status", annotations={"readOnlyHint": True}))
    async with http_peer(peer.server.streamable_http_app()) as served:
        upstream: dict[str, Json] = {"url": f"http://127.0.0.1:{served.port}/mcp"}
        settings: Json = {"check": "off", "workers": 1}
        manifest = write_manifest(tmp_path, {"git": upstream}, runs={"store": "runs.sqlite"}, server=settings)
        # The other one lives longer: else the portal, which ends, would take the run over again.
        with present(tmp_path / "runs.sqlite") as other, http_portal(manifest, is_warm=False) as portal:
            async with Client(portal.url) as client:
                for is_taken in (False, True):
                    peer.calls.clear()
                    hold = peer.acts["push"] = Holding()
                    answers: list[dict[str, Any]] = []

                    async def run(answers: list[dict[str, Any]] = answers) -> None:
                        result = await client.call_tool("execute_code", {"code": CODE})
                        answers.append(result.structured_content)

                    with anyio.fail_after(DEADLINE_SECONDS):
                        async with anyio.create_task_group() as tasks:
                            tasks.start_soon(run)
                            await hold.arrived.wait()
                            portal.process.send_signal(signal.SIGSTOP)
                            try:
                                file = tables_in(tmp_path)
                                taken = taken_over(file, other) if is_taken else None
                                hold.may_answer.set()
                            finally:
                                portal.process.send_signal(signal.SIGCONT)
                    (answer,) = answers
                    pushed = [arguments["n"] for name, arguments in peer.calls if name == "push"]
                    told = answer["status"], answer["result"], pushed
                    assert told == (("running", None, [1]) if is_taken else ("ok", {"n": 3}, [1, 3]))
    assert "run=" in answer["notices"][0]
    assert file.load(answer["run_id"]) == taken is not None
    assert file.log_after(0, answer["run_id"])[-1].kind == "resumed"


# A run in a session may wait for a person. It does not survive the portal.

SESSION_CODE = "await git.push(n=1)\n[x, await git.merge(id=x)]"


async def test_run_in_a_session_that_asks_waits_in_its_worker_and_is_not_run_after_a_crash(
    tmp_path: Path,
) -> None:
    peer, answers = git(), []
    async with opened(tmp_path, {"git": peer}, capabilities=ASKS, runs=KEPT) as portal:
        session = (await portal.run("x = 7", session="new"))["session"]

        async def run() -> None:
            answers.append(await portal.run(SESSION_CODE, session=session))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            (asking,) = await found(portal, partial(RunTables.listed, is_asking=True), bool)
            await anyio.sleep(2 * KEPT["park_after_seconds"])  # a run without a session would be parked
            (tmp_path / "later").mkdir()
            for name in ("runs.sqlite", "runs.sqlite-wal"):  # as a crash leaves it
                shutil.copy(tmp_path / name, tmp_path / "later")
            await portal.portal.runs.decide(asking.id, None, Decider("ann"), is_approved=True)
        assert answers[0]["result"] == [7, {"id": 7}]
        assert states(answers[0]) == [("git.push", "done"), ("git.merge", "done")]
        assert await portal.result_of("x", session=session) == 7
    later = git()
    async with opened(tmp_path / "later", {"git": later}, capabilities=ASKS, runs=KEPT) as portal:
        answer = await answer_of(portal, asking.id, until="error")
        assert answer["error"]["code"] == "run_lost"
        assert later.calls == []


KILLS = 9  # one at each edge, and one at a random moment: a thousand take minutes


@pytest.mark.timeout(400)
def test_kills_double_nothing_and_lose_nothing(tmp_path: Path) -> None:
    # In a process of its own, because it forks portals.
    options = ("--kills", str(KILLS), "--to", str(tmp_path / "found"))
    command = [sys.executable, "-m", "benchmarks.durable", *options]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    told = json.loads((tmp_path / "found").read_text())
    assert (told["doubled"], told["lost"], told["wrong"]) == (0, 0, [])
    assert told["kills"] >= KILLS
    assert told["kills by edge"].keys() == {*EDGES, RANDOM}
    assert 0 < told["unknown"] < told["effects"]
