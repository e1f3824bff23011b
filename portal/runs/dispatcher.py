"""The dispatcher: resumes the runs that are due, those that other portals abandoned, and those whose start failed."""

import math
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import InitVar, dataclass, field
from functools import partial
from typing import Final, TypeAlias

import anyio
import structlog
from anyio.abc import TaskGroup

from portal.calls.channel import ClientChannel
from portal.records.store.records import DamagedRowError, FencedError, StoreError
from portal.records.store.run_tables import RunTables
from portal.records.store.tables import DAY_SECONDS
from portal.records.store.writer import RunStore
from portal.runs.answer import Answer
from portal.runs.components import Components
from portal.runs.leases import BEAT_SECONDS
from portal.runs.past import Past, Piece
from portal.runs.service import Runs
from sandbox_runtime.fair_queue import Turns

log = structlog.get_logger()

POLL_SECONDS: Final = 0.2
"""How often the portal checks whether another process, such as the command line, has written to the store."""

_OVERTAKEN_SECONDS: Final = 1.0
"""Postgres may commit a log entry so much later than one with a higher number."""

SWEEP_SECONDS: Final = 600.0
RETRY_SECONDS: Final = 1.0
MAX_RETRY_SECONDS: Final = 600.0
"""A run that could not be resumed is retried with exponential back-off, at most this far apart."""

MAX_DUE: Final = 100
"""Due runs that wait for a turn in memory; further ones wait in the store."""

_LATER: Final = ("sandbox_busy", "kernel_off")
"""Errors of this process, or of its manifest, and not of a run: it is tried again."""

GoOn: TypeAlias = Callable[[Piece, ClientChannel], Awaitable[Answer]]
"""Resumes a run that is held under the epoch of this segment: `Execution.segment`."""


def retry_seconds(failures: int) -> float:
    """How long to wait after so many failed attempts in a row."""
    return min(RETRY_SECONDS * 2.0 ** min(failures, 20), MAX_RETRY_SECONDS)


@dataclass(eq=False)
class Dispatcher:
    """Resumes the runs of one portal. `executions` gives what resumes the runs of each profile that is served now."""

    runs: Runs
    store: RunStore
    tasks: TaskGroup
    components: Components
    executions: Callable[[], Mapping[str | None, GoOn]]
    takes_all: bool
    """False: it resumes only runs that this portal held last."""
    workers: InitVar[int | None] = None
    _taken: set[str] = field(default_factory=set)
    """The runs that are being resumed, and those that are tried again soon."""
    _failures: Counter[str] = field(default_factory=Counter)
    """By run: how many attempts to resume it have failed."""
    _last_log: int = -1
    _changed_at: float = 0.0

    def __post_init__(self, workers: int | None) -> None:
        workers = workers or 8 * (os.cpu_count() or 1)
        # Half of the workers: if a thousand runs wake at once, the other half serves new callers. By owner: an owner
        # with less than an equal share does not wait for the runs of others.
        self._turns = Turns(max(1, workers // 2), 2 * workers)

    async def keep(self) -> None:
        """Resume the runs that other portals abandoned, and those that are due, until cancelled."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.runs.leases.keep)
                await self._dispatch()
        finally:
            with anyio.CancelScope(shield=True):
                await self.runs.write_ends()

    async def _dispatch(self) -> None:
        store, leases, swept_at = self.store, self.runs.leases, 0.0
        while True:
            news, now = self.runs.changes.news, store.now()
            try:
                await self.runs.write_ends()
                look = partial(_look, now=now, profiles=[*self.executions()], takes_all=self.takes_all)
                due, left, next_at = await store.read(look)
                leases.note_store(None)
                if now - swept_at > SWEEP_SECONDS or next_at <= now:  # a run has expired
                    swept_at = now
                    await self._sweep(now)
                for run, owner in (left | due).items():
                    if run not in self._taken and (run in due or run not in self.runs.live):
                        self._taken.add(run)
                        self.tasks.start_soon(self._resume, run, owner)
            except StoreError as error:
                leases.note_store(error)
                next_at = now + RETRY_SECONDS
            retry_at = now + RETRY_SECONDS if self.runs.unwritten else math.inf
            await self._until(min(next_at, retry_at, now + BEAT_SECONDS), news)

    async def _sweep(self, now: float) -> None:
        keep_seconds = self.runs.settings.keep_days * DAY_SECONDS
        for run in await self.store.write(partial(RunTables.sweep, now=now, keep_seconds=keep_seconds)):
            self.runs.fence(run)
        self.runs.changes.wake()
        needed = await self.store.read(RunTables.components)
        await self.components.delete_others(needed, await self.store.read(RunTables.has_replicas))

    async def _until(self, at: float, news: anyio.Event) -> None:
        """Wait until a time of the store's clock, or for news. Also notices when another process changes the store."""
        while not news.is_set() and (left := at - self.store.now()) > 0:
            with anyio.move_on_after(min(left, POLL_SECONDS)):
                await news.wait()
            try:
                if await self._is_changed():
                    await self._fence_lost()
                    self.runs.changes.wake_all()
            except StoreError as error:
                self.runs.leases.note_store(error)
                await anyio.sleep(RETRY_SECONDS)

    async def _is_changed(self) -> bool:
        """Whether anyone may have written since the last call. Raises StoreError: it cannot be read."""
        last, now = await self.store.read(RunTables.last_log), time.monotonic()
        if last != self._last_log:
            self._last_log, self._changed_at = last, now
        return now - self._changed_at <= _OVERTAKEN_SECONDS

    async def _fence_lost(self) -> None:
        """Stop the segments whose runs were ended or taken over: another process may have changed the store."""
        live = self.runs.live
        held = {run: journal for run, journal in live.items() if journal and journal.epoch}
        epochs = await self.store.read(partial(RunTables.epochs, runs=[*held])) if held else {}
        for run, journal in held.items():
            if epochs.get(run) != journal.epoch:
                journal.scope.cancel()

    async def _resume(self, run: str, owner: str) -> None:
        """Resume a run of this owner until it ends or is suspended again. If the store fails, try again."""
        live = self.runs.live
        try:
            while True:
                live[run] = None
                try:
                    async with self._turns.turn(owner):
                        return await self._go_on(run)
                except StoreError as error:
                    log.error("run_not_taken_up", run=run, error=str(error))
                live.pop(run, None)  # no client waits for it
                self.runs.changes.wake()
                # Its row may say that it runs here, so no look at the store would find it.
                self._failures[run] += 1
                await anyio.sleep(retry_seconds(self._failures[run]))
        except Exception as error:  # it must not end the portal
            log.exception("run_failed", run=run, error=type(error).__name__)
            await self.runs.end(run, "error")
        finally:
            live.pop(run, None)
            self._taken.discard(run)
            self.runs.changes.wake()

    async def _go_on(self, run: str) -> None:
        try:
            stored = await self.store.write(partial(RunTables.claim, run=run))
            epoch, (head, past) = stored.row.epoch, Past.of(stored)
        except FencedError:
            return
        except (DamagedRowError, ValueError):
            log.exception("journal_damaged", run=run)
            await self.runs.end(run, "stuck")
            return
        if head.record is None and not head.is_background:
            await self.runs.end(run, "error")  # a run of a session, whose variables are gone
            return
        log.info("run_taken_up", run=run, epoch=epoch)
        go_on = self.executions().get(head.profile)
        if go_on is not None:  # else a reload has removed its profile
            piece = Piece(run, head, past, epoch, stored.row.began)
            answer = await go_on(piece, self.runs.questions.channel(run))
            if answer.error is None or answer.error.code not in _LATER:
                self._failures.pop(run, None)
                return
        self._failures[run] += 1
        wake_at = self.store.now() + retry_seconds(self._failures[run])
        with suppress(FencedError):  # it was ended in between
            await self.store.write(partial(RunTables.postpone_run, run=run, epoch=epoch, wake_at=wake_at))


def _look(
    tables: RunTables, now: float, profiles: Sequence[str | None], takes_all: bool
) -> tuple[dict[str, str], dict[str, str], float]:
    """The due runs and the abandoned ones, each with its owner, and when the next run is due or expires."""
    left = tables.left(profiles) if takes_all else {}
    return tables.due(now, profiles, MAX_DUE, only_own=not takes_all), left, tables.next_due(now)
