"""A log that is cut, replaced, emptied or rotated: what portals that run still know of it, and what `verify` finds."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from portal.audit.chain import Head, verify
from portal.audit.sinks import FileSink


def sink(path: Path) -> FileSink:
    return FileSink(path, is_durable=False)


def written_by_others(path: Path, lines: int) -> None:
    """By a portal that starts, and knows of the log what is in it then."""
    log = sink(path)
    for number in range(lines):
        log.append({"event": "other", "number": number})
    log.close()


def problems(*files: Path, after: Head | None = None) -> list[str]:
    return verify(files, after=after).problems


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


Shortening = Callable[[Path], None]


def cut(path: Path, left: int = 3) -> None:
    os.truncate(path, sum(map(len, lines_of(path)[:left])))


def replaced_by_a_shorter_copy(path: Path) -> None:
    copy = path.with_name("copy")
    copy.write_bytes(b"".join(lines_of(path)[:3]))
    copy.replace(path)


def renamed_and_cut(path: Path) -> None:
    path.rename(path.with_name("audit.jsonl.1"))
    cut(path.with_name("audit.jsonl.1"))


def cut_and_written_on(path: Path) -> None:
    cut(path)
    written_by_others(path, 5)


SHORTENINGS: list[Shortening] = [
    cut,
    replaced_by_a_shorter_copy,
    renamed_and_cut,
    cut_and_written_on,
]


@pytest.mark.parametrize("shortened", SHORTENINGS)
@pytest.mark.parametrize("more", [1, 4])
def test_log_that_is_shortened_while_a_portal_runs_has_a_gap_once_it_writes(
    tmp_path: Path, shortened: Shortening, more: int
) -> None:
    path = tmp_path / "audit.jsonl"
    log = sink(path)
    for number in range(5):
        log.append({"event": "e", "number": number})
    shortened(path)
    for number in range(more):
        log.append({"event": "later", "number": number})
    files = sorted(tmp_path.glob("audit.jsonl*"), reverse=True)
    assert verify(files).problems
    before = verify(files).problems
    written_by_others(path, 5)  # nor does anybody who writes later close it
    assert verify(files).problems == before


def test_what_is_done_to_a_file_that_was_renamed_does_not_stop_the_log(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    old, log = path.with_name("audit.jsonl.1"), sink(path)
    log.append({"event": "e"})
    path.rename(old)
    with old.open("a") as file:
        file.write("the end\n")
    log.append({"event": "e"})
    assert problems(path, after=verify([old], is_mixed=True).head) == [] and problems(old)
