"""The worker processes: which are free, who waits for one, and the replacing of those that die."""

import asyncio
from collections import deque
from collections.abc import Callable

from sandbox_runtime.errors import WorkerStartError
from sandbox_runtime.launchers import Launcher
from sandbox_runtime.turns import QueueLimits, Turn, Turns
from sandbox_runtime.worker_process import WorkerProcess

_GROW_AFTER_SECONDS = 0.05
_LINGER_SECONDS = 60.0
_RETRY_SECONDS = 1.0
_QUICK_RETRIES = 3


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
        self._free: deque[WorkerProcess] = deque()
        self._free_since: dict[WorkerProcess, float] = {}
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
        if self._free:
            return self._free.popleft()
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
        self._free.append(worker)
        self._free_since[worker] = loop.time()
        if self._pooled > self._size:
            loop.call_later(_LINGER_SECONDS, self._retire, worker)

    def _retire(self, worker: WorkerProcess) -> None:
        """End a worker that was started for a rush, if nobody took it since."""
        idle_since = self._free_since.get(worker, 0.0)
        is_idle = worker in self._free and asyncio.get_running_loop().time() - idle_since >= _LINGER_SECONDS
        if is_idle and self._pooled > self._size:
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
        if dead in self._free:
            self._free.remove(dead)
        self._free_since.pop(dead, None)
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
