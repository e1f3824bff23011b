"""The process that forks the workers may die or hang: its runs say so, and another takes its place. Linux: /proc."""

import asyncio
import os
import resource
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import anyio
import anyio.lowlevel
import pytest

from sandbox_runtime.sandbox import open_sandbox
from sandbox_runtime.worker_process import ForkLauncher, SpawnLauncher
from tests.processes import children, fork_servers
from tests.sandbox_runtime.running import EchoPort, Runner

pytestmark = pytest.mark.anyio


async def test_fork_server_that_is_killed_takes_its_runs_and_comes_back() -> None:
    others, zombies = fork_servers(), zombies_of(os.getpid())
    async with open_sandbox(workers=2, progress=print, launch=ForkLauncher) as sandbox:
        port, run = EchoPort(), Runner(sandbox)
        session = await sandbox.open_session()
        running = asyncio.create_task(run("print('kept')\nawait git.hangs()", port=port))
        await port.hanging.wait()
        (server,) = set(fork_servers()).difference(others)
        os.kill(server, signal.SIGKILL)
        result = await running
        assert result.error is not None
        assert (result.error.code, result.stdout) == ("worker_lost", "kept\n")
        assert port.cancelled == [1]
        assert await asyncio.gather(*(run.value("1 + 1") for _ in range(6))) == [2] * 6
        assert not session.alive
        assert len(fork_servers()) == len(others) + 1
        assert server not in children(os.getpid())
    assert set(zombies_of(os.getpid())) <= set(zombies)  # those of other tests are gone at the next start


def zombies_of(parent: int) -> list[int]:
    return [
        pid
        for pid in children(parent)
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    ]


@pytest.mark.parametrize("launch", [ForkLauncher, SpawnLauncher])
async def test_workers_start_beside_thousands_of_files(launch: type[ForkLauncher | SpawnLauncher]) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, limits[1]), limits[1]))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        async with open_sandbox(workers=1, progress=print, launch=launch) as sandbox:
            assert await Runner(sandbox).value("import asyncio\nawait asyncio.sleep(0.001)\n1 + 1") == 2
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


class FailingLauncher(ForkLauncher):
    """Whose workers end at once while it `fails`, as where no more processes may be."""

    launched_at: ClassVar[list[float]] = []
    were_many: ClassVar[anyio.Event]
    fails = False

    async def launch(self, end: socket.socket) -> Callable[[], None]:
        if not FailingLauncher.fails:
            return await super().launch(end)
        FailingLauncher.launched_at.append(anyio.current_time())
        if len(FailingLauncher.launched_at) == 4:
            FailingLauncher.were_many.set()
        return lambda: None


async def test_worker_that_does_not_start_is_replaced_by_one_not_by_ever_more() -> None:
    others = fork_servers()
    FailingLauncher.were_many = anyio.Event()
    async with open_sandbox(workers=1, progress=print, launch=FailingLauncher) as sandbox:
        run = Runner(sandbox)
        FailingLauncher.fails = True
        (server,) = set(fork_servers()).difference(others)
        os.kill(server, signal.SIGKILL)
        await FailingLauncher.were_many.wait()
        # Three quick ones, and then one a second.
        assert FailingLauncher.launched_at[3] - FailingLauncher.launched_at[2] >= 0.9
        FailingLauncher.fails = False
        assert await run.value("1 + 1") == 2
