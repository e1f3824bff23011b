"""A worker that is killed takes its own runs with it, and their ledgers tell what they did. Linux: looks at /proc."""

import os
import signal
from pathlib import Path

import anyio
import anyio.lowlevel

from manifests.json_value import Json
from tests.portal.peers import DEADLINE_SECONDS, Peer, never, opened, states, tool
from tests.processes import workers

HANGING = "await store.echo()\nawait store.hang()"


async def test_a_killed_worker_ends_its_run_with_the_ledger_and_is_replaced(tmp_path: Path) -> None:
    peer = Peer(tool("echo"), tool("hang"), hang=never)
    answers: list[dict[str, Json]] = []
    others = workers()
    async with opened(tmp_path, {"store": peer}, has_own_sandbox=True) as portal:

        async def run() -> None:
            answers.append(await portal.run(HANGING))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await peer.until(lambda: len(peer.calls) == 2)
            kill_workers({*workers()}.difference(others))
        assert await portal.result_of("await store.echo(a=1)") == {"a": 1}
    (answer,) = answers
    assert (answer["status"], answer["error"]["code"]) == ("error", "worker_lost")
    assert states(answer) == [("store.echo", "done"), ("store.hang", "unknown")]
    assert peer.cancelled == ["hang"]


async def test_an_idle_session_gives_its_worker_back_though_nobody_asks(tmp_path: Path) -> None:
    server = {"workers": 1, "session_idle_seconds": 0.2}
    async with opened(tmp_path, server=server) as portal:
        await portal.run("1")
        without = len(workers())
        await portal.run("x = 1", session="new")
        with anyio.fail_after(DEADLINE_SECONDS):
            while len(workers()) > without:
                await anyio.lowlevel.checkpoint()
        assert await portal.result_of("2") == 2


def kill_workers(pids: set[int]) -> None:
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
