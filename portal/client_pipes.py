"""The client at the other ends of stdin and stdout, as the SDK's stdio server wants to have it.

The SDK's own reader and writer cross to a thread and back three times for each message; where the system can tell
when a pipe is ready, nothing has to.
"""

import io
import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import anyio
import anyio.to_thread

_READ_BYTES: Final = 1 << 16
_AT_ONCE_BYTES: Final = select.PIPE_BUF
"""A pipe that is ready for writing takes this much without blocking."""


@contextmanager
def client_pipes() -> Iterator[tuple["ClientLines", "ClientAnswers"]]:
    """Take stdin and stdout for the protocol. Whatever else prints to stdout meanwhile ends up on stderr."""
    sys.stdout.flush()
    wire = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        yield ClientLines(sys.stdin.fileno()), ClientAnswers(wire)
    finally:
        sys.stdout.flush()
        os.dup2(wire, sys.stdout.fileno())  # left open: a thread may still be writing to it


class ClientLines(anyio.AsyncFile[str]):
    """What the client sends, line by line. Can be cancelled at any time."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(io.StringIO())
        self._descriptor = descriptor
        self._buffer = bytearray()
        self._searched = 0
        self._tells_when_ready = True

    async def readline(self) -> str:
        """The next line with its end; an empty one after the last."""
        while (end := self._buffer.find(b"\n", self._searched)) < 0:
            self._searched = len(self._buffer)
            data = await self._read()
            if not data:
                end = len(self._buffer) - 1
                break
            self._buffer += data
        line = bytes(self._buffer[: end + 1])
        del self._buffer[: end + 1]
        self._searched = 0
        return line.decode("utf-8", "replace")

    async def _read(self) -> bytes:
        if self._tells_when_ready:
            try:
                await anyio.wait_readable(self._descriptor)
            except PermissionError:  # a file, or /dev/null: epoll takes neither
                self._tells_when_ready = False
            else:
                return os.read(self._descriptor, _READ_BYTES)
        return await anyio.to_thread.run_sync(os.read, self._descriptor, _READ_BYTES, abandon_on_cancel=True)


class ClientAnswers(anyio.AsyncFile[str]):
    """What the portal answers. Can be cancelled while the client reads nothing."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(io.StringIO())
        self._descriptor = descriptor
        self._room = select.poll()
        self._room.register(descriptor, select.POLLOUT)

    async def write(self, text: str) -> None:  # type: ignore[override]  # nobody asks for the number of characters
        """Write all of it."""
        data = text.encode()
        if len(data) <= _AT_ONCE_BYTES and self._room.poll(0):
            data = data[os.write(self._descriptor, data) :]
        if data:
            await anyio.to_thread.run_sync(_write_all, self._descriptor, data, abandon_on_cancel=True)

    async def flush(self) -> None:
        """Nothing is kept back."""


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
