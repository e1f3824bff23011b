"""The lines of an audit log, their sinks, and `verify`, which detects altered, removed, inserted and moved lines.

Rule 1: the caller of `append` knows at once whether the line is written.
Rule 2: several portals may append to one file and form one chain.
Rule 3: a chain continues after the last line that the portal knows, even if the file no longer contains it. So `verify`
finds the gap.

Each line contains the hash of the line before it. A line is ASCII JSON, so its text cannot break the line or control a
terminal. Its own hash covers its bytes up to the hash.

`verify` cannot detect that lines were removed from the end, or that the whole log was rewritten with new hashes.
A head that was saved elsewhere reveals both.
"""

import fcntl
import hashlib
import json
import os
import re
import stat
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

import structlog

from manifests.json_value import Json
from manifests.own_files import PRIVATE, has_locked
from portal.base.errors import AuditError
from portal.records.logs import STDERR

MAX_LINE_BYTES: Final = 16 * 1024
"""A longer line is not an audit line."""

MAX_PROBLEMS: Final = 100
"""Problems listed one by one; more are counted."""

_LINE: Final = re.compile(
    rb'(\{"audit": 1, "seq": ([1-9][0-9]{0,17}), "previous": "([0-9a-f]{64})", .*), "hash": "([0-9a-f]{64})"\}'
)


@dataclass(frozen=True)
class Head:
    """Identifies a line by its number, counted from 1 over all files, and its hash. The next line repeats the hash."""

    seq: int
    digest: str

    def __str__(self) -> str:
        return f"{self.seq}:{self.digest}"

    @classmethod
    def of(cls, text: str) -> "Head":
        """Parse what `str` writes. Raises ValueError: the text is not a head."""
        found = re.fullmatch(r"(\d{1,18}):([0-9a-f]{64})", text)
        if found is None:
            raise ValueError(f"{text!r} is not a head. A head looks like 12:{'0' * 64}")
        return cls(int(found[1]), found[2])


START: Final = Head(0, "0" * 64)
"""The head before the first line."""


@dataclass(frozen=True)
class Line:
    """A parsed line. `is_intact` means that its hash matches its bytes."""

    head: Head
    previous: str
    is_intact: bool


def linked(previous: Head, event: Mapping[str, Json]) -> tuple[bytes, Head]:
    """The line of an event, with its line feed, and its head."""
    fields = {"audit": 1, "seq": previous.seq + 1, "previous": previous.digest, **event}
    body = json.dumps(fields)[:-1].encode()
    digest = hashlib.sha256(body).hexdigest()
    return body + f', "hash": "{digest}"}}\n'.encode(), Head(previous.seq + 1, digest)


def read_line(line: bytes) -> Line | None:
    """Parse a line without its line feed. None if it is not an audit line."""
    found = _LINE.fullmatch(line)
    if found is None:
        return None
    is_intact = hashlib.sha256(found[1]).hexdigest() == found[4].decode()
    return Line(Head(int(found[2]), found[4].decode()), found[3].decode(), is_intact)


@dataclass
class Report:
    """The findings of `verify`. `head` is that of the last line."""

    lines: int = 0
    head: Head = START
    problems: list[str] = field(default_factory=list)
    """Each with file and line."""
    more_problems: int = 0

    def add(self, problem: str) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)
        else:
            self.more_problems += 1


def verify(
    files: Sequence[Path], *, after: Head | None = None, known: Head | None = None, is_mixed: bool = False
) -> Report:
    """Verify every line of a log. `files` are in order.

    The first line must follow `after`; by default it must be the first of all. `known` must be among the lines. A log
    without lines is damaged, unless `known` is `after` or the start. `is_mixed` skips other lines, as in a captured
    stderr. Raises OSError: a file cannot be read.
    """
    report = Report(head=after or START)
    expects_none = known is not None and known in (START, after)
    is_known_there = known is None or expects_none
    for path in files:
        with path.open("rb") as file:
            for number, text in enumerate(_lines(file), 1):
                line = read_line(text.removesuffix(b"\n"))
                place = f"{path.name}:{number}"
                if line is not None:
                    _verify_line(line, place, report)
                    is_known_there = is_known_there or line.head == known
                elif not is_mixed:
                    is_cut = not text.endswith(b"\n")
                    report.add(
                        f"{place}: {'is truncated' if is_cut else 'is not an audit line, or was altered'}"
                    )
    last = files[-1].name
    if not (report.lines or report.problems or expects_none):
        report.add(f"{last}: contains no audit line")
    if not is_known_there:
        report.add(f"{last}: does not contain line {known}. The log was truncated before it, or rewritten")
    return report


def _verify_line(line: Line, place: str, report: Report) -> None:
    expected = report.head.seq + 1
    if not line.is_intact:
        report.add(f"{place}: was altered: its hash does not match its text")
    if line.head.seq > expected:
        missing = line.head.seq - expected
        report.add(f"{place}: {missing} {'line is' if missing == 1 else 'lines are'} missing before it")
    elif line.head.seq < expected:
        report.add(f"{place}: is out of order: it has number {line.head.seq} but follows {report.head.seq}")
    elif line.previous != report.head.digest:
        report.add(f"{place}: does not match the line before it, which was altered or inserted")
    report.lines += 1
    report.head = line.head


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield each line; only the beginning of one that is too long."""
    while line := file.readline(2 * MAX_LINE_BYTES):
        yield line
        while line and not line.endswith(b"\n"):
            line = file.readline(2 * MAX_LINE_BYTES)


log = structlog.get_logger()

_LOCK_TRIES: Final = 40
_LOCK_PAUSE_SECONDS: Final = 0.000_5
_TORN: Final = b'{"audit": 1, "seq": '


class Sink(ABC):
    """Writes events in order."""

    lost = 0
    """The events that could not be written since one was."""

    @abstractmethod
    def append(self, event: Mapping[str, Json]) -> None:
        """Raises OSError or AuditError: the event could not be written, and no part of it was."""

    def lose(self, events: int, error: Exception) -> None:
        """Count lost events, and log the first failure in a row."""
        if not self.lost:
            log.error("audit_failed", reason=getattr(error, "strerror", None) or str(error))
        self.lost += events

    def close(self) -> None:  # noqa: B027  # most have nothing to close
        pass


class StderrSink(Sink):
    """Writes to stderr, among its other lines. Each portal has its own chain."""

    def __init__(self) -> None:
        """Raises AuditError: stderr is closed, or goes to /dev/null."""
        if os.path.samestat(os.fstat(sys.stderr.fileno()), os.stat(os.devnull)):
            raise AuditError(
                "the audit log would be lost: `audit.to` is stderr, which is closed or /dev/null"
            )
        self._head = START

    def append(self, event: Mapping[str, Json]) -> None:
        line, head = linked(self._head, event)
        if not STDERR.write_line(line):
            raise OSError("stderr is blocked")
        self._head = head


class FileSink(Sink):
    """Appends to a file. Creates it with mode 0600, or sets that mode if possible.

    The file may be renamed while the portal runs; the chain continues in a new one. When `append` returns, the
    operating system has the line. With `is_durable` it is on disk, and every line waits for the disk.
    """

    def __init__(self, path: Path, *, is_durable: bool) -> None:
        self._path = path
        self._flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        if is_durable:
            self._flags |= os.O_DSYNC
        self._file: int | None = None
        self._head = START
        self._bytes = 0
        """Size of the file up to and including the line `_head`."""

    def append(self, event: Mapping[str, Json]) -> None:
        try:
            with self._locked() as file:
                line, head = linked(self._head, event)
                if os.write(file, line) != len(line):
                    os.ftruncate(file, self._bytes)
                    raise OSError("the disk is full")
                self._head, self._bytes = head, self._bytes + len(line)
        except OSError:
            self.close()  # opening it again may help
            raise

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                os.close(self._file)
            self._file = None

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Lock the file that is at the path now, and update the head."""
        while True:
            file = self._file if self._file is not None else self._open()
            _lock(file)
            try:
                if self._is_at_path(file):
                    status = os.fstat(file)
                    if status.st_size != self._bytes:
                        self._catch_up(file)
                    if status.st_mode & 0o077:
                        with suppress(OSError):  # another user's, or on a disk without modes
                            os.fchmod(file, PRIVATE)
                    yield file
                    return
                # Others may have appended to the renamed file; the chain continues after their lines. Any other
                # change to it is ignored.
                with suppress(AuditError):
                    self._catch_up(file)
            finally:
                with suppress(OSError):
                    fcntl.flock(file, fcntl.LOCK_UN)
            self.close()

    def _open(self) -> int:
        file = os.open(self._path, self._flags, PRIVATE)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise AuditError(f"the audit log {self._path.name} is not a regular file")
        self._file, self._bytes = file, 0
        return file

    def _is_at_path(self, file: int) -> bool:
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(file))
        except FileNotFoundError:
            return False

    def _catch_up(self, file: int) -> None:
        """Find the head in a file that others wrote to, or that was emptied, truncated or replaced."""
        size = os.fstat(file).st_size
        start = max(0, size - 4 * MAX_LINE_BYTES)
        *lines, torn = os.pread(file, size - start, start).split(b"\n")
        last = read_line(lines[-1]) if lines else None
        if lines and (last is None or not last.is_intact):
            raise AuditError(
                f"the last line of {self._path.name} is not a valid audit line. Run `audit verify`"
            )
        if torn:
            if not _TORN.startswith(torn[: len(_TORN)]):
                raise AuditError(f"{self._path.name} does not end with an audit line. Run `audit verify`")
            # A portal ended while it wrote this line, so the event did not happen: it is recorded before.
            size -= len(torn)
            os.ftruncate(file, size)
        # If the log was rewritten, the chain continues after the line that this portal knows, so `verify` finds the
        # rewrite. For a file that this portal opens for the first time, its last line is the head.
        end = f'{self._head.digest}"}}\n'.encode()
        is_there = self._bytes == 0 or os.pread(file, len(end), self._bytes - len(end)) == end
        if last is not None and last.head.seq > self._head.seq and is_there:
            self._head = last.head
        self._bytes = size


def _lock(file: int) -> None:
    """Lock the file. Waits at most about 20 ms, as a line is written in microseconds."""
    for _ in range(_LOCK_TRIES):
        if has_locked(file):
            return
        time.sleep(_LOCK_PAUSE_SECONDS)
    raise AuditError("another process holds the lock of the audit log")
