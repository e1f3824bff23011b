"""The worker processes: which are free, who waits for one, and the replacing of those that die."""

import asyncio
import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from sandbox_runtime.errors import WorkerStartError
from sandbox_runtime.launchers import Launcher
from sandbox_runtime.worker_process import WorkerProcess

Turn: TypeAlias = asyncio.Future[WorkerProcess]
"""Becomes the worker, when there is one."""

PLACE_BYTES = 1 << 16
"""A script takes a place in the queue for each of so many bytes: the queue bounds memory, too."""

_GROW_AFTER_SECONDS = 0.05
_LINGER_SECONDS = 60.0
_RETRY_SECONDS = 1.0
_QUICK_RETRIES = 3


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
        return self._busy("there is no room left to wait for one")

    def displaced(self) -> BusyError:
        return self._busy("this script gave up its place to a caller with fewer in the queue")

    def too_long(self) -> BusyError:
        limit = f"the limit queue_seconds of {self.seconds:g} ({self.where('queue_seconds')})"
        return BusyError(f"no worker was free for {self.seconds:g} s: {limit}")

    def _busy(self, why: str) -> BusyError:
        limit = f"the limit queue of {self.most:,} ({self.where('queue')})"
        return BusyError(f"all workers are busy and {why}: {limit}")


class Workers:
    """Workers for everyone; those who have to wait for one take turns.

    `size` of them are always there. A script that waits for slow calls keeps its worker, so a caller who had to
    wait for 50 ms gets one more, up to `most`; those end again once nobody took them for a minute.
    """

    def __init__(
        self,
        launcher: Launcher,
        size: int,
        most: int,
        report: Callable[[str], None],
        queue: QueueLimits | None = None,
    ) -> None:
        self._launcher = launcher
        self._queue = queue or QueueLimits()
        self._size = size
        self._most = most
        self._report = report
        self._all: set[WorkerProcess] = set()
        self._pooled = size
        self._free: dict[WorkerProcess, float] = {}
        """Each with the time since when it is free, the first one longest."""
        self._turns = Turns(self._queue)
        self._healing: set[asyncio.Task[None]] = set()
        self._is_open = True

    @property
    def protections(self) -> tuple[str, ...]:
        """What every worker that lives has given up besides what the engine denies."""
        names = [worker.protections for worker in self._all]
        return tuple(name for name in names[0] if all(name in others for others in names)) if names else ()

    @property
    def waiting(self) -> int:
        return len(self._turns)

    async def open(self) -> None:
        """Start them all.

        Raises:
            WorkerStartError: One did not start.
        """
        for worker in await asyncio.gather(*(self.start(self._replace) for _ in range(self._size))):
            self._keep(worker)

    async def start(self, on_death: Callable[[WorkerProcess], None]) -> WorkerProcess:
        """Start one more worker, for the pool or for a session."""

        def forget(dead: WorkerProcess) -> None:
            # One that never came up is nobody's: who wanted it hears so, and sees to another.
            if dead in self._all:
                self._all.discard(dead)
                on_death(dead)

        worker = await WorkerProcess.start(self._launcher, forget)
        if not (worker.is_alive and self._is_open):
            worker.kill("the sandbox was closed")
            raise WorkerStartError("the sandbox was closed while a worker started")
        self._all.add(worker)
        return worker

    async def take(self, caller: str = "", script_bytes: int = 0) -> WorkerProcess:
        """The worker that has been free longest; waits for one when it is the caller's turn.

        Raises:
            BusyError: Too many wait already, or the wait was too long.
        """
        for worker in self._free:
            del self._free[worker]
            return worker
        turn = self._turns.join(caller, script_bytes)
        loop = asyncio.get_running_loop()
        growth = loop.call_later(_GROW_AFTER_SECONDS, self._grow)
        try:
            async with asyncio.timeout(self._queue.seconds):
                return await turn
        except TimeoutError as error:
            self._leave(caller, turn)
            raise self._queue.too_long() from error
        except asyncio.CancelledError:
            self._leave(caller, turn)
            raise
        finally:
            growth.cancel()

    def give_back(self, worker: WorkerProcess) -> None:
        """Hand a worker to the next caller, or keep it. A dead one is replaced already."""
        if not worker.is_alive:
            return
        while (turn := self._turns.next()) is not None:
            if not turn.done():
                turn.set_result(worker)
                return
        self._keep(worker)

    async def close(self) -> None:
        self._is_open = False
        for worker in list(self._all):
            worker.kill("the sandbox was closed")
        for healing in list(self._healing):
            healing.cancel()
        if self._healing:
            await asyncio.wait(self._healing)
        await self._launcher.close()

    def _keep(self, worker: WorkerProcess) -> None:
        loop = asyncio.get_running_loop()
        self._free[worker] = loop.time()
        if self._pooled > self._size:
            loop.call_later(_LINGER_SECONDS, self._retire, worker)

    def _retire(self, worker: WorkerProcess) -> None:
        """End a worker that was started for a rush, if nobody took it since."""
        idle = asyncio.get_running_loop().time() - self._free.get(worker, math.inf)
        if idle >= _LINGER_SECONDS and self._pooled > self._size:
            worker.kill("it was not needed any more")

    def _grow(self) -> None:
        if self._is_open and self._turns and self._pooled < self._most:
            self._pooled += 1
            self._start_healing()

    def _leave(self, caller: str, turn: Turn) -> None:
        self._turns.leave(caller, turn)
        if turn.done() and not turn.cancelled() and turn.exception() is None:
            self.give_back(turn.result())  # it came in the moment of giving up

    def _replace(self, dead: WorkerProcess) -> None:
        self._free.pop(dead, None)
        if self._pooled > self._size and not self._turns:
            self._pooled -= 1
        elif self._is_open:
            self._start_healing()

    def _start_healing(self) -> None:
        healing = asyncio.get_running_loop().create_task(self._heal())
        self._healing.add(healing)
        healing.add_done_callback(self._healing.discard)

    async def _heal(self) -> None:
        failures = 0
        while self._is_open:
            try:
                self.give_back(await self.start(self._replace))
            except WorkerStartError as error:
                failures += 1
                if failures == _QUICK_RETRIES:
                    self._report(f"workers do not start, trying on: {error}")
                if failures >= _QUICK_RETRIES:
                    await asyncio.sleep(_RETRY_SECONDS)
            else:
                return


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
        """Displace the last of the caller with most, as long as that one has more than this one would have."""
        while self._places + places > self._limits.most:
            held = {name: sum(line.values()) for name, line in self._lines.items()}
            most = max(held, key=lambda name: held[name], default=caller)
            if held.get(most, 0) <= held.get(caller, 0) + places:
                raise self._limits.full()
            last = next(reversed(self._lines[most]))
            self.leave(most, last)
            if not last.done():  # its script may have been cancelled in the same moment
                last.set_exception(self._limits.displaced())
