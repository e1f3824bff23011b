"""An audit log: one chain whoever writes it, and whatever is done to its lines is found."""

import random
import resource
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from portal.base.errors import AuditError
from portal.records.audit.chain import FileSink, Head, linked, verify


def sink(folder: Path) -> FileSink:
    return FileSink(folder / "audit.jsonl", is_durable=False)


def written(folder: Path, lines: int = 10) -> Path:
    log = sink(folder)
    for number in range(lines):
        log.append({"event": "e", "number": number})
    log.close()
    return folder / "audit.jsonl"


def problems(*files: Path, **more: Head | bool) -> list[str]:
    return verify(files, **more).problems  # type: ignore[arg-type]  # as the caller writes them


def test_log_that_nobody_touched_is_whole_and_the_owners_alone(tmp_path: Path) -> None:
    path = written(tmp_path)
    report = verify([path])
    assert (report.lines, report.head.seq, report.problems) == (10, 10, [])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


Damage = Callable[[list[bytes]], list[bytes]]
DAMAGES: list[tuple[Damage, int]] = [
    (lambda lines: [*lines[:4], lines[4].replace(b'"number": 4', b'"number": 5'), *lines[5:]], 5),
    (lambda lines: [*lines[:4], *lines[5:]], 5),
    (lambda lines: lines[1:], 1),
    (lambda lines: [*lines[:4], lines[5], lines[4], *lines[6:]], 5),
    (lambda lines: [*lines[:4], lines[4], lines[4], *lines[5:]], 6),
    (lambda lines: [*lines[:4], b"{}\n", *lines[4:]], 5),
    (lambda lines: [*lines[:4], b"\n", *lines[4:]], 5),
    (lambda lines: [*lines[:9], lines[9][:-5]], 10),
    (lambda lines: [*lines[:4], linked(Head(4, "0" * 64), {"event": "forged"})[0], *lines[5:]], 5),
    (lambda lines: [*lines[:4], b"x" * 1_000_000 + b"\n", *lines[4:]], 5),
]


@pytest.mark.parametrize(("damage", "line"), DAMAGES)
def test_damage_is_found_at_its_line(tmp_path: Path, damage: Damage, line: int) -> None:
    path = written(tmp_path)
    path.write_bytes(b"".join(damage(path.read_bytes().splitlines(keepends=True))))
    assert problems(path)[0].startswith(f"audit.jsonl:{line}: ")


def test_every_single_byte_that_is_altered_is_found(tmp_path: Path) -> None:
    path = written(tmp_path, 3)
    whole = path.read_bytes()
    for place in random.Random(1).sample(range(len(whole) - 1), 300):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert problems(path), place


def test_lines_off_the_end_are_found_by_a_head_that_was_noted(tmp_path: Path) -> None:
    path = written(tmp_path)
    head = verify([path]).head
    assert problems(path, known=head) == []
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:7]))
    assert problems(path) == []  # and this is all that the log itself can tell
    assert len(problems(path, known=head)) == 1
    written(tmp_path)  # the portal goes on
    assert verify([path]).head.seq == 17
    assert problems(path) == [] and len(problems(path, known=head)) == 1


def test_portals_that_share_a_file_make_one_chain(tmp_path: Path) -> None:
    logs = [sink(tmp_path) for _ in range(3)]
    for number in range(30):
        logs[number * 7 % 3].append({"event": "e"})
    assert verify([tmp_path / "audit.jsonl"]).head.seq == 30
    assert problems(tmp_path / "audit.jsonl") == []


@pytest.mark.parametrize("others", [0, 1])
def test_chain_goes_on_in_a_new_file_when_the_old_is_renamed(tmp_path: Path, others: int) -> None:
    path, old = tmp_path / "audit.jsonl", tmp_path / "audit.jsonl.1"
    log, another = sink(tmp_path), sink(tmp_path)
    log.append({"event": "e"})
    for _ in range(others):
        another.append({"event": "e"})
    path.rename(old)
    log.append({"event": "e"})
    another.append({"event": "e"})
    assert verify([old, path]).head.seq == 3 + others
    assert problems(old, path) == []
    assert problems(path)  # alone it does not begin at the beginning
    assert problems(path, after=verify([old]).head) == []
    assert problems(path, old)


@pytest.mark.parametrize("content", [b"upstreams: {}\n", b"upstreams: {}", b"{}\n", b"\n", b"\xff" * 100_000])
def test_file_of_somebody_else_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_bytes(content)
    path.chmod(0o644)
    with pytest.raises(AuditError):
        sink(tmp_path).append({"event": "e"})
    assert path.read_bytes() == content and stat.S_IMODE(path.stat().st_mode) == 0o644


def test_log_whose_last_line_was_altered_is_not_gone_on_with(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_bytes(path.read_bytes().replace(b'"number": 9', b'"number": 8'))
    with pytest.raises(AuditError):
        sink(tmp_path).append({"event": "e"})


@pytest.mark.parametrize("room", [0, 20])
def test_line_for_which_the_disk_has_no_room_is_not_there_and_the_next_one_is(
    tmp_path: Path, room: int
) -> None:
    log = sink(tmp_path)
    log.append({"event": "e"})
    path = tmp_path / "audit.jsonl"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + room, limits[1]))
        with pytest.raises(OSError):
            log.append({"event": "lost"})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    log.append({"event": "e"})
    assert verify([path]).head.seq == 2 and problems(path) == []


def test_log_that_was_written_anew_while_the_portal_ran_is_found(tmp_path: Path) -> None:
    """An attacker who can compute hashes forges it, and makes it longer than it was."""
    log = sink(tmp_path)
    for number in range(3):
        log.append({"event": "e", "number": number})
    path, head, lines = tmp_path / "audit.jsonl", Head(0, "0" * 64), []
    for number in range(5):
        line, head = linked(head, {"event": "forged", "number": number})
        lines.append(line)
    path.write_bytes(b"".join(lines))
    log.append({"event": "e", "number": 3})
    assert problems(path)[0].startswith("audit.jsonl:6: ")
