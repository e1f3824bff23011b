"""A log that is cut, replaced, emptied or rotated: what portals that run still know of it, and what `verify` finds."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from portal.audit.chain import Head
from portal.audit.sinks import FileSink
from portal.audit.verification import verify


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


def cut_within_a_line(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 5)


def replaced_by_a_shorter_copy(path: Path) -> None:
    copy = path.with_name("copy")
    copy.write_bytes(b"".join(lines_of(path)[:3]))
    copy.replace(path)


def renamed_and_cut(path: Path) -> None:
    path.rename(path.with_name("audit.jsonl.1"))
    cut(path.with_name("audit.jsonl.1"))


def cut_and_written_anew(path: Path) -> None:
    cut(path)
    written_by_others(path, 2)


def cut_and_written_on(path: Path) -> None:
    cut(path)
    written_by_others(path, 5)


def emptied_and_begun_anew(path: Path) -> None:
    os.truncate(path, 0)
    written_by_others(path, 7)


SHORTENINGS: list[Shortening] = [
    cut,
    cut_within_a_line,
    replaced_by_a_shorter_copy,
    renamed_and_cut,
    cut_and_written_anew,
    cut_and_written_on,
    emptied_and_begun_anew,
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


def test_log_that_is_shortened_while_two_portals_run_has_a_gap_whichever_writes_first(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    slow, log = sink(path), sink(path)
    slow.append({"event": "slow"})
    for _ in range(5):
        log.append({"event": "e"})
    cut(path)
    for _ in range(4):
        slow.append({"event": "slow"})
    assert problems(path) == []  # the one that knew of the lines has not written since
    log.append({"event": "e"})
    assert problems(path)


def test_log_that_two_portals_copy_and_empty_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log, another = sink(path), sink(path)
    log.append({"event": "e"})
    another.append({"event": "e"})
    copy = tmp_path / "audit.jsonl.1"
    copy.write_bytes(path.read_bytes())
    os.truncate(path, 0)
    another.append({"event": "e"})
    log.append({"event": "e"})
    assert problems(copy, path) == []


@pytest.mark.parametrize("newcomers_lines", [2, 3])
def test_portal_that_started_after_a_rotation_is_told_as_what_it_may_be(
    tmp_path: Path, newcomers_lines: int
) -> None:
    path, old = tmp_path / "audit.jsonl", tmp_path / "audit.jsonl.1"
    log = sink(path)
    for _ in range(3):
        log.append({"event": "e"})
    path.rename(old)
    written_by_others(path, newcomers_lines)
    log.append({"event": "e"})
    (alone,) = problems(path)
    place = f"audit.jsonl:{newcomers_lines + 1}: "
    assert alone.startswith(place) and "verify it with the file before" in alone
    anew, goes_on = problems(old, path)
    assert anew.startswith("audit.jsonl:1: ") and goes_on.startswith(place) and "it goes on from" in goes_on
    assert "it goes on from" in problems(path, after=verify([old]).head)[1]


def test_gap_that_no_rotation_leaves_is_not_told_as_one(tmp_path: Path) -> None:
    path, old = tmp_path / "audit.jsonl", tmp_path / "audit.jsonl.1"
    written_by_others(old, 3)
    written_by_others(path, 9)
    lines = lines_of(path)
    path.write_bytes(b"".join(lines[:4] + lines[5:]))
    assert not any("rotation" in each for each in problems(old, path))
    path.write_bytes(b"".join(lines[1:4] + lines[5:]))
    assert len(problems(path)) == 2 and not any("rotation" in each for each in problems(path))


def test_what_is_done_to_a_file_that_was_renamed_does_not_stop_the_log(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    old, log = path.with_name("audit.jsonl.1"), sink(path)
    log.append({"event": "e"})
    path.rename(old)
    with old.open("a") as file:
        file.write("the end\n")
    log.append({"event": "e"})
    assert problems(path, after=verify([old], is_mixed=True).head) == [] and problems(old)
