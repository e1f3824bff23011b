"""A live interpreter that is kept between runs."""

import asyncio
import secrets
import time

from sandbox_runtime.record import Origin
from sandbox_runtime.worker_process import WorkerProcess


class Session:
    """Holds one worker: variables, imports and definitions of a run are there in the next.

    Its id cannot be guessed. It dies with its worker: by a limit that kills, a broken interpreter, or `close`.
    Runs of one session take turns.
    """

    def __init__(self, worker: WorkerProcess, component: str) -> None:
        self.id = secrets.token_urlsafe(18)
        self.turn = asyncio.Lock()
        self._worker = worker
        self._component = component
        self._began = time.monotonic_ns()
        self._runs = 0

    @property
    def alive(self) -> bool:
        return self._worker.is_alive

    @property
    def worker(self) -> WorkerProcess | None:
        """The worker while it lives."""
        return self._worker if self.alive else None

    def next_origin(self) -> Origin:
        """What the clocks and random numbers of the next run begin with; its monotonic clock goes on."""
        self._runs += 1
        # Whole milliseconds on both sides: two more for each run keep the clock from ever going back.
        elapsed_ms = (time.monotonic_ns() - self._began) // 1_000_000 + 2 * self._runs
        return Origin.now(self._component, elapsed_ms=elapsed_ms, position=self._runs)

    def close(self) -> None:
        """End it; a run that is going on is lost."""
        self._worker.kill("the session was closed")
