"""The lines of an audit log, and `verify`, which finds lines that were altered, taken out, put in or moved.

Each line holds the hash of the one before it. A line is JSON in ASCII, so no text in it breaks a line or steers a
terminal. Its hash is of its own bytes up to the hash itself.

What `verify` cannot find: lines taken off the end, and a log that was written anew by somebody who can compute hashes.
Both show when a head that was noted elsewhere before is looked for.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from manifests.json_value import Json

MAX_LINE_BYTES: Final = 16 * 1024
"""A longer line is none of ours."""

MAX_PROBLEMS: Final = 100
"""Problems told one by one; more are counted."""

_LINE: Final = re.compile(
    rb'(\{"audit": 1, "seq": ([1-9][0-9]{0,17}), "previous": "([0-9a-f]{64})", .*), "hash": "([0-9a-f]{64})"\}'
)


@dataclass(frozen=True)
class Head:
    """A line, as the next one names it: its number, counted from 1 over all files, and its hash."""

    seq: int
    digest: str

    def __str__(self) -> str:
        return f"{self.seq}:{self.digest}"

    @classmethod
    def of(cls, text: str) -> "Head":
        """Read what `str` writes.

        Raises:
            ValueError: The text is nothing of the kind.
        """
        found = re.fullmatch(r"(\d{1,18}):([0-9a-f]{64})", text)
        if found is None:
            raise ValueError(f"{text!r} is no head: it looks like 12:{'0' * 64}")
        return cls(int(found[1]), found[2])


START: Final = Head(0, "0" * 64)
"""What comes before the first line of all."""


@dataclass(frozen=True)
class Line:
    """A line that was read. `is_whole` says that its hash is that of its bytes."""

    head: Head
    previous: str
    is_whole: bool


def linked(previous: Head, event: Mapping[str, Json]) -> tuple[bytes, Head]:
    """The line of an event, with its line feed, and the head that it makes."""
    whole = {"audit": 1, "seq": previous.seq + 1, "previous": previous.digest, **event}
    body = json.dumps(whole)[:-1].encode()
    digest = hashlib.sha256(body).hexdigest()
    return body + f', "hash": "{digest}"}}\n'.encode(), Head(previous.seq + 1, digest)


def read_line(line: bytes) -> Line | None:
    """What a line, without its line feed, says of itself; None if it is none of ours."""
    found = _LINE.fullmatch(line)
    if found is None:
        return None
    is_whole = hashlib.sha256(found[1]).hexdigest() == found[4].decode()
    return Line(Head(int(found[2]), found[4].decode()), found[3].decode(), is_whole)


@dataclass
class Report:
    """What `verify` found. `head` is the last line's."""

    lines: int = 0
    head: Head = START
    problems: list[str] = field(default_factory=list)
    """With file and line."""
    more_problems: int = 0

    def tell(self, problem: str) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)
        else:
            self.more_problems += 1


def verify(
    files: Sequence[Path], *, after: Head | None = None, known: Head | None = None, is_mixed: bool = False
) -> Report:
    """Look at every line of a log, whose files are given in their order.

    The first line must come after `after`, by default be the first of all; `known` must be among the lines. A log
    without a line is damaged, unless `known` is `after` or the start. With `is_mixed` lines that are no audit lines
    are passed over, as in a captured stderr.

    Raises:
        OSError: A file cannot be read.
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
                    report.tell(
                        f"{place}: {'is cut short' if is_cut else 'is no audit line, or was altered'}"
                    )
    last = files[-1].name
    if not (report.lines or report.problems or expects_none):
        report.tell(f"{last}: there is no audit line in it")
    if not is_known_there:
        report.tell(f"{last}: line {known} is not in it: the log was cut before it, or written anew")
    return report


def _verify_line(line: Line, place: str, report: Report) -> None:
    expected = report.head.seq + 1
    if not line.is_whole:
        report.tell(f"{place}: was altered: its hash is not that of its text")
    if line.head.seq > expected:
        missing = line.head.seq - expected
        report.tell(f"{place}: {missing} {'line is' if missing == 1 else 'lines are'} missing before it")
    elif line.head.seq < expected:
        report.tell(
            f"{place}: stands in the wrong place: it is number {line.head.seq}, after {report.head.seq}"
        )
    elif line.previous != report.head.digest:
        report.tell(f"{place}: does not go on from the line before it, which was altered or put in")
    report.lines += 1
    report.head = line.head


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Each line; of one that is too long its beginning."""
    while line := file.readline(2 * MAX_LINE_BYTES):
        yield line
        while line and not line.endswith(b"\n"):
            line = file.readline(2 * MAX_LINE_BYTES)
