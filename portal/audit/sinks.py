"""Where audit lines go: appended to a file, or to stderr.

Rule 1: whoever appends knows at once whether the line is written.
Rule 2: several portals may append to one file; together they make one chain.
Rule 3: a chain goes on after the last line that the portal knows of, also where the file no longer has it, so that
`verify` finds the gap.
"""

import fcntl
import os
import stat
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol

import structlog

from manifests.json_value import Json
from manifests.own_files import PRIVATE
from portal.audit.chain import MAX_LINE_BYTES, START, linked, read_line
from portal.errors import AuditError
from portal.logs import PIPE_BYTES, is_pipe_writable

log = structlog.get_logger()

_LOCK_TRIES: Final = 40
_LOCK_PAUSE_SECONDS: Final = 0.000_5
_TORN: Final = b'{"audit": 1, "seq": '


class Sink(Protocol):
    """Takes one event after the other.

    `append` raises OSError or AuditError if it could not be written; then nothing of it was.
    """

    def append(self, event: Mapping[str, Json]) -> None: ...

    def close(self) -> None: ...


class StderrSink:
    """A chain of its own for each portal, between the other lines on stderr."""

    def __init__(self) -> None:
        self._head = START
        self._is_torn = False

    def append(self, event: Mapping[str, Json]) -> None:
        line, head = linked(self._head, event)
        text = b"\n" + line if self._is_torn else line
        # Not through Python's own buffer, which would write later what it could not write now.
        written = _write_without_waiting(sys.stderr.fileno(), text)
        if not written:
            raise OSError("stderr takes nothing")
        self._is_torn = written < len(text)
        if written < len(text) - 1:  # without its line feed it is a line all the same
            raise OSError("stderr takes no more")
        self._head = head

    def close(self) -> None:
        pass


def _write_without_waiting(file: int, text: bytes) -> int:
    """How many bytes of it a pipe took that nobody may be reading."""
    written = 0
    while written < len(text) and is_pipe_writable(file):
        piece = text[written : written + PIPE_BYTES]
        try:
            taken = os.write(file, piece)
        except OSError:
            if written:
                break
            raise
        written += taken
        if taken < len(piece):
            break
    return written


class FileSink:
    """Appends to a file, which it makes, or gives, mode 0600 where it can.

    The file may be renamed while the portal runs: the chain goes on in a new one. A line is the operating system's when
    `append` returns; with `is_durable` it is on the disk, at the cost of a wait for the disk on every line.
    """

    def __init__(self, path: Path, *, is_durable: bool) -> None:
        self._path = path
        self._flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        if is_durable:
            self._flags |= os.O_DSYNC
        self._file: int | None = None
        self._head = START
        self._bytes = 0
        """Of the file, up to the line that is `_head`."""

    def append(self, event: Mapping[str, Json]) -> None:
        try:
            with self._locked() as file:
                line, head = linked(self._head, event)
                if os.write(file, line) != len(line):
                    os.ftruncate(file, self._bytes)
                    raise OSError("the disk is full")
                self._head, self._bytes = head, self._bytes + len(line)
        except OSError:
            self.close()  # what is wrong with it may be mended by opening it again
            raise

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                os.close(self._file)
            self._file = None

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """The file that is at the path now, locked, and its head known."""
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
                # Others may have written to the renamed file: the chain goes on after that. What else was done to it
                # stops nobody.
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
            raise AuditError(f"the audit log {self._path.name} is no file")
        self._file, self._bytes = file, 0
        return file

    def _is_at_path(self, file: int) -> bool:
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(file))
        except FileNotFoundError:
            return False

    def _catch_up(self, file: int) -> None:
        """Find the head in a file that others wrote to, or that was emptied, cut or replaced."""
        size = os.fstat(file).st_size
        start = max(0, size - 4 * MAX_LINE_BYTES)
        *lines, torn = os.pread(file, size - start, start).split(b"\n")
        last = read_line(lines[-1]) if lines else None
        if lines and (last is None or not last.is_whole):
            raise AuditError(f"the last line of {self._path.name} is no whole audit line: see `audit verify`")
        if torn:
            if not _TORN.startswith(torn[: len(_TORN)]):
                raise AuditError(f"{self._path.name} does not end with an audit line: see `audit verify`")
            # Half a line of a portal that ended while it wrote: what it was about was not done.
            size -= len(torn)
            os.ftruncate(file, size)
        if last is not None and last.head.seq > self._head.seq:
            self._head = last.head
        self._bytes = size


def _lock(file: int) -> None:
    """Lock it, waiting at most some 20 ms: a line is written in microseconds."""
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOCK_PAUSE_SECONDS)
        else:
            return
    raise AuditError("the audit log is locked by somebody else")
