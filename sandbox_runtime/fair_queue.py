"""A queue in which callers share something scarce: workers, turns of runs, the type checker."""

import asyncio
import math
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")

_PLACE_BYTES = 1 << 16


class BusyError(Exception):
    """No worker became free within the limits; the message names the limit."""


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """How many scripts may wait for a worker, and how long. One more is refused at once.

    `where` gives the place of a limit ("queue", "queue_seconds") in the manifest. Does not cover runs in sessions,
    which have their own workers.
    """

    most: int = 1000
    seconds: float = 60.0
    where: Callable[[str], str] = "server.{}".format

    def full(self) -> BusyError:
        limit = f"the limit queue of {self.most:,} ({self.where('queue')})"
        return BusyError(f"all workers are busy and the queue is full: {limit}")

    def too_long(self) -> BusyError:
        limit = f"the limit queue_seconds of {self.seconds:g} ({self.where('queue_seconds')})"
        return BusyError(f"no worker was free for {self.seconds:g} s: {limit}")


def has_room(held: Counter[str], caller: str, size: float, most: float) -> bool:
    """Whether a caller may hold one more of `size` things.

    Even if all are taken it may, up to `most` in all, if it holds less than an equal share: it need not wait for
    callers that hold more. `held` has no zeros.
    """
    total = held.total()
    return total < size or (total < most and held[caller] < max(size // len({*held, caller}), 1))


class Waiter(asyncio.Future[Item]):
    """Resolves to what its caller waits for."""

    def __init__(self, caller: str) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self.caller = caller


class FairQueue(Generic[Item]):
    """A bounded queue for `size` things, up to `most` by `has_room`, that is fair between callers.

    The caller that holds the fewest is served first; among equals, the least recently served. Each caller's own waiters
    are first in, first out. A script takes one place per 64 KiB, so the queue also limits memory. If it is full, a
    caller with fewer places displaces the last script of the caller with the most.
    """

    def __init__(self, limits: QueueLimits, size: float = math.inf, most: int = 0) -> None:
        self.held: Counter[str] = Counter()
        """How many each caller holds, without zeros."""
        self._limits = limits
        self.most = most
        self._size = size
        self._lines: dict[str, dict[Waiter[Item], int]] = {}
        """The places of each waiter by caller, the least recently served caller first."""

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    @property
    def newcomers(self) -> int:
        """The number of waiting callers that may hold one more."""
        return sum(map(self.has_room, self._lines))

    def has_room(self, caller: str) -> bool:
        return has_room(self.held, caller, self._size, self.most)

    def join(self, caller: str, script_bytes: int = 0) -> Waiter[Item]:
        """Append a waiter to the caller's line. Raises BusyError: the queue is full."""
        most = self._limits.most
        places = max(min(-(-script_bytes // _PLACE_BYTES), most), 1)
        while sum(map(self._places, self._lines)) + places > most:
            largest = max(self._lines, key=self._places, default=caller)
            if self._places(largest) <= self._places(caller) + places:
                raise self._limits.full()
            last = next(reversed(self._lines[largest]))
            self.leave(last)
            if not last.done():  # its script may just have been cancelled
                last.set_exception(self._limits.full())
        waiter: Waiter[Item] = Waiter(caller)
        self._lines.setdefault(caller, {})[waiter] = places
        return waiter

    async def served(self, waiter: Waiter[Item], give_back: Callable[[Item], None]) -> Item:
        """Wait for what a waiter gets. If it comes too late for its caller, it is given back. Raises BusyError."""
        try:
            async with asyncio.timeout(self._limits.seconds):
                return await waiter
        except BaseException as error:
            self.leave(waiter)
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                give_back(waiter.result())
            if isinstance(error, TimeoutError):
                raise self._limits.too_long() from error
            raise

    def next(self) -> Waiter[Item] | None:
        """Remove and return the next waiter, whose caller then holds one more. None if no waiter may."""
        while self._lines:
            caller = min(self._lines, key=self.held.__getitem__)
            if not self.has_room(caller):
                return None
            line = self._lines.pop(caller)
            waiter = next(iter(line))
            del line[waiter]
            if line:
                self._lines[caller] = line
            if not waiter.done():
                self.held[caller] += 1
                return waiter
        return None

    def leave(self, waiter: Waiter[Item]) -> None:
        """Remove a waiter, if it is still in the queue."""
        line = self._lines.get(waiter.caller, {})
        if line.pop(waiter, None) is not None and not line:
            del self._lines[waiter.caller]

    def drop(self, caller: str) -> None:
        """Record that the caller holds one less."""
        self.held[caller] -= 1
        if not self.held[caller]:
            del self.held[caller]

    def _places(self, caller: str) -> int:
        return sum(self._lines.get(caller, {}).values())


class Turns:
    """At most `size` turns at once, up to `most` by `has_room`, shared fairly between callers."""

    def __init__(self, size: int, most: int = 0) -> None:
        self._queue: FairQueue[None] = FairQueue(QueueLimits(sys.maxsize, math.inf), size, most)

    @asynccontextmanager
    async def turn(self, caller: str) -> AsyncIterator[None]:
        """A context that holds a turn. Waits only if no turn is free."""
        if self._queue.has_room(caller):
            self._queue.held[caller] += 1
        else:
            await self._queue.served(self._queue.join(caller), lambda _: self._release(caller))
        try:
            yield
        finally:
            self._release(caller)

    def _release(self, caller: str) -> None:
        self._queue.drop(caller)
        while (waiter := self._queue.next()) is not None:
            waiter.set_result(None)
