"""The lockfile says what was accepted, and whatever was done to it is told with its line."""

import json
from pathlib import Path

import pytest

from manifests.errors import ManifestError, Problem
from manifests.loader import load_manifest
from manifests.own_files import HEADER, Lock, Pin, lock_path, lock_text, read_lock, write_lock

READ = Pin(
    "files", "read", "Read a file.", {"inputSchema": {"type": "object", "properties": {"a": {}, "b": {}}}}
)
WRITE = Pin("files", "write", "Write\u200b a file.\n", {"annotations": {"readOnlyHint": False}})
SAYS = Pin("files", None, "Be kind.")
PINS = [WRITE, READ, SAYS]


def of(text: str | bytes, folder: Path) -> Lock:
    path = folder / "portal.lock"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    lock = read_lock(path)
    assert lock is not None
    return lock


def problems(text: str | bytes, folder: Path) -> list[Problem]:
    with pytest.raises(ManifestError) as raised:
        of(text, folder)
    assert raised.value.file == "portal.lock"
    return list(raised.value.problems)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = lock_path(tmp_path / "portal.yaml")
    write_lock(path, PINS)
    lock = read_lock(path)
    assert path.name == "portal.lock" and lock is not None
    assert lock.pins == {("files", None): SAYS, ("files", "read"): READ, ("files", "write"): WRITE}
    assert lock.where("files", "read") == "portal.lock:3"
    assert lock.where("files", "none") == "portal.lock"
    assert [each.name for each in tmp_path.iterdir()] == ["portal.lock"]


def test_text_is_the_same_whatever_the_order_and_has_a_line_for_each_in_ascii() -> None:
    text = lock_text(PINS)
    assert text == lock_text(reversed(PINS))
    assert text.isascii() and text.endswith("\n")
    lines = text.splitlines()
    assert lines[0] == HEADER
    assert [json.loads(line)["tool"] for line in lines[1:]] == [None, "read", "write"]
    assert "\\u200b" in lines[3]


@pytest.mark.parametrize(
    "other",
    [
        Pin("files", "read", "Read a file. ", READ.definition),
        Pin("files", "read", "Read a file.", {}),
        Pin("files", "reads", "Read a file.", READ.definition),
    ],
)
def test_any_difference_makes_another_pin(other: Pin) -> None:
    assert not other.is_same(READ)


LINE = READ.line or ""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 1),
        ("# mcp-code-portal lock 2: of days to come\n" + LINE, 1),
        (HEADER + "\n<<<<<<< ours\n" + LINE + "\n", 2),
        (HEADER + "\n" + LINE + "\n" + LINE + "\n", 3),
        (HEADER + "\n" + LINE.replace("Read a", "Read the") + "\n", 2),
        (HEADER + "\n" + LINE.replace(": ", ":  ") + "\n", 2),
        (HEADER + "\n" + LINE.replace("Read", "Re\u200bad") + "\n", 2),
        (HEADER + "\nnull\n", 2),
        (HEADER + "\n" + "[" * 100_000 + "\n", 2),
        (HEADER.encode() + b"\n\xff\xfe\n", 2),
    ],
)
def test_whatever_else_stands_there_is_told_with_its_line(
    tmp_path: Path, text: str | bytes, line: int
) -> None:
    assert [problem.line for problem in problems(text, tmp_path)] == [line]


def test_manifest_has_the_lock_beside_it(tmp_path: Path) -> None:
    (tmp_path / "portal.yaml").write_text("upstreams: {}\n")
    assert load_manifest(tmp_path / "portal.yaml", {}).lock is None
    write_lock(tmp_path / "portal.lock", PINS)
    lock = load_manifest(tmp_path / "portal.yaml", {}).lock
    assert lock is not None and len(lock.pins) == 3
    (tmp_path / "portal.lock").write_text("")
    with pytest.raises(ManifestError):
        load_manifest(tmp_path / "portal.yaml", {})
