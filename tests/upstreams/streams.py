"""Streams of what a test has an upstream say, and who has turns while they are read."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import httpx2

CHUNK_BYTES = 65_536


class Pieces(httpx2.AsyncByteStream):
    """A body that comes in pieces; `taken` is how many of them were asked for."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self.taken = 0
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            self.taken += 1
            yield piece


class Written(anyio.abc.ByteReceiveStream):
    """What a child wrote, chunk by chunk, before it ended."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = [*chunks]

    async def receive(self, max_bytes: int = CHUNK_BYTES) -> bytes:
        if not self._chunks:
            raise anyio.EndOfStream
        return self._chunks.pop(0)

    async def aclose(self) -> None:
        """Nothing to close."""


class Turns:
    """How many another task has had."""

    count = 0

    async def take(self) -> None:
        while True:
            await anyio.lowlevel.checkpoint()
            self.count += 1


@asynccontextmanager
async def turns_of_others() -> AsyncIterator[Turns]:
    """Those that another task has meanwhile."""
    turns = Turns()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(turns.take)
        yield turns
        tasks.cancel_scope.cancel()
