"""The audit log in the database of runs: one chain for all portals that share it.

Rule 1: a line is written in one transaction with the lines before it, or with what else waits at that time. So a call
that is about to be sent anyway waits for no further commit.
Rule 2: the number and hash of the last line are kept apart from the lines, encrypted with `runs.key`. So `exported`
notices when lines are removed from the end.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import anyio

from manifests.json_value import Json
from portal.audit.chain import START, Head, linked, read_line
from portal.errors import AuditError
from portal.store.tables import Tables
from portal.store.writer import RunStore

PAGE_LINES: Final = 1_000

_HEAD: Final = "audit", "", "head"


@dataclass(eq=False)
class Batch:
    """Events that one transaction writes. Others join until it begins."""

    events: list[dict[str, Json]] = field(default_factory=list)
    has_begun: bool = False
    is_written: bool = False
    _ended: anyio.Event = field(default_factory=anyio.Event)

    async def written(self) -> bool:
        """Wait for the transaction. Returns whether the events are in the log."""
        await self._ended.wait()
        return self.is_written

    def end(self, *, is_written: bool) -> None:
        self.is_written = is_written
        self._ended.set()


class StoreSink:
    """Writes events without waiting for the database. `batch` has the last one, and tells when it is written."""

    def __init__(self, store: RunStore) -> None:
        self.on_lost: Callable[[int, Exception], None] = lambda events, error: None
        """Called with the number of events that could not be written, and with the reason."""
        self.batch = Batch(has_begun=True)
        self._store = store
        self._joining = threading.Lock()
        """A batch begins in the thread of the store."""

    def append(self, event: Mapping[str, Json]) -> None:
        with self._joining:
            batch = Batch() if (is_new := self.batch.has_begun) else self.batch
            batch.events.append({**event, "replica": self._store.holder})
        if is_new:
            self.batch = batch
            self._store.submit(partial(self._write, batch), partial(self._end, batch), is_last=True)

    def close(self) -> None:
        pass  # the store writes what waits before it closes

    def _write(self, batch: Batch, tables: Tables) -> None:
        with self._joining:
            batch.has_begun = True
        tables.lock(*_HEAD)
        head = _head(tables)
        rows = []
        for event in batch.events:
            line, head = linked(head, event)
            rows.append((head.seq, line.decode().rstrip("\n")))
        tables.add_audit_lines(rows)
        tables.put(*_HEAD, str(head).encode())

    def _end(self, batch: Batch, _: None, error: Exception | None) -> None:
        with self._joining:
            batch.has_begun = True  # without a connection it never did
        batch.end(is_written=error is None)
        if error is not None:
            # The line that counts lost events may be lost itself.
            self.on_lost(sum(int(str(event.get("lost", 1))) for event in batch.events), error)


def exported(tables: Tables, after: Head) -> Iterator[str]:
    """The lines of the log after this one, as they are now.

    Raises AuditError, at the end: the line that was written last is not there.
    """
    head, last = _head(tables), after
    while rows := tables.audit_lines(last.seq, head.seq, PAGE_LINES):
        yield from (line for _, line in rows)
        seq, line = rows[-1]
        read = read_line(line.encode())
        last = Head(seq, "") if read is None else read.head
    if last != head:
        raise AuditError(
            f"the log does not end with line {head}, which was written last: lines were removed or altered"
        )


def _head(tables: Tables) -> Head:
    stored = tables.get(*_HEAD)
    return Head.of(stored.decode()) if stored else START
