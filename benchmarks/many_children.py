"""A portal with hundreds of stdio servers, and the moment when all of them have ended (Linux)."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio.abc import Process

PORTAL = """
import anyio, os, resource, sys
from pathlib import Path
from manifests.portal_manifest import StdioUpstream
from upstreams.transports.child_process import open_child
from upstreams.redaction import Redaction

async def hold(script, close):
    spec = StdioUpstream(command="sh", args=("-c", script))
    async with open_child(spec, Path.cwd(), Redaction(())):
        await close.wait()

async def main():
    # Three pipes for each child, and since Python 3.12 a descriptor of its process.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    close = anyio.Event()
    async with anyio.create_task_group() as tasks:
        for number in range(int(sys.argv[1])):
            tasks.start_soon(hold, sys.argv[2 + number % (len(sys.argv) - 2)], close)
        await anyio.to_thread.run_sync(sys.stdin.read)
        close.set()

anyio.run(main)
"""

POLITE = "setsid sleep 100 & sleep 100; true"
DEAF = "trap '' TERM; setsid sleep 100 & exec sleep 100"
DOUBLY_FORKED = "(setsid sh -c 'sleep 100 & exec sleep 100' &); exec sleep 100"
"""Behind a shell, in sessions of their own, with parents that are gone; none of them reads its stdin."""


class LifeLine:
    """A FIFO whose writing end is held by each process that is to end: it breaks when all of them have."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self._reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self._writing = os.open(path, os.O_WRONLY)
        self.taken_by = f"exec 3>{path}; echo >&3; "

    async def taken(self, times: int) -> None:
        """Return when so many hold it, who then pass it on to whatever they start."""
        while times > 0:
            await anyio.wait_readable(self._reading)
            times -= len(os.read(self._reading, times))
        os.close(self._writing)

    async def broken(self) -> None:
        await anyio.wait_readable(self._reading)
        assert os.read(self._reading, 1) == b""
        os.close(self._reading)


@asynccontextmanager
async def portal_with_children(life_line: LifeLine, count: int) -> AsyncIterator[Process]:
    """A portal that holds so many until its stdin ends."""
    scripts = [life_line.taken_by + script for script in (POLITE, DEAF, DOUBLY_FORKED)]
    command = [sys.executable, "-c", PORTAL, str(count), *scripts]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    async with await anyio.open_process(command, env=environment) as portal:
        await life_line.taken(count)
        yield portal
