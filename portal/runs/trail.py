"""Writes the trail of a portal's runs (`runs.trail`), after their clients have their answers.

Rule 1: between a run and its answer nothing is awaited, and nothing uses the store: rows wait in memory.
Rule 2: what cannot be written is dropped and counted. No run waits for the trail, and none fails with it.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import Final

import anyio
import anyio.to_thread
import structlog

from manifests.json_value import Json
from manifests.portal_manifest import RunsSettings
from portal.records.ledger import MAX_ROWS, Ledger
from portal.records.store.records import RunState
from portal.records.store.run_tables import RunTables
from portal.records.store.trail import TrailRow
from portal.records.store.writer import RunStore
from portal.runs.answer import Answer
from portal.runs.journal import Journal, write_rows
from portal.runs.past import Piece
from portal.runs.segment_state import Rows
from upstreams.redaction import Redaction

log = structlog.get_logger()

WRITE_SECONDS: Final = 0.25
"""What came within this time is written in one transaction."""

MAX_WAITING: Final = 1_000
"""Rows in memory, as while the store hangs. One more, and the oldest is dropped."""

MAX_WHOLE: Final = 32
"""Runs in memory that `full` will keep. Further ones are kept as with `calls`."""

MAX_WHOLE_BYTES: Final = 1 << 20
"""What `full` keeps of a run, before it is compressed. A larger one is kept as with `calls`."""

_TELL_SECONDS: Final = 60.0
_FLUSH_SECONDS: Final = 2.0


@dataclass(eq=False, slots=True)
class Note:
    """What a segment of a run measures on its way, and how it ends. Without an answer it was cancelled, or failed."""

    status: RunState = "error"
    code: str = "internal_error"
    answer: Answer | None = None
    began: float = field(default_factory=time.perf_counter)
    check_ms: float = 0.0
    result_bytes: int = 0
    journal: Journal | None = None


class Trail:
    """The trail of one portal. `wrote` is called when rows were written."""

    def __init__(
        self, store: RunStore | None, settings: RunsSettings, mask: Redaction, wrote: Callable[[], None]
    ) -> None:
        self._store = None if settings.trail == "off" else store
        self._settings, self._mask, self._wrote = settings, mask, wrote
        self._waiting = deque[TrailRow](maxlen=MAX_WAITING)
        self._whole = deque[tuple[TrailRow, Rows]]()
        """For `full`: rows of runs, with what a journal would have."""
        self._read: dict[str, int] = {}
        """Bytes of answers that clients got, by run."""
        self._dropped, self._told_at = 0, -_TELL_SECONDS

    def add(self, piece: Piece, ledger: Ledger, note: Note) -> None:
        """Note a segment of a run that is over."""
        if self._store is None:
            return
        head, journal = piece.head, note.journal
        began, entries = piece.began or head.began, ledger.entries.values()
        row = TrailRow(
            id=piece.run_id,
            owner=head.caller.run_owner,
            client=head.caller.client,
            state=note.status,
            code=note.code,
            title=head.title(self._mask),
            began=began,
            ms=(time.perf_counter() - note.began) * 1000,
            check_ms=note.check_ms,
            calls=len(entries),
            failed=sum(entry.state == "failed" for entry in entries),
            unknown=sum(entry.state == "unknown" for entry in entries),
            denied=sum(entry.error is not None and entry.error.code == "denied" for entry in entries),
            result_bytes=note.result_bytes,
            is_journaled=bool(piece.epoch or (journal and journal.epoch)),
            listed=listed_calls(ledger, began),
        )
        if len(self._waiting) == MAX_WAITING:
            self._drop(1, "the store does not answer")
        self._waiting.append(row)
        is_whole = self._settings.trail == "full" and not row.is_journaled and len(self._whole) < MAX_WHOLE
        if is_whole and journal and note.answer and (whole := journal.whole(note.answer, MAX_WHOLE_BYTES)):
            self._whole.append((row, whole))

    def answered(self, run: str, size: int) -> None:
        """Note that a client got an answer of a run, of so many bytes."""
        if self._store is not None and run and len(self._read) < MAX_WAITING:
            self._read[run] = self._read.get(run, 0) + size

    async def keep(self) -> None:
        """Write what comes, until cancelled."""
        while self._store is not None:
            await anyio.sleep(WRITE_SECONDS)
            await self._write()

    async def flush(self) -> None:
        """Write what waits, within two seconds."""
        with anyio.move_on_after(_FLUSH_SECONDS, shield=True):
            await self._write()

    async def _write(self) -> None:
        """Write what waits, in the store's thread."""
        if self._waiting or self._read:
            noted, read, self._read = [*self._waiting], self._read, {}
            self._waiting.clear()
            await self._submit(partial(write_trail, noted=noted, read=read, mask=self._mask), len(noted))
        days = self._settings.max_age_days
        for _ in range(len(self._whole)):  # one by one: each takes long, and runs wait for their journals
            if not self._whole:
                return  # `flush` and `keep` may do this at once
            row, whole = self._whole.popleft()
            # In a thread, as its answer may have a million values.
            if await anyio.to_thread.run_sync(whole.is_within, MAX_WHOLE_BYTES):
                work = partial(keep_whole, row=row, rows=whole, mask=self._mask, max_age_days=days)
                await self._submit(work)

    async def _submit(self, work: Callable[[RunTables], None], rows: int = 0) -> None:
        """Write, and wait for that. If it fails, so many rows are dropped."""
        ended = anyio.Event()

        def done(_: object, error: Exception | None) -> None:
            ended.set()
            if error is None:
                self._wrote()
            elif rows:
                self._drop(rows, str(error))

        if self._store is not None:
            self._store.submit(work, done)
            await ended.wait()

    def _drop(self, count: int, reason: str) -> None:
        """Count rows that are not written, and log how many, at most once a minute."""
        self._dropped += count
        if time.monotonic() - self._told_at >= _TELL_SECONDS:
            log.warning("trail_dropped", runs=self._dropped, reason=reason)
            self._dropped, self._told_at = 0, time.monotonic()


def listed_calls(ledger: Ledger, began: float) -> list[list[Json]]:
    """`[[seq, function, state, at_ms after began, ms, code], ...]`: at most MAX_ROWS. The first call of each function
    goes before others, and then those that are not done.
    """
    now, entries = time.monotonic(), [*ledger.entries.values()]
    if len(entries) > MAX_ROWS:
        first = {entry.function: entry.seq for entry in reversed(entries)}
        entries.sort(key=lambda entry: (entry.seq != first[entry.function], entry.state == "done"))
        entries = sorted(entries[:MAX_ROWS], key=attrgetter("seq"))
    return [
        [
            entry.seq,
            entry.function,
            entry.state,
            round((entry.at - began) * 1000, 1),
            round(((entry.ended or now) - entry.began) * 1000, 1),
            entry.error.code if entry.error else "",
        ]
        for entry in entries
    ]


def write_trail(
    tables: RunTables, *, noted: Sequence[TrailRow], read: Mapping[str, int], mask: Redaction
) -> None:
    """Mask and write, in the store's thread."""
    rows = [replace(row, listed=mask.in_value([*row.listed])) for row in noted]
    tables.add_trail(rows, read)


def keep_whole(tables: RunTables, *, row: TrailRow, rows: Rows, mask: Redaction, max_age_days: float) -> None:
    """Write what a journal would have. If that fails, the row of the run stays as it is."""
    with tables.afterwards(row):
        write_rows(tables, rows=rows, mask=mask, max_age_days=max_age_days)
