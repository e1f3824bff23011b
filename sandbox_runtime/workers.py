"""The pool of worker processes: which are free, who waits for one, and the replacing of those that die."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from sandbox_runtime.errors import WorkerStartError
from sandbox_runtime.worker_process import Launcher, WorkerProcess

Turn: TypeAlias = asyncio.Future[WorkerProcess]
"""Becomes the worker, when there is one."""

_PLACE_BYTES = 1 << 16
_GROW_AFTER_SECONDS = 0.05
_LINGER_SECONDS = 60.0
_RETRY_SECONDS = 1.0
_QUICK_RETRIES = 3


class BusyError(Exception):
    """There is no worker for a script, and there is no use in waiting longer; the message names the limit."""


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """How many scripts may wait for a worker, and how long; one more is refused at once.

    `where` says where a limit is set ("queue", "queue_seconds"), as an operator would look it up. Does not cover
    runs in sessions, which have workers of their own.
    """

    most: int = 1000
    seconds: float = 60.0
    where: Callable[[str], str] = "server.{}".format

    def full(self) -> BusyError:
        limit = f"the limit queue of {self.most:,} ({self.where('queue')})"
        return BusyError(f"all workers are busy and there is no room left to wait for one: {limit}")

    def too_long(self) -> BusyError:
        limit = f"the limit queue_seconds of {self.seconds:g} ({self.where('queue_seconds')})"
        return BusyError(f"no worker was free for {self.seconds:g} s: {limit}")


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
        self._free: dict[WorkerProcess, asyncio.TimerHandle] = {}
        """In the order in which they became free, each with what retires it."""
        self._turns = Turns(self._queue)
        self._healing: set[asyncio.Task[None]] = set()
        self._is_open = True

    @property
    def protections(self) -> tuple[str, ...]:
        """What the workers have given up besides what the engine denies; the same for all of them."""
        return next((worker.protections for worker in self._all), ())

    @property
    def waiting(self) -> int:
        return len(self._turns)

    async def open(self) -> None:
        """Start them all. Raises WorkerStartError: one did not start."""
        for worker in await asyncio.gather(*(self.start(self._replace) for _ in range(self._size))):
            self._keep(worker)

    async def start(self, on_death: Callable[[WorkerProcess], None]) -> WorkerProcess:
        """Start one more worker, for the pool or for a session. Raises WorkerStartError."""

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
        for worker, retiring in self._free.items():
            retiring.cancel()
            del self._free[worker]
            return worker
        turn = self._turns.join(caller, script_bytes)
        growth = asyncio.get_running_loop().call_later(_GROW_AFTER_SECONDS, self._grow)
        try:
            async with asyncio.timeout(self._queue.seconds):
                return await turn
        except BaseException as error:
            self._turns.leave(caller, turn)
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.give_back(turn.result())  # it came in the moment of giving up
            if isinstance(error, TimeoutError):
                raise self._queue.too_long() from error
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
        for healing in self._healing:
            healing.cancel()
        if self._healing:
            await asyncio.wait(self._healing)
        await self._launcher.close()

    def _keep(self, worker: WorkerProcess) -> None:
        self._free[worker] = asyncio.get_running_loop().call_later(_LINGER_SECONDS, self._retire, worker)

    def _retire(self, worker: WorkerProcess) -> None:
        if self._pooled > self._size:
            worker.kill("it was not needed any more")

    def _grow(self) -> None:
        if self._is_open and self._turns and self._pooled < self._most:
            self._pooled += 1
            self._start_healing()

    def _replace(self, dead: WorkerProcess) -> None:
        if (retiring := self._free.pop(dead, None)) is not None:
            retiring.cancel()
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
                return
            except WorkerStartError as error:
                failures += 1
                if failures == _QUICK_RETRIES:
                    self._report(f"workers do not start, trying on: {error}")
                if failures >= _QUICK_RETRIES:
                    await asyncio.sleep(_RETRY_SECONDS)


class Turns:
    """A bounded queue in which callers take turns: however many scripts one has in it, each other caller's next
    waits for at most one of them. A caller's own scripts keep their order.

    A script takes a place for each 64 KiB: the queue bounds memory, too. When it is full, a caller with fewer
    places takes the last of the one with most.
    """

    def __init__(self, limits: QueueLimits) -> None:
        self._limits = limits
        self._lines: dict[str, dict[Turn, int]] = {}
        """The places of each turn by caller, of whom the first is served next."""

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def join(self, caller: str, script_bytes: int = 0) -> Turn:
        """A turn at the end of the caller's line. Raises BusyError: the queue is full."""
        most = self._limits.most
        places = max(min(-(-script_bytes // _PLACE_BYTES), most), 1)
        while sum(map(self._places, self._lines)) + places > most:
            largest = max(self._lines, key=self._places, default=caller)
            if self._places(largest) <= self._places(caller) + places:
                raise self._limits.full()
            last = next(reversed(self._lines[largest]))
            self.leave(largest, last)
            if not last.done():  # its script may have been cancelled in the same moment
                last.set_exception(self._limits.full())
        turn: Turn = asyncio.get_running_loop().create_future()
        self._lines.setdefault(caller, {})[turn] = places
        return turn

    def next(self) -> Turn | None:
        """Take the turn that is due, of the caller who was served least recently."""
        for caller, line in self._lines.items():
            turn = next(iter(line))
            del self._lines[caller], line[turn]
            if line:
                self._lines[caller] = line
            return turn
        return None

    def leave(self, caller: str, turn: Turn) -> None:
        """Give up a place; harmless when it was taken meanwhile."""
        line = self._lines.get(caller, {})
        if line.pop(turn, None) is not None and not line:
            del self._lines[caller]

    def _places(self, caller: str) -> int:
        return sum(self._lines.get(caller, {}).values())
