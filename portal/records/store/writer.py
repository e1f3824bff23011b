"""Access to the store of runs from the event loop.

One thread writes, in group commits. While the disk is fast, the event loop makes brief commits itself: it takes longer
to wake the thread, and then the loop.
"""

import asyncio
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, Final, TypeAlias, TypeVar

import anyio
import anyio.to_thread

from portal.records.store.records import BusyError, DatabaseError, StoreError
from portal.records.store.run_tables import RunTables
from portal.records.store.sqlite import SqliteDatabase
from sandbox_runtime.fair_queue import Turns

Result = TypeVar("Result")

_LEAVE_SECONDS: Final = 2.0

FAST_SECONDS: Final = 0.002
"""A commit that takes as long is slow."""

_EVIDENCE: Final = 4
_MOST_IN_A_ROW: Final = 64
_MOST_WANTED: Final = 1_000


class Pace:
    """Decides whether the event loop may commit by itself. Without I/O; times are in seconds.

    A commit on the loop holds everything else as long as the disk takes. The worst is one slow commit: then the thread
    has to make fast ones first, 2 for each millisecond that the loop was held, at least 4 and at most 1,000. So a disk
    that stays slow never holds the loop again, and one that is slow at times for at most 0.5 ms per commit on average,
    unless it takes over 0.5 s. A slow commit of the thread proves nothing, because it may have waited for the
    interpreter's lock; 4 in a row do. The thread also makes every 65th commit, because only the thread checkpoints.
    """

    def __init__(self) -> None:
        self._wanted = _EVIDENCE
        """Fast commits that the thread has to make before the loop may."""
        self._threads = deque[float](maxlen=_EVIDENCE)
        self._in_a_row = 0

    @property
    def is_fast(self) -> bool:
        return self._wanted <= 0 and min(self._threads) < FAST_SECONDS

    def note_thread(self, seconds: float) -> None:
        """The thread has committed, and the disk took so long."""
        self._threads.append(seconds)
        self._wanted -= int(seconds < FAST_SECONDS)
        self._in_a_row = 0

    def note_loop(self, seconds: float) -> None:
        """The loop has committed, and was held for so long."""
        self._in_a_row += 1
        if seconds >= FAST_SECONDS:
            self._wanted = min(int(seconds / FAST_SECONDS * _EVIDENCE), _MOST_WANTED)
        elif self._in_a_row >= _MOST_IN_A_ROW:
            self._wanted = 1


@dataclass(slots=True)
class _Job:
    work: Callable[[RunTables], object]
    is_lasting: bool
    is_last: bool
    done: Callable[[Any, Exception | None], None]
    loop: asyncio.AbstractEventLoop


_Outcome: TypeAlias = tuple[_Job, object, Exception | None]


class RunStore:
    """Writes in a thread, where a slow commit delays no other work. All writes that wait share one commit."""

    def __init__(self, tables: RunTables, reader: RunTables, *, pace: Pace | None = None) -> None:
        self._tables = tables
        self._reader = reader
        self.seal = tables.seal
        self.holder = tables.holder
        """The id of this portal among the portals of the store."""
        self.now = reader.now = tables.now
        """Seconds since 1970, by the clock of the store. Each heartbeat of the writer adjusts it."""
        self._reading = Turns(1)
        self.written = {"loop": 0, "thread": 0}
        """Writes by who committed them."""
        self._local = tables.database if isinstance(tables.database, SqliteDatabase) else None
        self._pace = pace or Pace()
        self._unfinished = 0
        """Jobs that the thread got and the loop has not seen the end of. Only the loop counts."""
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="store of runs", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """The address of this machine, as the database sees it."""
        return self._tables.database.address

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
        is_brief: bool = False,
    ) -> None:
        """Like `write`, without waiting: `done` is called in the event loop with the result, or with the error.

        `is_last` work runs just before the commit, so a lock shared by all portals is held briefly, and never while
        waiting for another lock.

        `is_brief` work computes for much less than a millisecond. It may be committed on the event loop, and then
        `done` is called BEFORE this method returns. It is not if anything else is unfinished (so the order stays), the
        disk is slow (`Pace`), another process writes, or the database is Postgres.
        """
        job = _Job(work, is_lasting, is_last, done, asyncio.get_running_loop())
        if is_brief and self._local and not self._unfinished and self._pace.is_fast:
            began = time.perf_counter()
            ((_, result, error),) = self._commit([job], is_patient=False)
            if not isinstance(error, BusyError):
                self._pace.note_loop(time.perf_counter() - began)
                self.written["loop"] += 1
                done(result, error)
                return
        self._unfinished += 1
        self._jobs.put(job)

    async def read(self, work: Callable[[RunTables], Result], owner: str = "") -> Result:
        """Read in a thread; owners take turns. Raises StoreError: it cannot be read."""
        async with self._reading.turn(owner):
            return await anyio.to_thread.run_sync(work, self._reader)

    async def close(self) -> None:
        """Finish the pending writes, and close. Other portals resume the runs of this one."""
        with anyio.move_on_after(_LEAVE_SECONDS, shield=True), suppress(StoreError):
            await self.write(RunTables.leave)
        self._unfinished += 1  # so the loop commits nothing more; what a journal still tries again is dropped
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
            wanted = sorted((job for job in jobs if job is not None), key=attrgetter("is_last"))
            for outcome in self._commit(wanted):
                # If the loop has ended, no one waits any longer.
                with suppress(RuntimeError):
                    outcome[0].loop.call_soon_threadsafe(self._end, *outcome)

    def _commit(self, jobs: list[_Job], *, is_patient: bool = True) -> list[_Outcome]:
        """Do these jobs in one transaction. Only an impatient one is committed on the event loop."""
        is_lasting = any(job.is_lasting for job in jobs)
        commit = partial(self._tables.database.commit, is_lasting=is_lasting, is_patient=is_patient)
        try:
            if len(jobs) == 1:
                outcomes: list[_Outcome] = [(jobs[0], commit(partial(jobs[0].work, self._tables)), None)]
            else:
                outcomes = commit(lambda: [*map(self._do, jobs)])
        except Exception as error:  # noqa: BLE001  # the waiting tasks raise it
            return [(job, None, error) for job in jobs]
        # Only a commit that waits for the disk tells how fast it is. The loop looks when the thread has nothing to do.
        if self._local and is_lasting and is_patient:
            self._pace.note_thread(self._local.commit_seconds)
        return outcomes

    def _end(self, job: _Job, result: object, failure: Exception | None) -> None:
        self._unfinished -= 1
        self.written["thread"] += 1
        job.done(result, failure)

    def _do(self, job: _Job) -> _Outcome:
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
