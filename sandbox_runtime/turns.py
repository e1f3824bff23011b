"""Who waits for a worker, and whose turn is next."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from sandbox_runtime.worker_process import WorkerProcess

Turn: TypeAlias = asyncio.Future[WorkerProcess]
"""Becomes the worker, when there is one."""

PLACE_BYTES = 1 << 16
"""A script takes a place in the queue for each of so many bytes: the queue bounds memory, too."""


class BusyError(Exception):
    """There is no worker for a script, and there is no use in waiting longer; the message names the limit."""


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """How many scripts may wait for a worker, and how long; one more is refused at once. Long ones count as several.

    `where` says where a limit is set ("queue", "queue_seconds"), as an operator would look it up. Does not cover
    runs in sessions, which have workers of their own.
    """

    most: int = 1000
    seconds: float = 60.0
    where: Callable[[str], str] = "server.{}".format

    def full(self) -> BusyError:
        told = "all workers are busy and there is no room left to wait for one"
        return BusyError(f"{told}: the limit queue of {self.most:,} ({self.where('queue')})")

    def displaced(self) -> BusyError:
        told = "all workers are busy and this script gave up its place to a caller with fewer in the queue"
        return BusyError(f"{told}: the limit queue of {self.most:,} ({self.where('queue')})")

    def too_long(self) -> BusyError:
        limit = f"the limit queue_seconds of {self.seconds:g} ({self.where('queue_seconds')})"
        return BusyError(f"no worker was free for {self.seconds:g} s: {limit}")


class Turns:
    """A bounded queue in which callers take turns: however many scripts one has in it, each other caller's next
    waits for at most one of them. A caller's own scripts keep their order.

    When it is full, a caller with fewer in it takes the last place of the one with most.
    """

    def __init__(self, limits: QueueLimits) -> None:
        self._limits = limits
        self._lines: OrderedDict[str, OrderedDict[Turn, int]] = OrderedDict()
        self._places = 0

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def join(self, caller: str, script_bytes: int = 0) -> Turn:
        """A turn at the end of the caller's line, which takes a place or several.

        Raises:
            BusyError: The queue is full.
        """
        places = max(min(-(-script_bytes // PLACE_BYTES), self._limits.most), 1)
        if self._places + places > self._limits.most:
            self._make_room(caller, places)
        turn: Turn = asyncio.get_running_loop().create_future()
        self._lines.setdefault(caller, OrderedDict())[turn] = places
        self._places += places
        return turn

    def next(self) -> Turn | None:
        """Take the turn that is due, of the caller who was served least recently."""
        if not self._lines:
            return None
        caller, line = self._lines.popitem(last=False)
        turn, places = line.popitem(last=False)
        self._places -= places
        if line:
            self._lines[caller] = line
        return turn

    def leave(self, caller: str, turn: Turn) -> None:
        """Give up a place; harmless when it was taken meanwhile."""
        line = self._lines.get(caller)
        if line is None or turn not in line:
            return
        self._places -= line.pop(turn)
        if not line:
            del self._lines[caller]

    def _make_room(self, caller: str, places: int) -> None:
        """Displace whom it takes, or nobody if even that would not do."""
        lines = {name: list(line.items()) for name, line in self._lines.items()}
        held = {name: sum(line.values()) for name, line in self._lines.items()}
        free = self._limits.most - self._places
        displaced: list[tuple[str, Turn]] = []
        while free < places:
            most = max(held, key=lambda name: held[name], default=caller)
            if held.get(most, 0) <= held.get(caller, 0) + places:
                raise self._limits.full()
            youngest, size = lines[most].pop()
            held[most] -= size
            free += size
            displaced.append((most, youngest))
        for name, turn in displaced:
            self.leave(name, turn)
            if not turn.done():  # its script may have been cancelled in the same moment
                turn.set_exception(self._limits.displaced())
