"""The runs of one portal: starts them in the background, resumes abandoned ones, and wakes waiting ones."""

import math
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeAlias

import anyio
import structlog
from anyio.abc import TaskGroup

from manifests.json_value import Json
from manifests.manifest import Manifest
from portal.base.caller import Caller
from portal.base.errors import RunsError
from portal.base.requests import ExecuteCode
from portal.calls.channel import NO_CLIENT, ClientChannel
from portal.catalog.authority import Authorization
from portal.identity.approvers import Approvers, Decider
from portal.records.ledger import Ledger
from portal.records.store.records import OPEN, DamagedRowError, FencedError, RunState, StoredRun, StoreError
from portal.records.store.run_tables import RunTables
from portal.records.store.tables import DAY_SECONDS, LEASE_SECONDS
from portal.records.store.writer import RunStore
from portal.records.telemetry.instruments import current_trace
from portal.runs.answer import Answer
from portal.runs.components import Components
from portal.runs.decisions import answer_of, cancel_run, decide_call, find_run, find_seen, let_pass
from portal.runs.forms import MAX_CALLS, approval_form, decision_of
from portal.runs.journal import Journal, unwritten
from portal.runs.past import HEAD, Past, Piece, RunHead, new_row, new_run_id
from portal.runs.results import KeptResults
from sandbox_runtime.fair_queue import Turns
from sandbox_runtime.recording import Recording
from sandbox_runtime.result import RunError
from sandbox_runtime.run import MAX_SCRIPT_BYTES, too_long
from upstreams.redaction import Redaction

log = structlog.get_logger()

POLL_SECONDS: Final = 0.2
"""How often the portal checks whether another process, such as the command line, has written to the store."""

BEAT_SECONDS: Final = LEASE_SECONDS / 5
"""How often a portal sends its heartbeat, and checks those of others."""

_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A clock that keeps running while the machine is suspended, where the system has one."""

SWEEP_SECONDS: Final = 600.0
RETRY_SECONDS: Final = 1.0
MAX_RETRY_SECONDS: Final = 600.0
"""A run that could not be resumed is retried with exponential back-off, at most this far apart."""

MAX_DUE: Final = 100
"""Due runs that wait for a turn in memory; further ones wait in the store."""

GATHER_SECONDS: Final = 0.05
"""Calls of a run that begin to wait within this time share one form."""

UNATTENDED_SECONDS: Final = 0.1
"""How soon a waiting run is suspended for which no client waits."""


GoOn: TypeAlias = Callable[[str, RunHead, Past, int, ClientChannel], Awaitable[Answer]]
"""Resumes a run that is held under this epoch: `Execution.go_on`."""


class Runs:
    """The runs of one portal."""

    def __init__(
        self,
        manifest: Manifest,
        store: RunStore | None,
        components: Components,
        tasks: TaskGroup,
        *,
        takes_all: bool,
    ) -> None:
        self.settings = manifest.portal.runs
        self.store = store
        self.mask = Redaction(manifest.hidden)
        """Masks secrets in what is written."""
        self.results = KeptResults(store, self.mask)
        self.components = components
        url = manifest.portal.runs.public_url
        self.public_url = url and url.rstrip("/")
        """The base URL for delivering events, without a trailing slash; None if there is no such URL."""
        self.news = anyio.Event()
        """Set and replaced whenever something may have happened to a run. Take it before you read the store."""
        self.began = time.time()
        """When this process began, in seconds since 1970."""
        self._tasks = tasks
        self._takes_all = takes_all
        self._is_store_out = False
        self._live: dict[str, Journal] = {}
        self._waits: dict[str, dict[int, anyio.Event]] = {}
        self._channels: dict[str, ClientChannel] = {}
        """The clients that wait for a run, and can be asked while they do."""
        self._questions: dict[str, dict[int, anyio.CancelScope]] = {}
        self._unshown: dict[str, dict[int, Json]] = {}
        """By run: the calls that its next form will show."""
        self._unwritten: dict[str, tuple[RunState, bytes | None, int | None]] = {}
        """The ends of runs that could not be written yet."""
        self._driving: set[str] = set()
        self._failures: Counter[str] = Counter()
        """By run: how many attempts to resume it have failed."""
        self._retries: dict[str, float] = {}
        """By run: when it is retried, if its row does not say so."""
        workers = manifest.portal.server.workers or 8 * (os.cpu_count() or 1)
        # Half of the workers: if a thousand runs wake at once, the other half serves new callers. By owner: an owner
        # with less than an equal share does not wait for the runs of others.
        self._turns = Turns(max(1, workers // 2), 2 * workers)
        self._beaten = time.clock_gettime(_CLOCK)
        """When this portal's last successful heartbeat began, by _CLOCK."""
        self.replica_url = ""
        """The URL where other portals with this store reach this one; "" if they cannot."""
        self.replace(manifest, {})

    def replace(self, manifest: Manifest, executions: Mapping[str | None, GoOn]) -> None:
        """Switch to a reloaded manifest: mask and decide by it, and resume the runs of these profiles."""
        self.mask.replace(manifest.hidden)
        self.approvers = Approvers.of(manifest)
        self.executions = executions
        self.note_change()

    # For executions

    def journal(
        self, piece: Piece, recording: Recording | None, ledger: Ledger, authorization: Authorization
    ) -> Journal | None:
        """The journal for one segment of a run; None without a store."""
        if self.store is None:
            return None
        # No client waits for the answer of a run that the portal resumes.
        is_attended = not piece.epoch or piece.run_id in self._channels
        park_seconds = self.settings.park_after_seconds if is_attended else UNATTENDED_SECONDS
        return Journal(piece, self, self.store, park_seconds, recording, ledger, authorization)

    def opened(self, journal: Journal) -> None:
        """Note that a segment of a run begins in this process."""
        self._live[journal.run_id] = journal

    def closed(self, journal: Journal) -> None:
        if self._live.get(journal.run_id) is journal:  # the next segment may have begun
            del self._live[journal.run_id]
            self._waits.pop(journal.run_id, None)

    def register(self, run: str, seq: int) -> anyio.Event:
        """An event that is set when something about a waiting call may have been decided."""
        return self._waits.setdefault(run, {}).setdefault(seq, anyio.Event())

    async def start(self, profile: str | None, request: ExecuteCode, caller: Caller) -> Answer:
        """Run a script in the background. The answer says only that it runs, under which id."""
        if self.store is None:
            return Answer("refused", "", error=self.unavailable("A run in the background"))
        if (size := len(request.code.encode("utf-8", "surrogatepass"))) > MAX_SCRIPT_BYTES:
            return Answer("refused", "", error=too_long(size))
        head = RunHead(request, caller, profile, is_background=True, trace=current_trace(), began=time.time())
        row = new_row(new_run_id(), caller.run_owner, head, None, self.settings.max_age_days)
        row = replace(row, state="waiting", wake_at=0.0, title=self.mask(row.title))
        try:
            create = partial(RunTables.create, row=row, head=HEAD.dump_json(head), caller=caller.label)
            await self.store.write(create, is_lasting=True)
        except StoreError as error:
            log.error("run_not_journaled", run=row.id, error=str(error))
            return Answer("refused", "", error=unwritten(error, "The run did not start"))
        self.note_change()
        return Answer("running", row.id)

    def unavailable(self, what: str) -> RunError:
        """The error for something that needs the store, when there is no store."""
        return RunError(
            "runs_unavailable",
            f"{what} needs the store of runs, which cannot be used; the portal's log says why",
            hint="Tell the operator.",
        )

    async def end(
        self, run: str, state: RunState, answer: bytes | None = None, epoch: int | None = None
    ) -> None:
        """End a run that has a row, whoever holds it. With an epoch, only if no other portal has taken it over since.

        If that cannot be written now, it is retried.
        """
        if self.store is None:
            return
        masked = answer and self.mask(answer.decode()).encode()
        try:
            await self.store.write(
                partial(RunTables.finish, run=run, state=state, answer=masked, epoch=epoch)
            )
        except FencedError:
            return
        except StoreError as error:
            log.error("run_not_ended", run=run, error=str(error))
            self._unwritten[run] = state, answer, epoch
        else:
            self.note_change()

    async def ask(self, run: str, seq: int, asked: Json, channel: ClientChannel | None) -> None:
        """Ask the person at the client, if there is one, about a waiting call that no earlier approval stands for.

        Runs in the background. Calls of the same moment share one form. The answer counts if no one decided before.
        """
        if await self._stands(run, seq, asked) or channel is None or seq in self._questions.get(run, ()):
            return
        self._channels[run] = channel
        questions, unshown = self._questions.setdefault(run, {}), self._unshown.setdefault(run, {})
        scope = questions[seq] = anyio.CancelScope()
        unshown[seq] = asked

        async def work() -> None:
            with scope:
                await anyio.sleep(GATHER_SECONDS)
                left = dict(sorted(unshown.items()))
                unshown.clear()  # calls that come from now on get another form
                questions.update(dict.fromkeys(left, scope))  # until the client leaves
                while left:
                    shown = [each for each in left if "question" not in left[each]][:MAX_CALLS] or [*left][:1]
                    four_eyes = self.approvers.four_eyes
                    form = approval_form(run, [left.pop(each) for each in shown], four_eyes=four_eyes)
                    answer = await channel.ask_person(form)
                    # Read now: the answer to the next form may come from another person with another token.
                    decider = channel.decider
                    if (decision := decision_of(answer)) is not None:
                        for each in shown:
                            await self._settle(run, each, self.decide(run, each, decider, **decision))
                    shown += [each for each in left if await self._stands(run, each, left[each])]
                    for each in shown:
                        left.pop(each, None)
                        questions.pop(each, None)
                    self.note_change()

        self._tasks.start_soon(work)

    async def _stands(self, run: str, seq: int, asked: Json) -> bool:
        """Approve a call if an earlier approval stands for it. Returns whether it does."""
        approve = partial(let_pass, run=run, seq=seq, approvers=self.approvers)
        may = bool(asked.get("may_stand"))
        return may and await self._settle(run, seq, self.store_or_error().write(approve)) is True

    async def _settle(self, run: str, seq: int, decision: Awaitable[object]) -> object:
        """Return the result of a decision; None if it did not count."""
        try:
            return await decision
        except RunsError as error:  # another decision was faster, or the rules have changed
            log.info("decision_refused", run=run, call=seq, code=error.code)
        except StoreError as error:
            log.error("decision_not_written", run=run, error=str(error))
        finally:
            self.wake(run)
        return None

    async def final_answer(self, run: str, *, to_its_end: bool = False) -> Answer:
        """The answer for the client of a suspended run: the final answer if `to_its_end`, or while the client has an
        open question; else what the run waits for.
        """
        while True:
            # A question is removed once its decision is written, so it is looked up before the row is read.
            news, was_asked = self.news, bool(self._questions.get(run))
            row = await self.store_or_error().read(partial(find_run, run=run, owner=None))
            is_going_on = row.wake_at == 0 or run in self._driving or run in self._live or was_asked
            if row.state not in OPEN or not (to_its_end or self._questions.get(run) or is_going_on):
                return await self.answer(run, None)
            await news.wait()

    def leave(self, run: str) -> None:
        """Note that the client of a run no longer waits."""
        self._channels.pop(run, None)
        self._unshown.pop(run, {}).clear()
        for scope in self._questions.pop(run, {}).values():
            scope.cancel()

    # For people and their tools

    async def answer(self, run: str, owner: str | None) -> Answer:
        """The current answer of a run. Raises RunsError: the owner has no such run."""
        return answer_of(await self.load(run, owner))

    async def load(self, run: str, owner: str | None) -> StoredRun:
        """Everything about a run. Raises RunsError: the owner has no such run."""
        return await self.seen(run, Decider("", owner), Approvers())

    async def seen(self, run: str, decider: Decider, approvers: Approvers | None = None) -> StoredRun:
        """Everything about a run that the decider may see. Raises RunsError: there is no such run."""

        def load(tables: RunTables) -> StoredRun | None:
            return tables.load(find_seen(tables, run, decider, approvers or self.approvers).id)

        stored = await self.store_or_error().read(load, decider.owner or "")
        assert stored is not None
        return stored

    async def decide(self, run: str, seq: int | None, decider: Decider, **decision: Any) -> str:
        """Approve or deny a waiting call, as `decide_call` does. Returns the run's id. Raises RunsError."""
        decide = partial(decide_call, run=run, seq=seq, decider=decider, approvers=self.approvers, **decision)
        run = (await self.store_or_error().write(decide, is_lasting=True)).run
        self.wake(run)
        return run

    async def cancel(self, run: str, owner: str | None) -> str:
        """End a run in any state. Returns its id. Raises RunsError."""
        run = await self.store_or_error().write(partial(cancel_run, run=run, owner=owner), is_lasting=True)
        self._fence(run)
        self.note_change()
        return run

    async def deliver(self, token: str, payload: bytes) -> bool | None:
        """Deliver an event. Returns whether it was the first delivery; None for an unknown token."""
        deliver = partial(RunTables.deliver, token=token, payload=payload)
        found = await self.store_or_error().write(deliver, is_lasting=True)
        if found is None:
            return None
        self.wake(found[0])
        return found[1]

    def store_or_error(self) -> RunStore:
        """The store. Raises RunsError: the portal has no store."""
        if self.store is None:
            error = self.unavailable("This")
            raise RunsError(error.code, error.message, error.hint)
        return self.store

    def wake(self, run: str) -> None:
        """Note that something about a run has been decided."""
        for changed in self._waits.pop(run, {}).values():
            changed.set()
        self.note_change()

    # The dispatcher

    @property
    def is_holding(self) -> bool:
        """Whether no other portal can have taken over the runs of this one."""
        return self.store is None or time.clock_gettime(_CLOCK) - self._beaten < LEASE_SECONDS

    async def keep(self) -> None:
        """Resume the runs that other portals abandoned, and those that are due, until cancelled."""
        if self.store is None:
            return
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._keep_beating)
                await self._dispatch(self.store)
        finally:
            with anyio.CancelScope(shield=True):
                await self._write_ends()

    async def reached_at(self, url: str) -> None:
        """Publish this portal's URL before a client gets a session, whose requests other portals pass on to it."""
        self.replica_url = url
        if self.store is not None:
            with suppress(StoreError):  # the next heartbeat publishes it, too
                await self._beat(RunTables.beat)

    async def hold(self, run: str, epoch: int) -> None:
        """Renew the lease on a run after missed heartbeats. Raises FencedError: another portal took it; StoreError."""
        while not self.is_holding:
            await self._beat(partial(RunTables.renew, run=run, epoch=epoch))

    async def _beat(self, beat: Callable[..., None]) -> None:
        # Taken before the write, so that this portal counts its lease as over before others do.
        began = time.clock_gettime(_CLOCK)
        await self.store_or_error().write(partial(beat, url=self.replica_url))
        self._beaten = began

    async def _keep_beating(self) -> None:
        while True:
            try:
                await self._beat(RunTables.beat)
                self._note_store(None)
            except StoreError as error:
                self._note_store(error)
            await anyio.sleep(BEAT_SECONDS)

    def _note_store(self, error: StoreError | None) -> None:
        """Log that the store cannot be used, once per outage."""
        if error is not None and not self._is_store_out:
            log.error("store_out", error=str(error))
        elif error is None and self._is_store_out:
            log.info("store_back")
        self._is_store_out = error is not None

    async def _write_ends(self) -> None:
        for run, ended in [*self._unwritten.items()]:
            del self._unwritten[run]
            await self.end(run, *ended)

    async def _dispatch(self, store: RunStore) -> None:
        swept_at = 0.0
        while True:
            news, now, next_at = self.news, store.now(), math.inf
            try:
                await self._write_ends()
                profiles = [*self.executions]
                look = partial(_look, now=now, profiles=profiles, takes_all=self._takes_all)
                due, left, next_at = await store.read(look)
                self._note_store(None)
                if now - swept_at > SWEEP_SECONDS or next_at <= now:  # a run has expired
                    swept_at = now
                    await self._sweep(store, now)
                again = [run for run, at in self._retries.items() if at <= now]
                for run in self._live:
                    left.pop(run, None)
                for run, owner in {**dict.fromkeys(again, ""), **left, **due}.items():
                    if self._retries.get(run, 0) <= now:
                        self._retries.pop(run, None)
                        if run not in self._driving:
                            self._driving.add(run)
                            self._tasks.start_soon(self._drive, run, owner)
            except StoreError as error:
                self._note_store(error)
                next_at = now + RETRY_SECONDS
            retry_at = now + RETRY_SECONDS if self._unwritten else math.inf
            await self._until(
                store, min(next_at, retry_at, *self._retries.values(), now + BEAT_SECONDS), news
            )

    async def _sweep(self, store: RunStore, now: float) -> None:
        keep_seconds = self.settings.keep_days * DAY_SECONDS
        for run in await store.write(partial(RunTables.sweep, now=now, keep_seconds=keep_seconds)):
            self._fence(run)
        self.note_change()
        needed = await store.read(RunTables.components)
        await self.components.delete_others(needed, await store.read(RunTables.has_replicas))

    async def _until(self, store: RunStore, at: float, news: anyio.Event) -> None:
        """Wait until a time of the store's clock, or for news. Also notices when another process changes the store."""
        while not news.is_set() and (left := at - store.now()) > 0:
            with anyio.move_on_after(min(left, POLL_SECONDS)):
                await news.wait()
            try:
                if await store.is_changed():
                    await self._look_again()
            except StoreError as error:
                self._note_store(error)
                await anyio.sleep(RETRY_SECONDS)

    async def _look_again(self) -> None:
        """Wake what waits, and fence live runs that were taken over: another process may have changed the store."""
        assert self.store is not None
        held = {run: journal.epoch for run, journal in self._live.items() if journal.epoch}
        if held:
            epochs = await self.store.read(partial(RunTables.epochs, runs=[*held]))
            for run, epoch in held.items():
                journal = self._live.get(run)
                if journal is not None and journal.epoch == epoch and epochs.get(run) != epoch:
                    self._fence(run)
        for run in [*self._waits]:
            self.wake(run)
        self.note_change()

    def _fence(self, run: str) -> None:
        journal = self._live.get(run)
        if journal is not None:
            journal.fence()

    async def _drive(self, run: str, owner: str) -> None:
        """Resume a run of this owner until it ends or is suspended again."""
        try:
            async with self._turns.turn(owner):
                await self._go_on(run)
        except StoreError as error:
            log.error("run_not_taken_up", run=run, error=str(error))
            self._retries[run] = self._retry_at(run)
        except Exception as error:  # it must not end the portal
            log.exception("run_failed", run=run, error=type(error).__name__)
            await self.end(run, "error")
        finally:
            self._driving.discard(run)
            self.note_change()

    async def _go_on(self, run: str) -> None:
        assert self.store is not None
        try:
            stored = await self.store.write(partial(RunTables.claim, run=run))
            head, past = Past.of(stored)
        except FencedError:
            return
        except (DamagedRowError, ValueError):
            log.exception("journal_damaged", run=run)
            await self.end(run, "stuck")
            return
        if head.record is None and not head.is_background:
            await self.end(run, "error")  # a run of a session, whose variables are gone
            return
        log.info("run_taken_up", run=run, epoch=stored.row.epoch)
        go_on = self.executions.get(head.profile)
        channel = self._channels.get(run, NO_CLIENT)
        if go_on is not None:  # else a reload has removed its profile
            answer = await go_on(run, head, past, stored.row.epoch, channel)
            if answer.error is None or answer.error.code != "sandbox_busy":
                self._failures.pop(run, None)
                return
        postpone = partial(
            RunTables.postpone_run, run=run, epoch=stored.row.epoch, wake_at=self._retry_at(run)
        )
        with suppress(FencedError):  # it was ended in between
            await self.store.write(postpone)

    def _retry_at(self, run: str) -> float:
        """Count a failed attempt to resume a run, and return when it is retried."""
        self._failures[run] += 1
        return self.store_or_error().now() + min(
            RETRY_SECONDS * 2.0 ** min(self._failures[run], 20), MAX_RETRY_SECONDS
        )

    def note_change(self) -> None:
        """Note that something may have happened to a run."""
        self.news.set()
        self.news = anyio.Event()


def _look(
    tables: RunTables, now: float, profiles: Sequence[str | None], takes_all: bool
) -> tuple[dict[str, str], dict[str, str], float]:
    """The due runs and the abandoned ones, each with its owner, and when the next run is due or expires."""
    left = tables.left(profiles) if takes_all else {}
    return tables.due(now, profiles, MAX_DUE, only_own=not takes_all), left, tables.next_due(now)
