"""Notices on their way to one client, so that nobody waits for a client that does not read them."""

from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import anyio
from anyio.abc import TaskGroup

Notice: TypeAlias = Callable[[], Awaitable[None]]
"""Sends one notice."""


class Outbox:
    """Sends notices in their order: `at_once` without a pause, and after those `a_second`.

    At most `at_once` wait; those that find no room are dropped. They are sent in a task of their own, which
    starts in the group that `open` was given with the first of them: most requests have none.
    """

    def __init__(self, *, at_once: int, a_second: float) -> None:
        self._tasks: TaskGroup | None = None
        self._is_delivering = False
        self.closed = anyio.Event()
        self._at_once = at_once
        self._a_second = a_second
        self._waiting: deque[Notice] = deque()
        self._filled = anyio.Event()

    def open(self, tasks: TaskGroup) -> None:
        self._tasks = tasks

    @property
    def is_full(self) -> bool:
        """Whether one more would be dropped."""
        return self.closed.is_set() or len(self._waiting) >= self._at_once

    def put(self, notice: Notice) -> None:
        if not self.is_full:
            self._add(notice)

    def close(self, last: Notice | None = None) -> None:
        """Take no more but `last`; what is there is sent without a pause, and then nothing runs any more."""
        if last is not None:
            self._add(last)
        self.closed.set()
        self._filled.set()

    def _add(self, notice: Notice) -> None:
        self._waiting.append(notice)
        self._filled.set()
        if not self._is_delivering and self._tasks is not None:
            self._is_delivering = True
            self._tasks.start_soon(self._deliver)

    async def _deliver(self) -> None:
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
