"""Workers that say whatever the test wants, as one would that a guest took over."""

import asyncio
import socket
from collections.abc import Callable

from manifests.grants import Limits
from sandbox_runtime.frames import COUNT, END_HEADER, ToPortal, frame
from sandbox_runtime.result import RunResult
from sandbox_runtime.sandbox import Sandbox, Workers
from tests.sandbox_runtime.running import EchoPort, where

READY = frame(ToPortal.READY, COUNT.pack(1))
PREPARED = frame(ToPortal.PREPARED, b'{"source": null, "names": [], "uses": [], "notices": []}')
END = END_HEADER.pack(1.0, 0)
FINISHED = frame(ToPortal.FINISHED, END, b"{}\n1")


class TakenOver:
    """A launcher of workers that answer each frame with the next of some bytes, then close their socket."""

    def __init__(self, *answers: bytes) -> None:
        self._answers = answers
        self._tasks: set[asyncio.Task[None]] = set()

    async def launch(self, end: socket.socket) -> Callable[[], None]:
        copy = end.dup()
        copy.setblocking(False)
        task = asyncio.create_task(self._serve(copy))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return copy.close

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _serve(self, end: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_sendall(end, READY)
            for answer in self._answers:
                await loop.sock_recv(end, 1 << 16)
                await loop.sock_sendall(end, answer)
        except OSError:
            pass
        finally:
            end.close()


async def run_with(*answers: bytes, limits: Limits | None = None) -> RunResult:
    workers = Workers(TakenOver(*answers), 1, 1, print)
    await workers.open()
    try:
        async with asyncio.timeout(20), Sandbox(workers).run(limits or Limits(), where) as run:
            await run.prepare("1", ())
            return await run.execute({}, EchoPort())
    finally:
        await workers.close()
