"""A live interpreter that is kept between runs."""

import asyncio
import secrets

from sandbox_runtime.worker_process import WorkerProcess


class Session:
    """Holds one worker: variables, imports and definitions of a run are there in the next.

    Its id cannot be guessed. It dies with its worker: by a limit that kills, a broken interpreter, or `close`.
    Runs of one session take turns.
    """

    def __init__(self, worker: WorkerProcess) -> None:
        self.id = secrets.token_urlsafe(18)
        self.turn = asyncio.Lock()
        self._worker = worker

    @property
    def alive(self) -> bool:
        return self._worker.is_alive

    @property
    def worker(self) -> WorkerProcess | None:
        """The worker while it lives."""
        return self._worker if self.alive else None

    def close(self) -> None:
        """End it; a run that is going on is lost."""
        self._worker.kill("the session was closed")
