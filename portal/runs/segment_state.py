"""The state of one segment of a run, without I/O: what the store has of it, and what the next transaction writes.

One transaction is under way at a time. From `begin` to its end, what happens is noted for the one after it:

    event             written (epoch, chunks, events, head)    entries      calls      outcomes
    begin             -                                        taken        taken      stay
    ended, committed  as the transaction says                  -            with row   its own are dropped
    ended, failed     -                                        noted again  dropped    stay

A failed transaction drops its calls, because whoever wanted to make them is told that they are not made. What it left
in the store, if its acknowledgement was lost, the next one replaces: its chunk has the same number and contains more.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from manifests.manifest import Budget
from portal.base.clean_json import is_larger
from portal.records.ledger import CallState, Ledger
from portal.records.store.records import CallRow
from portal.runs.answer import Answer
from portal.runs.past import EntryRow, Piece, RunHead
from sandbox_runtime.call_port import Outcome
from sandbox_runtime.recording import Event, Recording

IDLE_SHARE: Final = 0.5
"""A worker that used less CPU than this share of the time is idle, so its run may be suspended."""

BRIEF_BYTES: Final = 16_384
"""Rows of at most about so many bytes as JSON take well under a millisecond to write."""


class Written(NamedTuple):
    """What the store has of a run. `chunks` and `events` are counts. `epoch` is 0 until the run has a row."""

    epoch: int
    chunks: int
    events: int
    head: RunHead | None
    """As this segment wrote it; None if it did not."""


class Rows(NamedTuple):
    """What one transaction writes. Immutable, since it is written in the store's thread."""

    run_id: str
    written: Written
    """What the store has when they are committed."""
    is_first: bool
    """Whether the run has no row yet."""
    head: RunHead | None
    """None: it has not changed."""
    events: tuple[Event, ...]
    entries: tuple[EntryRow, ...]
    calls: tuple[CallRow, ...]
    outcomes: tuple[tuple[int, CallState, Outcome], ...]
    answer: Answer | None
    """The run's answer, if this is its last transaction."""

    def is_within(self, most_bytes: int) -> bool:
        """Whether they are at most about so many bytes as JSON."""
        outcomes = [outcome for _, _, outcome in self.outcomes]
        texts: list[str | bytes | None] = [event.text for event in self.events]
        texts += [*(call.shown for call in self.calls), *(outcome.text for outcome in outcomes)]
        if self.head is not None:
            texts += [self.head.request.code]
            if (record := self.head.record) is not None:  # its settings have whole namespaces of the library
                texts += [record.script, record.settings]
        size = sum(map(len, filter(None, texts))) + 8 * len(texts)
        rows, values = len(self.entries), [[one.value, one.content, one.data] for one in outcomes]
        if (end := self.answer) is not None:
            rows += len(end.calls)
            values += [[end.result, end.stdout, [*end.emitted], [*end.notices]]]
        return not is_larger(values, most_bytes - size - 200 * rows)


@dataclass(eq=False)
class SegmentState:
    """Knows what of a segment is written, and what is not. `recording` is None for a run of a session.

    `counted` has the budgets that each call spent, by `seq`.
    """

    piece: Piece
    recording: Recording | None
    ledger: Ledger
    counted: Mapping[int, Sequence[Budget]]
    touched: set[int] = field(default_factory=set)
    """The calls whose entries in the ledger are to be written."""
    calls: list[CallRow] = field(default_factory=list)
    """Those that are intended, or begin to wait."""
    outcomes: list[tuple[int, CallState, Outcome]] = field(default_factory=list)

    def __post_init__(self) -> None:
        past, self.head = self.piece.past, self.piece.head
        self.written = Written(
            self.piece.epoch, past.chunks, len(past.record.events) if past.record else 0, None
        )
        self.with_row = {*past.calls}
        """The calls that have a row in the store, so that their outcomes have to be written."""

    def begin(self, answer: Answer | None = None) -> Rows:
        """The rows of the next transaction, with everything that happened before. `answer` makes it the last one."""
        # Calls first: if this fails, whoever wants to make them is told so.
        calls, self.calls = tuple(self.calls), []
        started = None if self.recording is None else self.recording.head
        if started is not None and started is not self.head.record:
            self.head = replace(self.head, record=started)
        events = () if self.recording is None else (*self.recording.events[self.written.events :],)
        if answer is None and events and events[-1].is_ending:
            events = events[:-1]  # the run's ending is written only with its answer
        intended = {call.seq for call in calls if call.state == "intended"}
        entries = tuple(self._entry(seq, seq in intended) for seq in sorted(self.touched | intended))
        epoch, chunks, count, head = self.written
        written = Written(epoch or 1, chunks + bool(events or entries), count + len(events), self.head)
        changed, outcomes = None if self.head is head else self.head, tuple(self.outcomes)
        self.touched = set()
        return Rows(self.piece.run_id, written, not epoch, changed, events, entries, calls, outcomes, answer)

    def _entry(self, seq: int, is_intended: bool) -> EntryRow:
        entry, budgets = self.ledger[seq], tuple(budget.keys for budget in self.counted.get(seq, ()))
        # It is sent next. Whoever reads the run before its outcome is written must not take it for a call that was not.
        is_sent_next = is_intended and entry.state == "not_started"
        return EntryRow.of(entry, budgets, "unknown" if is_sent_next else None)

    def ended(self, rows: Rows, *, is_committed: bool) -> None:
        """The transaction that writes these rows has ended."""
        if not is_committed:
            self.touched.update(entry.seq for entry in rows.entries)
            return
        self.written = rows.written
        self.with_row.update(call.seq for call in rows.calls)
        del self.outcomes[: len(rows.outcomes)]


@dataclass(eq=False, slots=True)
class Activity:
    """What a segment is doing, and so whether it may be suspended. Times are in seconds, of one monotonic clock."""

    in_flight: set[int] = field(default_factory=set)
    waiting: set[int] = field(default_factory=set)
    """The calls that wait in the store, by `seq`."""
    changed_at: float = 0.0
    """When a call last began or ended."""

    def is_idle(self, now: float, seconds: float, cpu_seconds: float) -> bool:
        """Whether for `seconds` only waiting calls were under way, if the worker used this CPU time in them."""
        is_quiet = now - self.changed_at >= seconds * 0.99  # a timer may fire a little early
        return self.in_flight == self.waiting and is_quiet and cpu_seconds < IDLE_SHARE * seconds
