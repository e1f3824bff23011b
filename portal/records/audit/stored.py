"""The audit log in the database of runs: one chain for all portals that share it.

Rule 1: a line shares a transaction with the lines before it, and with other pending writes. So a call that waits for
its journal does not wait for another commit.
Rule 2: the chain continues after the last line; if the last line of this portal is gone, after that one. So `verify`
finds the gap.
"""

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Final

import anyio

from manifests.json_value import Json
from portal.base.errors import AuditError
from portal.records.audit.chain import START, Head, Sink, linked, read_line
from portal.records.store.tables import Tables
from portal.records.store.writer import RunStore

PAGE_LINES: Final = 1_000

_LOCK: Final = "audit", "", "lock"


@dataclass(eq=False)
class Batch:
    """Events that one transaction writes. Further events join until it begins."""

    events: list[dict[str, Json]] = field(default_factory=list)
    has_begun: bool = False
    is_written: bool = False
    head: Head = START
    """The head of its last line."""
    _ended: anyio.Event = field(default_factory=anyio.Event)

    async def written(self) -> bool:
        """Wait for the transaction. Returns whether the events are in the log."""
        await self._ended.wait()
        return self.is_written

    def end(self, *, is_written: bool) -> None:
        self.is_written = is_written
        self._ended.set()


class StoreSink(Sink):
    """Writes events without waiting for the database. `batch` holds the last one, and its `written` waits for it."""

    def __init__(self, store: RunStore) -> None:
        self.batch = Batch(has_begun=True)
        self._store = store
        self._known = START
        """The last line that this portal wrote."""
        self._joining = threading.Lock()
        """Batches begin in the store's thread, while the event loop adds to them."""

    def append(self, event: Mapping[str, Json]) -> None:
        with self._joining:
            batch = Batch() if (is_new := self.batch.has_begun) else self.batch
            batch.events.append({**event, "replica": self._store.holder})
        if is_new:
            self.batch = batch
            self._store.submit(partial(self._write, batch), partial(self._end, batch), is_last=True)

    def _write(self, batch: Batch, tables: Tables) -> None:
        with self._joining:
            batch.has_begun = True
        tables.lock(*_LOCK)
        head, rows = max(_last(tables), self._known, key=attrgetter("seq")), []
        for event in batch.events:
            line, head = linked(head, event)
            rows.append((head.seq, line.decode().rstrip("\n")))
        tables.add_audit_lines(rows)
        batch.head = head

    def _end(self, batch: Batch, _: None, error: Exception | None) -> None:
        with self._joining:
            batch.has_begun = True  # without a connection its work never ran
        batch.end(is_written=error is None)
        if error is None:
            self._known = batch.head
        else:
            # The line that counts lost events may be lost itself.
            self.lose(sum(int(str(event.get("lost", 1))) for event in batch.events), error)


def exported(tables: Tables, after: int) -> Iterator[str]:
    """The lines of the log after the one of this number."""
    while rows := tables.audit_lines(after, PAGE_LINES):
        yield from (line for _, line in rows)
        after, _ = rows[-1]


def _last(tables: Tables) -> Head:
    """Raises AuditError: the last line is not an audit line."""
    found = tables.last_audit_line()
    if found is None:
        return START
    seq, line = found
    read = read_line(line.encode())
    if read is None or read.head.seq != seq:
        raise AuditError(
            f"line {seq} of the audit log in the database was altered, so that none can follow it"
        )
    return read.head
