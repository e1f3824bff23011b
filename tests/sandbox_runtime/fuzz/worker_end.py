"""A real worker process, and a portal that says whatever the caller likes."""

import asyncio
import os
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from sandbox_runtime.aot import AotCache, default_cache, guest_component
from sandbox_runtime.frames import FrameReader, ToPortal
from sandbox_runtime.launchers import Launcher

DEADLINE_SECONDS = 20.0
_LARGEST_FRAME_BYTES = 1 << 22


def compiled_guest() -> Path:
    return AotCache(default_cache(os.environ), print).compiled(guest_component())


@dataclass
class WorkerTrial:
    """One worker's life with a portal that forges; `faults` says what the worker did wrong."""

    conversation: list[list[bytes]]
    hangs_up: bool = True
    messages: int = 0
    answers: int = 0
    faults: list[str] = field(default_factory=list)

    async def go(self, launcher: Launcher) -> None:
        """The worker must end when it is told nonsense, or at the latest when nobody is there any more."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with ours:
            with theirs:
                bury = await launcher.launch(theirs)
            try:
                async with asyncio.timeout(DEADLINE_SECONDS):
                    await asyncio.gather(self._talk(ours), self._listen(ours))
            except TimeoutError:
                self.faults.append("the worker neither refused nor ended")
            finally:
                bury()

    async def _talk(self, ours: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with suppress(OSError):  # it has ended
            for message in self.conversation:
                self.messages += 1
                for piece in message:
                    await loop.sock_sendall(ours, piece)
            if self.hangs_up:
                ours.shutdown(socket.SHUT_WR)

    async def _listen(self, ours: socket.socket) -> None:
        loop, reader = asyncio.get_running_loop(), FrameReader(_LARGEST_FRAME_BYTES)
        first = True
        with suppress(ConnectionResetError):
            while data := await loop.sock_recv(ours, 1 << 16):
                reader.feed(data)
                for kind, _ in reader.frames():
                    self.answers += 1
                    if (kind == ToPortal.READY) is not first or kind not in set(ToPortal):
                        self.faults.append(f"the worker said {kind}")
                    first = False
