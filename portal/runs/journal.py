"""The journal of one run: what it did, written before it can have an effect, so that another process can resume it.

A segment of a run lasts from start or resume until it ends or is suspended ("parked"). A `Past` has earlier segments.

Rule 1: before a call that may not be repeated is sent, one transaction writes that intent, and every event before it. A
run that makes no such call, and never waits for long, writes nothing.
Rule 2: outcomes are written before the run's answer. Until then, no call waits for them to be written.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Protocol

import anyio
import structlog

from manifests.json_value import Json
from manifests.portal_manifest import RunsSettings
from portal.catalog.authority import Authorization
from portal.records.ledger import CallState, Entry, Ledger
from portal.records.store import records
from portal.records.store.run_tables import RunTables
from portal.records.store.writer import RunStore, resolve
from portal.runs.answer import Answer
from portal.runs.past import (
    HEAD,
    NO_PAST,
    EntryRow,
    Past,
    RunHead,
    dump_chunk,
    dump_outcome,
    is_brief,
    load_outcome,
    new_row,
)
from sandbox_runtime.call_port import CallError, Outcome
from sandbox_runtime.guest_json import encode
from sandbox_runtime.recording import Event, Record, Recording
from sandbox_runtime.result import RunError
from sandbox_runtime.worker_process import cpu_seconds
from upstreams.redaction import Redaction

log = structlog.get_logger()

OUTCOME_SECONDS: Final = 0.01
"""Outcomes are written together after this time. If the portal is killed before, they are lost."""

RETRY_SECONDS: Final = 1.0
"""Outcomes that could not be written are retried after this time."""

IDLE_SHARE: Final = 0.5
"""A worker that used less CPU than this share of the time is idle, so its run may be suspended."""


class Home(Protocol):
    """The part of `Runs` that a journal needs."""

    settings: RunsSettings
    mask: Redaction
    began: float

    @property
    def is_holding(self) -> bool: ...

    async def hold(self, run: str, epoch: int) -> None: ...

    def register(self, run: str, seq: int) -> anyio.Event: ...

    def note_change(self) -> None: ...


@dataclass(eq=False)
class Journal:
    """Journals one segment of a run: from start or resume until it ends or is suspended.

    `epoch` is 0 until the run has a row in the store. `scope` contains the segment; suspending the run cancels it.
    """

    run_id: str
    runs: Home
    store: RunStore
    head: RunHead
    park_seconds: float
    recording: Recording | None
    """None for a run of a session, which cannot be resumed elsewhere. It may wait, but is never suspended."""
    ledger: Ledger
    authorization: Authorization
    past: Past = NO_PAST
    epoch: int = 0
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    is_parked: bool = False
    _chunks: int = 0
    """The number of chunks of the journal that are written."""
    _written_events: int = 0
    _head_written: RunHead | None = None
    _started: Record | None = None
    _touched: set[int] = field(default_factory=set)
    _calls: list[records.CallRow] = field(default_factory=list)
    _outcomes: list[tuple[int, CallState, Outcome]] = field(default_factory=list)
    _with_row: set[int] = field(default_factory=set)
    """The calls that have a row in the store."""
    _unparked: anyio.Event = field(default_factory=anyio.Event)
    _in_flight: set[int] = field(default_factory=set)
    _waiting: set[int] = field(default_factory=set)
    _changed_at: float = 0.0
    _is_lasting: bool = False
    """Whether the next transaction has to be on the disk when it returns."""
    _answer: Answer | None = None
    """The run's answer, if the next transaction is the last."""
    _waiters: "list[asyncio.Future[None]]" = field(default_factory=list)
    """Those who wait for the next transaction."""
    _is_writing: bool = False
    _is_next_due: bool = False
    _timer: asyncio.TimerHandle | None = None
    _parking: "asyncio.Task[bool] | None" = None

    def __post_init__(self) -> None:
        self._with_row |= self.past.calls.keys()
        self._chunks = self.past.chunks
        if self.past.record is not None:
            self._written_events = len(self.past.record.events)

    # Called by the broker

    def opened(self, entry: Entry) -> None:
        """Note that the script made a call. In a replay, its entry is restored from the journal."""
        self._touched.add(entry.seq)
        known = self.past.entries.get(entry.seq)
        if known is None or entry.seq not in self.past.settled:
            return
        known.restore(entry)
        # The rates of this process already count the calls that it made itself.
        age_seconds = time.time() - known.at if known.at < self.runs.began else None
        self.authorization.prime(entry.seq, known.budgets, entry.sources, age_seconds)

    def known_outcome(self, entry: Entry) -> Outcome | None:
        """The outcome of a call that an earlier segment made, and whose answer the script did not get yet.

        The error `outcome_unknown` if the call may have happened and may not be repeated. None: make the call (again).
        """
        row = self.past.calls.get(entry.seq)
        if row is not None and row.outcome is not None:
            state, outcome = load_outcome(row.outcome)
            entry.end(state, outcome.error)
            return outcome
        if row is not None and row.state == "intended":
            error = CallError(
                "outcome_unknown",
                f"{row.function} was called before the portal was interrupted, and its outcome is unknown",
                "Check its effect before calling again.",
            )
            entry.end("unknown", error)
            return Outcome(error=error)
        return None

    def note_notices(self, notices: Sequence[str]) -> None:
        """Keep the notices of parsing and checking the script for its answer, which a later segment may give."""
        if notices:
            self.head = replace(self.head, notices=tuple(notices))

    def note_sources(self, sources: Set[str]) -> None:
        """Keep the sources of what the run read from shared files. Calls record their own sources."""
        if not sources <= {*self.head.sources}:
            self.head = replace(self.head, sources=(*sorted({*self.head.sources, *sources}),))

    async def call(self, entry: Entry, work: Callable[[], Awaitable[Outcome]]) -> Outcome:
        """Do the work of a call: decide, wait, send. Its outcome is written soon, if it may not be repeated."""
        self._in_flight.add(entry.seq)
        self._changed_at = time.monotonic()
        try:
            outcome = await work()
            if entry.seq in self._with_row:
                self._note_outcome(entry, outcome)
            return outcome
        finally:
            self._touched.add(entry.seq)
            self._in_flight.discard(entry.seq)
            self._changed_at = time.monotonic()

    async def intend(self, seq: int, function: str) -> CallError | None:
        """Write that a call which may not be repeated is about to be sent. Returns an error if it must not be sent.

        Raises FencedError: another portal has taken the run over, or it was ended.
        """
        if self.recording is None:
            return None
        error = await self._add(records.CallRow(self.run_id, seq, "call", function, "intended"))
        # If this process was stopped for a while (SIGSTOP, a suspended machine), its lease may have run out, and
        # another portal would report the call as unknown while this one sends it.
        if error is None and not self.runs.is_holding:
            try:
                await self.runs.hold(self.run_id, self.epoch)
            except records.StoreError as failure:
                return self._not_called(function, failure)
        return error

    async def wait(
        self,
        seq: int,
        kind: records.CallKind,
        function: str,
        *,
        digest: str = "",
        arguments_sha256: str = "",
        name: str = "",
        due_at: float | None = None,
        shown: Json = None,
        ask: Callable[[], Awaitable[None]] | None = None,
    ) -> records.CallRow | CallError:
        """Wait until a call is decided, delivered or due; suspend the run if that takes long. Returns the call's row.

        `ask` is called when the row is written, so that the call can be decided.

        Raises FencedError: another portal has taken the run over, or it was ended.
        """
        row = self.past.calls.get(seq)
        if row is not None:
            row = await self._row_now(seq)  # it may have been decided since the run was resumed
            due_at = row.due_at
        else:
            text = encode(shown)
            row = records.CallRow(
                self.run_id, seq, kind, function, "waiting", digest, arguments_sha256, name, due_at, "", text
            )
            if (error := await self._add(row)) is not None:
                return error
        if ask is not None and row.state == "waiting":
            await ask()
        self._waiting.add(seq)
        try:
            while row.state == "waiting":
                # Wake-ups that decide nothing must not postpone the suspension, so `park_at` is set outside their loop.
                computed, park_at = self._cpu_seconds(), time.monotonic() + self.park_seconds
                while row.state == "waiting" and (left := park_at - time.monotonic()) > 0:
                    # Register, then read: a decision in between sets the event, and one may precede the call's row.
                    changed = self.runs.register(self.run_id, seq)
                    row = await self._row_now(seq)
                    if row.state == "waiting":
                        await self._wait_for(changed, seq, due_at, left)
                if row.state == "waiting" and self._may_park(computed):
                    await self.park()
        except asyncio.CancelledError:
            if not (self.is_parked or self.scope.cancel_called):  # the script cancelled the wait
                given_up = CallError("cancelled", "the script no longer waits for it", "Nothing was sent.")
                self._note_outcome(self.ledger[seq], Outcome(error=given_up))
            raise
        finally:
            self._waiting.discard(seq)
        return row

    async def _row_now(self, seq: int) -> records.CallRow:
        """Read the call's row. While the store cannot be read, keep trying."""
        while True:
            try:
                found = await self.store.read(partial(RunTables.call, run=self.run_id, seq=seq))
                break
            except records.DatabaseError as error:
                log.error("runs_not_read", run=self.run_id, error=str(error))
                await anyio.sleep(RETRY_SECONDS)
        if found is None:
            raise records.FencedError(self.run_id)
        return found

    async def _wait_for(self, changed: anyio.Event, seq: int, due_at: float | None, seconds: float) -> None:
        """Wait for a change, or until the call is due, for at most `seconds`."""
        if due_at is not None:
            seconds = min(seconds, due_at - self.store.now())
        with anyio.move_on_after(max(seconds, 0)):
            await changed.wait()
        if due_at is not None and due_at <= self.store.now():
            try:
                await self.store.write(partial(RunTables.expire_call, run=self.run_id, seq=seq))
            except records.DatabaseError as error:
                log.error("call_not_due", run=self.run_id, error=str(error))  # the loop in `wait` tries again

    # Called by the execution

    async def begin(self) -> None:
        """Create the run's row, if it is missing. Raises StoreError: it cannot be written."""
        if not self.epoch:
            await self._flush(is_lasting=True)

    async def before_change(self) -> None:
        """Before the run changes a file, write what it did, if it has a row. Raises StoreError, FencedError."""
        while self.is_parked:  # the run continues elsewhere, unless the suspension cannot be written
            await self._unparked.wait()
        if self.epoch:
            await self._flush()

    async def park(self) -> None:
        """Suspend the run: write everything, free the worker, and wait in the store. Returns only if that fails.

        It is shielded: the suspension completes even if the script cancels its wait in between.
        """
        self.is_parked = True
        self._parking = asyncio.get_running_loop().create_task(self._park([*self._waiting]))
        if await asyncio.shield(self._parking):
            await anyio.sleep_forever()

    async def _park(self, waiting: Sequence[int]) -> bool:
        try:
            await self._flush(is_lasting=True)
            park = partial(RunTables.park, run=self.run_id, epoch=self.epoch, waiting=waiting)
            await self.store.write(park, is_lasting=True)
        except records.StoreError as error:
            self.is_parked = False
            self._unparked.set()
            self._unparked = anyio.Event()
            log.error("run_not_parked", run=self.run_id, error=str(error))
            return False
        except records.FencedError:
            self.fence()
        else:
            self.runs.note_change()
        self.scope.cancel()
        return True

    async def finish(self, answer: Answer) -> None:
        """Write the answer of a run that has a row. Raises FencedError, StoreError."""
        if not self.epoch:
            await self._quiet()  # the transaction that creates its row may be under way
        if not self.epoch or (answer.error is not None and answer.error.code == "sandbox_busy"):
            return  # nothing is durable, or the run is tried again
        await self._flush(answer=answer)

    async def flushed(self) -> None:
        """Write the pending outcomes, and wait for transactions under way, whose callers may be gone."""
        if self._outcomes:
            self._write_soon()
        await self._quiet()

    async def _quiet(self) -> None:
        # The store does jobs in order, so an empty one waits for all that were submitted before it.
        while self._is_writing or self._is_next_due:
            with suppress(records.StoreError):
                await self.store.write(lambda tables: None)

    # Writing

    async def _add(self, row: records.CallRow) -> CallError | None:
        while self.is_parked:  # the run continues elsewhere, unless the suspension cannot be written
            await self._unparked.wait()
        if self.recording is not None and self.recording.is_too_large:
            return CallError(
                "journal_limit",
                f"{row.function} was not called: the record of this run is over its limit of 32 MiB",
                "Nothing was sent. Split the work into several scripts, or read less.",
            )
        self._calls.append(row)
        try:
            await self._flush(is_lasting=True)
        except records.StoreError as error:
            return self._not_called(row.function, error)
        self._with_row.add(row.seq)
        return None

    def _not_called(self, function: str, error: records.StoreError) -> CallError:
        log.error("run_not_journaled", run=self.run_id, error=str(error))
        failure = unwritten(error, f"{function} was not called")
        return CallError(failure.code, failure.message, failure.hint)

    def _note_outcome(self, entry: Entry, outcome: Outcome) -> None:
        self._outcomes.append((entry.seq, entry.state, outcome))
        # Not at once: more outcomes may come within this time, or the run's answer, and share the transaction.
        self._write_outcomes_in(OUTCOME_SECONDS)

    def _write_outcomes_in(self, seconds: float) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._write_outcomes)

    def _write_outcomes(self) -> None:
        self._timer = None
        if self._outcomes:
            self._write_soon()

    def fence(self) -> None:
        """Stop at once: another portal holds the run, or it was ended."""
        self.scope.cancel()

    async def _flush(self, *, is_lasting: bool = False, answer: Answer | None = None) -> None:
        """Write everything that was noted before this call. Concurrent callers share one transaction.

        The write continues if its caller is cancelled: the counters here must match what is written.
        """
        self._is_lasting |= is_lasting
        self._answer = answer or self._answer
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._write_soon()
        await waiter

    def _write_soon(self) -> None:
        """Start a transaction when the one under way has ended. Calls of the same moment, as of `gather`, join it."""
        if not self._is_next_due:
            self._is_next_due = True
            if not self._is_writing:
                asyncio.get_running_loop().call_soon(self._write_next)

    def _write_next(self) -> None:
        self._is_next_due = False
        if not (self._waiters or self._outcomes):
            return  # the previous transaction wrote everything
        self._is_writing = True
        waiters, self._waiters = self._waiters, []
        calls, self._calls = self._calls, []
        touched, self._touched = self._touched, set()
        answer, self._answer = self._answer, None
        # An intent has to survive a loss of power, whichever caller's transaction it joins.
        is_lasting, self._is_lasting = self._is_lasting or bool(calls), False
        outcomes = [*self._outcomes]  # stay queued until `done`, so that a failed write retries them
        events = self._new_events(is_ended=answer is not None)
        head = self._head_now()

        is_chunk = bool(events or touched)

        def done(_: object, error: Exception | None) -> None:
            self._is_writing = False
            if error is None:
                self.epoch = self.epoch or 1
                self._chunks += is_chunk
                self._written_events += len(events)
                self._head_written = head
                del self._outcomes[: len(outcomes)]
            else:
                self._touched |= touched
                if isinstance(error, records.FencedError):
                    self.fence()
                else:
                    self._write_outcomes_in(RETRY_SECONDS)
                    if not waiters:
                        log.error("run_not_journaled", run=self.run_id, error=str(error))
            for waiter in waiters:
                resolve(waiter, None, error)
            if self._is_next_due:
                self._write_next()

        days = self.runs.settings.max_age_days
        try:
            write = partial(
                self._write,
                row=None if self.epoch else new_row(self.run_id, head.caller.run_owner, head, None, days),
                head=None if head is self._head_written else head,
                events=events,
                entries=tuple(self._entry_row(seq) for seq in sorted(touched)),
                calls=calls,
                outcomes=outcomes,
                answer=answer,
            )
        except Exception as error:  # noqa: BLE001  # the waiters raise it
            done(None, error)
        else:
            # A run has one answer, which may be large: the thread writes it.
            texts = [*(event.text for event in events), head.request.code if not self.epoch else ""]
            brief = answer is None and is_brief(texts, [outcome for _, _, outcome in outcomes])
            self.store.submit(write, done, is_lasting=is_lasting, is_brief=brief)

    def _new_events(self, *, is_ended: bool) -> tuple[Event, ...]:
        """The events that are not written. The run's ending is written only with its answer."""
        if self.recording is None:
            return ()
        events = self.recording.events[self._written_events :]
        if events and events[-1].is_ending and not is_ended:
            del events[-1]
        return tuple(events)

    def _write(
        self,
        tables: RunTables,
        *,
        row: records.RunRow | None,
        head: RunHead | None,
        events: tuple[Event, ...],
        entries: tuple[EntryRow, ...],
        calls: list[records.CallRow],
        outcomes: list[tuple[int, CallState, Outcome]],
        answer: Answer | None,
    ) -> None:
        """Serialize and write, in the store's thread: serializing would block the event loop."""
        text = None
        if head is not None:
            record = head.record and head.record.without_environment()
            text = HEAD.dump_json(replace(head, record=record))
        if row is not None:
            assert text is not None
            tables.create(replace(row, title=self.runs.mask(row.title)), text, self.head.caller.label)
            text = None
        masked = tuple(event.masked(self.runs.mask) for event in events)
        chunk = dump_chunk(masked, entries) if events or entries else b""
        calls = [replace(call, shown=self._masked(call.shown)) if call.shown else call for call in calls]
        epoch = self.epoch or 1
        component = head.record.origin.component if head is not None and head.record is not None else ""
        tables.advance(
            self.run_id,
            epoch,
            chunk=chunk,
            n=self._chunks + 1,
            head=text,
            component=component,
            calls=calls,
            outcomes=[(seq, self._masked(dump_outcome(state, outcome))) for seq, state, outcome in outcomes],
        )
        if answer is not None:
            tables.finish(self.run_id, answer.status, self._masked(answer.dump()), epoch)

    def _masked(self, text: bytes) -> bytes:
        return self.runs.mask(text.decode()).encode()

    def _head_now(self) -> RunHead:
        started = None if self.recording is None else self.recording.head
        if started is not self._started:
            self._started = started
            self.head = replace(self.head, record=started)
        return self.head

    def _entry_row(self, seq: int) -> EntryRow:
        entry, now = self.ledger[seq], time.monotonic()
        budgets = tuple(budget.keys for budget in self.authorization.counted.get(seq, ()))
        ms = ((entry.ended or now) - entry.began) * 1000
        at, source = time.time() - (now - entry.began), "\n".join(sorted(entry.sources))
        made = entry.function, entry.state, entry.request, round(ms, 1), at, entry.error
        return EntryRow(seq, *made, budgets, source, entry.answered_by, entry.arguments)

    def _may_park(self, before_seconds: float) -> bool:
        """Whether for `park_seconds` only waiting calls were under way, and the script did not compute."""
        quiet_seconds = time.monotonic() - self._changed_at
        is_waiting = self._in_flight == self._waiting and quiet_seconds >= self.park_seconds * 0.99
        is_changing_files = self.ledger.files is not None and self.ledger.files.is_busy
        if self.recording is None or self.recording.is_too_large or self.is_parked:
            return False
        is_idle = self._cpu_seconds() - before_seconds < IDLE_SHARE * self.park_seconds
        return is_waiting and not is_changing_files and is_idle

    def _cpu_seconds(self) -> float:
        """The CPU time of the worker; 0 where the system does not report it."""
        return cpu_seconds(None if self.recording is None else self.recording.worker_pid) or 0.0


def unwritten(error: records.StoreError, what: str) -> RunError:
    """The error for something that was not done, because it cannot be journaled first."""
    if isinstance(error, records.OwnLimitError):
        return RunError(error.code, f"{what}: {error}", hint=error.hint)
    if isinstance(error, records.DatabaseError) and error.is_in_doubt:
        what, hint = f"{what}, as far as is known", "Check whether it was done before you try again."
        return RunError("journal_failed", f"{what}: the connection to the store of runs was lost", hint=hint)
    hint = "Nothing was done. Until the store can be written, only calls that may be repeated are made."
    return RunError("journal_failed", f"{what}: it cannot be written to the store of runs", hint=hint)
