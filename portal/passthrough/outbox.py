"""Notices on their way to one client, so that nobody waits for a client that does not read them."""

from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import anyio

Notice: TypeAlias = Callable[[], Awaitable[None]]
"""Sends one notice."""


class Outbox:
    """Sends notices in their order: `at_once` without a pause, and after those `a_second`.

    At most `at_once` wait; those that find no room are dropped and counted.
    """

    def __init__(self, *, at_once: int, a_second: float) -> None:
        self.dropped = 0
        self.closed = anyio.Event()
        self._at_once = at_once
        self._a_second = a_second
        self._waiting: deque[Notice] = deque()
        self._filled = anyio.Event()

    def put(self, notice: Notice) -> None:
        if self.closed.is_set() or len(self._waiting) >= self._at_once:
            self.dropped += 1
            return
        self._waiting.append(notice)
        self._filled.set()

    def close(self, last: Notice | None = None) -> None:
        """Take no more but `last`; `deliver` sends what is there without a pause, and returns."""
        if last is not None:
            self._waiting.append(last)
        self.closed.set()
        self._filled.set()

    async def deliver(self) -> None:
        """Send what is put in, in a task of its own, until it is closed."""
        left, as_of = float(self._at_once), anyio.current_time()
        while True:
            if not self._waiting:
                if self.closed.is_set():
                    return
                self._filled = anyio.Event()
                await self._filled.wait()
                continue
            now = anyio.current_time()
            left, as_of = min(self._at_once, left + (now - as_of) * self._a_second), now
            if left < 1 and not self.closed.is_set():
                with anyio.move_on_after((1 - left) / self._a_second):
                    await self.closed.wait()
                continue
            left -= 1
            await self._waiting.popleft()()
