"""Finds what was done to an audit log: lines altered, taken out, put in or moved.

What it cannot find: lines taken off the end, unless a portal that knew of them wrote on, and a log that was written
anew from some line on by somebody who can compute hashes. Both show when a head that was noted elsewhere before is
looked for.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from portal.audit.chain import MAX_LINE_BYTES, START, Head, Line, read_line

MAX_PROBLEMS: Final = 100


@dataclass
class Report:
    """`problems` are told with file and line; `head` is the last line's, and belongs somewhere else than the log."""

    lines: int = 0
    head: Head = START
    problems: list[str] = field(default_factory=list)
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

    The first line must come after `after`, by default be the first of all; `known` must be among the lines. There must
    be a line, unless `known` says that none is to be expected. With
    `is_mixed` lines that are none of an audit log are passed over, as those of a captured stderr.

    Raises:
        OSError: A file cannot be read.
    """
    report = Report(head=after or START)
    is_known_there = known is None or known in (START, after)
    for path in files:
        before, first = report.head, None
        with path.open("rb") as file:
            for number, text in enumerate(_lines(file), 1):
                line = read_line(text.removesuffix(b"\n"))
                place = f"{path.name}:{number}"
                if line is None:
                    if not is_mixed:
                        told = (
                            "is cut short" if not text.endswith(b"\n") else "is no audit line, or was altered"
                        )
                        report.tell(f"{place}: {told}")
                    continue
                first = first or line
                _look_at(line, place, report, _as_after_a_rotation(line, first, before))
                report.lines += 1
                report.head = line.head
                is_known_there = is_known_there or line.head == known
    if not (report.lines or report.problems) and (known is None or known not in (START, after)):
        # A log that was emptied, or text that was captured in some other form, is not one that nobody touched.
        report.tell(f"{files[-1].name}: there is no audit line in it")
    if not is_known_there:
        report.tell(
            f"{files[-1].name}: line {known} is not in it: the log was cut before it, or written anew"
        )
    return report


def _look_at(line: Line, place: str, report: Report, if_unlinked: str) -> None:
    """Tell what is wrong with a line, and `if_unlinked` where it does not go on from those before it."""
    expected = report.head.seq + 1
    if not line.is_whole:
        report.tell(f"{place}: was altered: its hash is not that of its text")
    if line.head.seq > expected:
        missing = line.head.seq - expected
        report.tell(
            f"{place}: {missing} {'line is' if missing == 1 else 'lines are'} missing before it{if_unlinked}"
        )
    elif line.head.seq < expected:
        report.tell(
            f"{place}: stands in the wrong place: it is number {line.head.seq}, after {report.head.seq}"
        )
    elif line.previous != report.head.digest:
        told = "does not go on from the line before it, which was altered or put in"
        report.tell(f"{place}: {told}{if_unlinked}")


def _as_after_a_rotation(line: Line, first: Line, before: Head) -> str:
    """What speaks for it that nobody did anything, where a line does not go on from those before it in its file.

    A portal that is started after a rotation, before those that run have written, begins a chain, into which they then
    write. `first` is the first line of the file, and the file before this one ends with `before`.
    """
    if line is first or first.head.seq != START.seq + 1:
        return ""
    if before == START:
        return "; a portal that was started after a rotation leaves this, too: verify it with the file before"
    if line.previous == before.digest:
        return "; it goes on from the file before, as where a portal was started after a rotation"
    return ""


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Each line, of one that is too long its beginning."""
    while line := file.readline(2 * MAX_LINE_BYTES):
        yield line
        while line and not line.endswith(b"\n"):
            line = file.readline(2 * MAX_LINE_BYTES)
