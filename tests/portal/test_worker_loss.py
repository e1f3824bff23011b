"""A worker that is killed takes its own runs with it, and their ledgers tell what they did. Linux: looks at /proc."""

import os
import signal
from pathlib import Path

import anyio
import pytest

from manifests.json_value import Json
from tests.portal.peers import Opened, Peer, never, opened, states, tool

pytestmark = pytest.mark.anyio

HANGING = "await store.echo()\nawait store.hang()"


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def workers() -> list[int]:
    """The workers of this process: they are forked by a child of it."""
    servers = [
        pid for pid in children(os.getpid()) if b"fork_server" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    return [worker for server in servers for worker in children(server)]


async def test_a_killed_worker_ends_its_run_with_the_ledger_and_is_replaced(tmp_path: Path) -> None:
    peer = Peer(tool("echo"), tool("hang"), hang=never)
    answers: list[dict[str, Json]] = []
    async with opened(tmp_path, {"store": peer}) as portal:

        async def run() -> None:
            answers.append(await portal.run(HANGING))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await peer.until(lambda: len(peer.calls) == 2)
            kill_workers()
        assert await portal.result_of("await store.echo(a=1)") == {"a": 1}
    (answer,) = answers
    assert (answer["status"], answer["error"]["code"]) == ("error", "worker_lost")
    assert states(answer) == [("store.echo", "done"), ("store.hang", "unknown")]
    assert peer.cancelled == ["hang"]


async def test_a_killed_worker_ends_its_session(tmp_path: Path) -> None:
    async with opened(tmp_path) as portal:
        session = (await portal.run("x = 1", session="new"))["session"]
        kill_workers()
        await assert_is_gone(portal, session)
        assert await portal.result_of("2") == 2


async def assert_is_gone(portal: Opened, session: str) -> None:
    """The next run with it is refused, whether the portal has heard of the worker's death or not yet."""
    answer = await portal.run("x", session=session)
    assert answer["status"] == "refused"
    assert answer["error"]["code"] in ("unknown_session", "worker_lost")
    assert "session" not in answer


def kill_workers() -> None:
    found = workers()
    assert found
    for pid in found:
        os.kill(pid, signal.SIGKILL)
