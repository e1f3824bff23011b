"""Keeps what many read from being written meanwhile."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio


class ReadingGate:
    """Many read at once, or one writes. Who wants to write waits for those who read; later readers wait for it."""

    def __init__(self) -> None:
        self._readers = 0
        self._written: anyio.Event | None = None
        self._unread = anyio.Event()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        while self._written is not None:
            await self._written.wait()
        self._readers += 1
        try:
            yield
        finally:
            self._readers -= 1
            if not self._readers:
                self._unread.set()
                self._unread = anyio.Event()

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """For one writer, who does not enter again before it has left."""
        written = self._written = anyio.Event()
        try:
            while self._readers:
                await self._unread.wait()
            yield
        finally:
            self._written = None
            written.set()
