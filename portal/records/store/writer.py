"""Access to the store of runs from the event loop: one thread writes, in group commits."""

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, Final, TypeVar

import anyio
import anyio.to_thread

from portal.records.store.records import DatabaseError, StoreError
from portal.records.store.run_tables import RunTables
from sandbox_runtime.fair_queue import Turns

Result = TypeVar("Result")

_OVERTAKEN_SECONDS: Final = 1.0
_LEAVE_SECONDS: Final = 2.0


@dataclass(slots=True)
class _Job:
    work: Callable[[RunTables], object]
    is_lasting: bool
    is_last: bool
    done: Callable[[Any, Exception | None], None]
    loop: asyncio.AbstractEventLoop


class RunStore:
    """Writes in a thread, so that no commit blocks the event loop. All writes that wait share one commit."""

    def __init__(self, tables: RunTables, reader: RunTables) -> None:
        self._tables = tables
        self._reader = reader
        self.seal = tables.seal
        self.holder = tables.holder
        """The id of this portal among the portals of the store."""
        reader.now = tables.now  # the writer's clock, which each heartbeat adjusts
        self._reading = Turns(1)
        self._last = -1
        self._changed = 0.0
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="store of runs", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """The address of this machine, as the database sees it."""
        return self._tables.database.address

    def now(self) -> float:
        """Seconds since 1970, by the clock of the store."""
        return self._reader.now()

    async def write(self, work: Callable[[RunTables], Result], *, is_lasting: bool = False) -> Result:
        """Do `work` in a transaction, and wait until that is committed; with `is_lasting`, until it is on disk.

        Cancelling the wait does not undo the work. Raises what `work` raises, and StoreError: it cannot be written.
        """
        future = asyncio.get_running_loop().create_future()
        self.submit(work, partial(resolve, future), is_lasting=is_lasting)
        result: Result = await future
        return result

    def submit(
        self,
        work: Callable[[RunTables], object],
        done: Callable[[Any, Exception | None], None],
        *,
        is_lasting: bool = False,
        is_last: bool = False,
    ) -> None:
        """Like `write`, without waiting: `done` is called in the event loop with the result, or with the error.

        `is_last` work runs just before the commit, so a lock shared by all portals is held briefly, and never while
        waiting for another lock.
        """
        self._jobs.put(_Job(work, is_lasting, is_last, done, asyncio.get_running_loop()))

    async def read(self, work: Callable[[RunTables], Result], owner: str = "") -> Result:
        """Read in a thread; owners take turns. Raises StoreError: it cannot be read."""
        async with self._reading.turn(owner):
            return await anyio.to_thread.run_sync(work, self._reader)

    async def is_changed(self) -> bool:
        """Whether anyone may have written since the last call. Raises StoreError: it cannot be read."""
        last, now = await self.read(RunTables.last_log), time.monotonic()
        if last != self._last:
            self._last, self._changed = last, now
        # Postgres may commit a log entry after one with a higher number.
        return now - self._changed <= _OVERTAKEN_SECONDS

    async def close(self) -> None:
        """Finish the pending writes, and close. Other portals resume the runs of this one."""
        with anyio.move_on_after(_LEAVE_SECONDS, shield=True), suppress(StoreError):
            await self.write(RunTables.leave)
        self._jobs.put(None)
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._thread.join)
            async with self._reading.turn(""):
                self._tables.close()
                self._reader.close()

    def _work(self) -> None:
        is_open = True
        while is_open:
            jobs = [self._jobs.get()]
            with suppress(queue.Empty):
                while True:
                    jobs.append(self._jobs.get_nowait())
            is_open = None not in jobs
            self._commit(sorted((job for job in jobs if job is not None), key=attrgetter("is_last")))

    def _commit(self, jobs: list[_Job]) -> None:
        outcomes: list[tuple[_Job, object, Exception | None]] = []
        try:
            is_lasting = any(job.is_lasting for job in jobs)
            if len(jobs) == 1:
                result = self._tables.database.commit(
                    partial(jobs[0].work, self._tables), is_lasting=is_lasting
                )
                outcomes = [(jobs[0], result, None)]
            else:
                outcomes = self._tables.database.commit(lambda: [*map(self._do, jobs)], is_lasting=is_lasting)
        except Exception as error:  # noqa: BLE001  # the waiting tasks raise it
            outcomes = [(job, None, error) for job in jobs]
        for job, result, failure in outcomes:
            # If the loop has ended, no one waits any longer.
            with suppress(RuntimeError):
                job.loop.call_soon_threadsafe(job.done, result, failure)

    def _do(self, job: _Job) -> tuple[_Job, object, Exception | None]:
        """Do one of the jobs of a transaction. Raises DatabaseError: then none of them is written."""
        try:
            with self._tables.database.part():
                return job, job.work(self._tables), None
        except Exception as error:
            if isinstance(error, DatabaseError) and error.spoils_all:
                raise
            return job, None, error


def resolve(future: "asyncio.Future[Any]", result: Any, error: Exception | None) -> None:
    """Set a future's result or error, unless its waiter was cancelled."""
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
