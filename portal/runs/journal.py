"""The journal of one run: what it did, written before it can have an effect, so that another process can resume it.

A segment of a run lasts from start or resume until it ends or is suspended ("parked"). A `Past` has earlier segments.

Rule 1: before a call that may not be repeated is sent, one transaction writes that intent, and every event before it. A
run that makes no such call, and never waits for long, writes nothing.
Rule 2: outcomes are written before the run's answer. Until then, no call waits for them to be written.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Protocol, TypeVar

import anyio
import structlog

from manifests.portal_manifest import RunsSettings
from portal.base.errors import RunsError
from portal.calls.run import CallNotices
from portal.catalog.authority import Authorization
from portal.records.ledger import Entry
from portal.records.store import records
from portal.records.store.run_tables import RunTables
from portal.records.store.writer import RunStore
from portal.runs.answer import Answer
from portal.runs.changes import Changes
from portal.runs.leases import Leases
from portal.runs.past import HEAD, Piece, RunHead, dump_chunk, dump_outcome, load_outcome, new_row
from portal.runs.segment_state import BRIEF_BYTES, Activity, Rows, SegmentState
from sandbox_runtime.call_port import GIVEN_UP, CallError, Outcome
from upstreams.redaction import Redaction

log = structlog.get_logger()

OUTCOME_SECONDS: Final = 0.01
"""Outcomes are written together after this time. If the portal is killed before, they are lost."""

RETRY_SECONDS: Final = 1.0
"""Outcomes that could not be written are retried after this time."""

Found = TypeVar("Found")


class Home(Protocol):
    """The part of `Runs` that a journal needs."""

    settings: RunsSettings
    mask: Redaction
    leases: Leases
    changes: Changes


@dataclass(eq=False)
class Journal:
    """Journals one segment of a run: from start or resume until it ends or is suspended.

    A run of a session has no recording, so it cannot be resumed elsewhere. It may wait, but is never suspended.
    """

    state: SegmentState
    runs: Home
    store: RunStore
    park_seconds: float
    authorization: Authorization
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    """Contains the segment; suspending the run cancels it."""
    _activity: Activity = field(default_factory=Activity)
    _undecided: set[int] = field(default_factory=set)
    """The calls that still wait, by `seq`."""
    _lapses: dict[int, int] = field(default_factory=dict)
    """Of the calls that may be sent once only: `Leases.lapses` when their intents were written."""
    _suspending: asyncio.Task[bool] | None = None

    def __post_init__(self) -> None:
        self._writer = JournalWriter(self.state, self.store, self.runs, self.scope)
        self.notices = CallNotices(self.head.call_notices)

    @property
    def piece(self) -> Piece:
        return self.state.piece

    @property
    def epoch(self) -> int:
        """0 until the run has a row in the store."""
        return self.state.written.epoch

    @property
    def head(self) -> RunHead:
        return self.state.head

    # Called by the steps of a call

    def opened(self, entry: Entry) -> None:
        """Note that the script made a call. In a replay, its entry is restored from the journal."""
        self.state.touched.add(entry.seq)
        known = self.piece.past.entries.get(entry.seq)
        if known is None:
            return
        entry.at = known.at
        if entry.seq not in self.piece.past.settled:
            return
        known.restore(entry)
        self.authorization.prime(entry.seq, known.budgets, entry.sources)

    def known_outcome(self, entry: Entry) -> Outcome | None:
        """The outcome of a call that an earlier segment made, and whose answer the script did not get yet.

        The error `outcome_unknown` if the call may have happened and may not be repeated. None: make the call (again).
        """
        row = self.piece.past.calls.get(entry.seq)
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

    async def is_decided(self, seq: int, function: str) -> bool:
        """Whether a person has decided about this call, which an earlier segment asked about."""
        row = self.piece.past.calls.get(seq)
        if row is None or (row.kind, row.function) != ("ask", function):
            return False
        return (await self._row_now(seq)).state in ("approved", "denied")

    def note_notices(self, notices: Sequence[str]) -> None:
        """Keep notices about the script and its calls for its answer, which a later segment may give."""
        if notices:
            self.state.head = replace(self.head, notices=(*dict.fromkeys((*self.head.notices, *notices)),))

    def note_sources(self, sources: Set[str]) -> None:
        """Keep the sources of what the run read from shared files. Calls record their own sources."""
        if not sources <= {*self.head.sources}:
            self.state.head = replace(self.head, sources=(*sorted({*self.head.sources, *sources}),))

    async def call(self, entry: Entry, work: Callable[[], Awaitable[Outcome]]) -> Outcome:
        """Do the work of a call: decide, wait, send. Its outcome is written soon, if it may not be repeated."""
        self._activity.in_flight.add(entry.seq)
        self._activity.changed_at = time.monotonic()
        try:
            outcome = await work()
            if entry.seq in self.state.with_row:
                self._writer.end(entry, outcome)
            return outcome
        except asyncio.CancelledError as error:
            is_given_up = error.args == (GIVEN_UP,)  # else the portal ends, and the run waits in the store
            is_going_on = not (self._suspending or self.scope.cancel_called)
            if is_given_up and is_going_on and entry.seq in self._undecided:
                given_up = CallError("cancelled", "the script no longer waits for it", "Nothing was sent.")
                self._writer.end(entry, Outcome(error=given_up))
            raise
        finally:
            self.state.touched.add(entry.seq)
            self._activity.in_flight.discard(entry.seq)
            self._activity.changed_at = time.monotonic()

    async def intend(self, seq: int, function: str) -> CallError | None:
        """Write that a call which may not be repeated is about to be sent. Returns an error if it must not be sent.

        Raises FencedError: another portal has taken the run over, or it was ended.
        """
        if self.state.recording is None:
            return None
        return await self._add(records.CallRow(self.piece.run_id, seq, "call", function, "intended"))

    def is_held(self, seq: int) -> bool:
        """Whether a call whose intent was written may still be sent: no other portal can have told its script of it."""
        return seq not in self._lapses or self.runs.leases.is_held_since(self._lapses[seq])

    async def wait(
        self, row: records.CallRow, ask: Callable[[], Awaitable[None]] | None = None
    ) -> records.CallRow:
        """Wait until a call is decided, delivered or due; suspend the run if that takes long. Returns the call's row.

        `row` is written, unless an earlier segment did. Then `ask` is called, so that the call can be decided.

        Raises FencedError: another portal has taken the run over, or it was ended. RunsError: it cannot be written.
        """
        seq = row.seq
        self._undecided.add(seq)
        if seq in self.piece.past.calls:
            row = await self._row_now(seq)  # it may have been decided since the run was resumed
        elif (error := await self._add(row)) is not None:
            raise RunsError(error.code, error.message, error.hint)
        if ask is not None and row.state == "waiting":
            await ask()
        self._activity.waiting.add(seq)
        try:
            while self._due_in(row) > 0:
                computed = 0.0 if self.state.recording is None else self.state.recording.cpu_seconds
                row = await self._row_within(self.park_seconds, row)
                if self._due_in(row) > 0 and self._may_park(computed):
                    await self.park()
        finally:
            self._activity.waiting.discard(seq)
        self._undecided.discard(seq)
        return row

    async def _row_within(self, seconds: float, row: records.CallRow) -> records.CallRow:
        """The call's row when the call need not wait any longer, at most after `seconds`, however often it changes."""
        until = time.monotonic() + seconds
        while (left := min(self._due_in(row), until - time.monotonic())) > 0:
            # Register, then read: a decision in between sets the event, and one may precede the call's row.
            changed = self.runs.changes.register(self.piece.run_id)
            row = await self._row_now(row.seq)
            with anyio.move_on_after(min(left, self._due_in(row))):
                await changed.wait()
        return row

    async def _row_now(self, seq: int) -> records.CallRow:
        """The call's row, once the store can be read."""
        row = partial(RunTables.call, run=self.piece.run_id, seq=seq)
        found = await read_again(partial(self.store.read, row))
        if found is None:
            raise records.FencedError(self.piece.run_id)
        return found

    def _due_in(self, row: records.CallRow) -> float:
        """The seconds for which the call may still wait; 0 if it is decided or delivered."""
        if row.state != "waiting":
            return 0.0
        return math.inf if row.due_at is None else row.due_at - self.store.now()

    # Called by the execution

    def whole(self, answer: Answer, most_bytes: int) -> Rows | None:
        """All of a run that has ended and has no row; None if its record is too large, or not known."""
        recording = self.state.recording
        if recording is None or recording.head is None or recording.bytes > most_bytes:
            return None
        return self.state.begin(answer)

    async def begin(self) -> None:
        """Create the run's row, if it is missing. Raises StoreError: it cannot be written."""
        if not self.epoch:
            await self._writer.flush()

    async def before_change(self) -> None:
        """Before the run changes a file, write what it did, if it has a row. Raises StoreError, FencedError."""
        await self._held()
        if self.epoch:
            await self._writer.flush()

    async def park(self) -> None:
        """Suspend the run: write everything, free the worker, and wait in the store. Returns only if that fails."""
        waiting = [*self._activity.waiting]
        self._suspending = asyncio.get_running_loop().create_task(self._park(waiting))
        await self._held()

    async def _held(self) -> None:
        """Wait for a suspension that is under way. Returns if the run is not suspended: it continues here."""
        while self._suspending is not None:
            # Shielded: the suspension completes even if the script cancels its wait in between.
            if await asyncio.shield(self._suspending):
                await anyio.sleep_forever()  # until `scope` is cancelled: the run continues elsewhere

    async def _park(self, waiting: Sequence[int]) -> bool:
        mask = self.runs.mask
        noted = {mask(kind): (mask(text), count) for kind, (text, count) in self.notices.items()}
        if noted != self.head.call_notices:
            self.state.head = replace(self.head, call_notices=noted)
        try:
            await self._writer.flush()
            park = partial(RunTables.park, run=self.piece.run_id, epoch=self.epoch, waiting=waiting)
            await self.store.write(park, is_lasting=True)
        except records.StoreError as error:
            self._suspending = None
            log.error("run_not_parked", run=self.piece.run_id, error=str(error))
            return False
        except records.FencedError:
            pass
        else:
            self.runs.changes.wake()
        self.scope.cancel()
        return True

    async def finish(self, answer: Answer) -> None:
        """Write the answer of a run that has a row. Raises FencedError, StoreError."""
        if not self.epoch:
            await self._writer.idle()  # the transaction that creates its row may be under way
        if not self.epoch or (answer.error is not None and answer.error.code == "sandbox_busy"):
            return  # nothing is durable, or the run is tried again
        await self._writer.flush(answer, is_alone=True)

    async def flushed(self) -> None:
        """Write the pending outcomes, and wait for transactions under way, whose callers may be gone."""
        self._writer.write_outcomes()
        await self._writer.idle()

    async def _add(self, row: records.CallRow) -> CallError | None:
        await self._held()
        if self.state.recording is not None and self.state.recording.is_too_large:
            return CallError(
                "journal_limit",
                f"{row.function} was not called: the record of this run is over its limit of 32 MiB",
                "Nothing was sent. Split the work into several scripts, or read less.",
            )
        self.state.calls.append(row)
        # A call whose answer the script waits for, as most do. Those of a `gather` share one transaction.
        is_alone = self._activity.in_flight == {row.seq} and row.seq == self.state.ledger.calls
        leases = self.runs.leases
        lapses = leases.lapses
        try:
            await self._writer.flush(is_alone=is_alone)
            # If this process was stopped for a while (SIGSTOP, a suspended machine), its lease may have run out, and
            # another portal would report the call as unknown while this one sends it.
            if row.state == "intended":
                self._lapses[row.seq] = await leases.hold(self.piece.run_id, self.epoch, lapses)
        except records.StoreError as error:
            log.error("run_not_journaled", run=self.piece.run_id, error=str(error))
            return unwritten(error, f"{row.function} was not called")
        return None

    def _may_park(self, computed: float) -> bool:
        """Whether the run may be suspended; `computed` is the CPU time of the worker `park_seconds` ago."""
        recording, files = self.state.recording, self.state.ledger.files
        if recording is None or recording.is_too_large or self._suspending is not None:
            return False
        is_changing_files = files is not None and files.is_busy
        used = recording.cpu_seconds - computed
        return not is_changing_files and self._activity.is_idle(time.monotonic(), self.park_seconds, used)


@dataclass(eq=False, slots=True)
class _Transaction:
    """One transaction of a run, and how it ended. Calls of the same moment, as of `gather`, share it."""

    is_awaited: bool = False
    answer: Answer | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    error: Exception | None = None


class JournalWriter:
    """Writes what a run's state has noted: one transaction after another, each for all who wait for it (group commit).

    A write continues if its caller is cancelled: the state must match what is written.
    """

    # With the loop's own callbacks and events, not in a task: each journaled call waits for a transaction, and a task
    # would cost each one more turn of the loop.

    def __init__(self, state: SegmentState, store: RunStore, runs: Home, scope: anyio.CancelScope) -> None:
        self._state, self._store, self._runs, self._scope = state, store, runs, scope
        self._due: _Transaction | None = None
        self._under_way: _Transaction | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def flush(self, answer: Answer | None = None, *, is_alone: bool = False) -> None:
        """Write everything that was noted before this call. Raises StoreError, FencedError.

        The transaction begins at once if it `is_alone`: nothing of this turn of the loop can share it.
        """
        if self._due is None:
            self._due = _Transaction()
            if not is_alone:
                asyncio.get_running_loop().call_soon(self._begin)
        transaction = self._due
        transaction.is_awaited = True
        transaction.answer = answer or transaction.answer
        if is_alone:
            self._begin()
        await transaction.ended.wait()
        if transaction.error is not None:
            raise transaction.error

    def end(self, entry: Entry, outcome: Outcome) -> None:
        """Write the outcome of a call soon: more may come meanwhile, or the answer, and share the transaction."""
        self._state.outcomes.append((entry.seq, entry.state, outcome))
        self._write_outcomes_in(OUTCOME_SECONDS)

    def write_outcomes(self) -> None:
        """Write the outcomes that are not written, without waiting."""
        self._timer = None
        if self._state.outcomes:
            self._due = self._due or _Transaction()
            self._begin()

    async def idle(self) -> None:
        """Wait until no transaction is due or under way. Those who wanted them may be gone."""
        while (transaction := self._under_way or self._due) is not None:
            await transaction.ended.wait()

    def _write_outcomes_in(self, seconds: float) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self.write_outcomes)

    def _begin(self) -> None:
        """Begin the transaction that is due, if any. While one is under way, it begins when that has ended."""
        transaction = self._due
        if transaction is None or self._under_way is not None:
            return
        self._due, self._under_way = None, transaction
        if not (transaction.is_awaited or self._state.outcomes):
            self._end(transaction, None, None)  # the previous one wrote everything
            return
        try:
            rows = self._state.begin(transaction.answer)
        except Exception as error:  # noqa: BLE001  # those who wait raise it
            self._end(transaction, None, error)
            return
        days = self._runs.settings.max_age_days
        work = partial(write_rows, rows=rows, mask=self._runs.mask, max_age_days=days)
        # An intent has to survive a loss of power, and so has a row whose URL is given away. What came before them does
        # too: a commit that is on the disk has all earlier ones there.
        is_lasting = rows.is_first or bool(rows.calls)
        # Last, since the store may call `done` before it returns.
        self._store.submit(
            work,
            lambda _, error: self._end(transaction, rows, error),
            is_lasting=is_lasting,
            is_brief=rows.is_within(BRIEF_BYTES),
        )

    def _end(self, transaction: _Transaction, rows: Rows | None, error: Exception | None) -> None:
        self._under_way, transaction.error = None, error
        if rows is not None:
            self._state.ended(rows, is_committed=error is None)
        if isinstance(error, records.FencedError):
            self._scope.cancel()
        elif error is not None:
            self._write_outcomes_in(RETRY_SECONDS)
            if not transaction.is_awaited:
                log.error("run_not_journaled", run=self._state.piece.run_id, error=str(error))
        transaction.ended.set()
        self._begin()


async def read_again(read: Callable[[], Awaitable[Found]]) -> Found:
    """Read from the store. While it cannot be read, keep trying."""
    while True:
        try:
            return await read()
        except records.DatabaseError as error:
            log.error("runs_not_read", error=str(error))
            await anyio.sleep(RETRY_SECONDS)


def write_rows(tables: RunTables, *, rows: Rows, mask: Redaction, max_age_days: float) -> None:
    """Serialize and write, in the store's thread: serializing would block the event loop."""

    def masked(text: bytes) -> bytes:
        return mask.in_json_text(text.decode()).encode()

    run, written, head, text, component = rows.run_id, rows.written, rows.head, None, ""
    if head is not None:
        record = head.record and head.record.without_environment()
        text = HEAD.dump_json(replace(head, record=record))
        component = record.origin.component if record else ""
        if rows.is_first:
            row = new_row(run, head.caller.run_owner, head, None, max_age_days)
            tables.create(replace(row, title=head.title(mask)), text, head.caller.label)
            text = None
    events = tuple(event.masked(mask) for event in rows.events)
    tables.advance(
        run,
        written.epoch,
        chunk=dump_chunk(events, rows.entries) if events or rows.entries else b"",
        n=written.chunks,
        head=text,
        component=component,
        calls=[replace(call, shown=masked(call.shown)) if call.shown else call for call in rows.calls],
        outcomes=[(seq, masked(dump_outcome(state, outcome))) for seq, state, outcome in rows.outcomes],
    )
    if rows.answer is not None:
        tables.finish(run, rows.answer.status, masked(rows.answer.dump()), written.epoch)


def unwritten(error: records.StoreError, what: str) -> CallError:
    """The error for something that was not done, because it cannot be journaled first."""
    if isinstance(error, records.OwnLimitError):
        return CallError(error.code, f"{what}: {error}", error.hint)
    if isinstance(error, records.DatabaseError) and error.is_in_doubt:
        what, hint = f"{what}, as far as is known", "Check whether it was done before you try again."
        return CallError("journal_failed", f"{what}: the connection to the store of runs was lost", hint)
    hint = "Nothing was done. Until the store can be written, only calls that may be repeated are made."
    return CallError("journal_failed", f"{what}: it cannot be written to the store of runs", hint)
