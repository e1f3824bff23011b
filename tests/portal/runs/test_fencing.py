"""A portal that was stopped while another process took its run over does nothing more for it."""

import signal
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from mcp import Client
from mcp_types import CallToolResult

from manifests.json_value import Json
from portal.records.store.places import present
from portal.records.store.records import StoredRun
from portal.records.store.run_tables import RunTables
from tests.acceptance.portal_process import http_portal
from tests.portal.peers import DEADLINE_SECONDS, Peer, structured, tool, write_manifest
from tests.portal.runs.kept_runs import kept_runs
from tests.portal.runs.rows import opened
from tests.upstreams.peers import http_peer

pytestmark = pytest.mark.anyio

CODE = "await git.push(n=1, holds={})\nawait git.status(n=2, holds={})\nawait git.push(n=3)"


@dataclass
class Holding:
    """Tools that answer a call with `holds` only when they are told to."""

    arrived: anyio.Event = field(default_factory=anyio.Event)
    may_answer: anyio.Event = field(default_factory=anyio.Event)

    async def __call__(self, arguments: dict[str, Json]) -> CallToolResult:
        if arguments.get("holds"):
            self.arrived.set()
            await self.may_answer.wait()
        return structured(arguments["n"])


def taken_over(file: RunTables, holder: str) -> StoredRun:
    """As by another portal that takes the stopped one for dead."""
    file.holder = holder
    with file.transaction():
        file.database.execute("DELETE FROM replicas")
        file.beat("")
        (run,) = file.left([None])
        return file.claim(run)


@pytest.mark.parametrize(
    ("holds", "is_taken"), [((True, False), True), ((False, True), True), ((True, False), False)]
)
async def test_stopped_portal_writes_and_sends_nothing_after_its_run_was_taken_over(
    tmp_path: Path, holds: tuple[bool, bool], is_taken: bool
) -> None:
    hold = Holding()
    peer = Peer(tool("push"), tool("status", annotations={"readOnlyHint": True}), push=hold, status=hold)
    answers: list[dict[str, Any]] = []
    async with http_peer(peer.server.streamable_http_app()) as served:
        upstream: dict[str, Json] = {"url": f"http://127.0.0.1:{served.port}/mcp"}
        settings: Json = {"check": "off", "workers": 1}
        manifest = write_manifest(tmp_path, {"git": upstream}, runs={"store": "runs.sqlite"}, server=settings)
        with http_portal(manifest, is_warm=False) as portal, present(tmp_path / "runs.sqlite") as other:
            async with Client(portal.url) as client:

                async def run() -> None:
                    result = await client.call_tool("execute_code", {"code": CODE.format(*holds)})
                    answers.append(result.structured_content)

                with anyio.fail_after(DEADLINE_SECONDS):
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(run)
                        await hold.arrived.wait()
                        portal.process.send_signal(signal.SIGSTOP)
                        try:
                            file = opened(tmp_path)
                            taken = taken_over(file, other) if is_taken else None
                            hold.may_answer.set()
                        finally:
                            portal.process.send_signal(signal.SIGCONT)
    (answer,) = answers
    pushed = [arguments["n"] for name, arguments in peer.calls if name == "push"]
    now = file.load(answer["run_id"])
    if taken is None:
        assert (answer["status"], pushed) == ("ok", [1, 3])
        return
    assert (answer["status"], pushed) == ("running", [1])
    assert answer["result"] is None and "run=" in answer["notices"][0]
    assert now == taken
    assert file.log_after(0, taken.row.id)[-1].kind == "resumed"


async def test_the_late_end_of_a_run_that_another_one_took_over_does_not_count(tmp_path: Path) -> None:
    async with kept_runs(tmp_path) as kept:
        run = await kept.start("hang")
        with anyio.fail_after(DEADLINE_SECONDS):
            while (
                held := await kept.store.read(partial(RunTables.row, run=run))
            ) and held.state == "waiting":
                await kept.runs.news.wait()
        await kept.runs.end(run, "error", None, held.epoch - 1)
        assert await kept.store.read(partial(RunTables.row, run=run)) == held
        await kept.runs.end(run, "error", None, held.epoch)
        await kept.until(run, "error")
