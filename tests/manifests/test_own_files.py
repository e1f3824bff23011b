"""The portal's own files: their folders, atomic writes, and the lockfile."""

import json
import os
import resource
import stat
import sys
from pathlib import Path

import pytest

from manifests.errors import ManifestError
from manifests.own_files import (
    HEADER,
    ORDINARY,
    UNFINISHED,
    Pin,
    cache_folder,
    is_private,
    lock_path,
    lock_text,
    read_lock,
    state_folder,
    write_lock,
    write_whole,
)

READ = Pin(
    "files", "read", "Read a file.", {"inputSchema": {"type": "object", "properties": {"a": {}, "b": {}}}}
)
WRITE = Pin("files", "write", "Write\u200b a file.\n", {"annotations": {"readOnlyHint": False}})
SAYS = Pin("files", None, "Be kind.")
PINS = [WRITE, READ, SAYS]
LINE = READ.line or ""


@pytest.mark.skipif(sys.platform != "linux", reason="macOS has other places")
@pytest.mark.parametrize(
    ("xdg", "cache", "state"),
    [
        ({}, "/home/x/.cache", "/home/x/.local/state"),
        ({"XDG_CACHE_HOME": "/c", "XDG_STATE_HOME": "/s"}, "/c", "/s"),
        ({"XDG_CACHE_HOME": "c", "XDG_STATE_HOME": "s"}, "/home/x/.cache", "/home/x/.local/state"),
    ],
)
def test_folders_are_those_of_xdg_if_absolute(xdg: dict[str, str], cache: str, state: str) -> None:
    environ = {"HOME": "/home/x", **xdg}
    assert cache_folder(environ) == Path(cache) / "mcp-code-portal"
    assert state_folder(environ) == Path(state) / "mcp-code-portal"


def test_a_folder_is_private_while_only_its_owner_can_write_there(tmp_path: Path) -> None:
    for mode, expected in (0o700, True), (0o755, True), (0o775, False):
        tmp_path.chmod(mode)
        assert is_private(tmp_path) is expected
    assert not is_private(tmp_path / "missing")


@pytest.mark.parametrize(
    ("wanted", "mask", "mode"),
    [({}, 0o022, 0o600), *(({"mode": ORDINARY}, mask, 0o666 & ~mask) for mask in (0o022, 0o027, 0o077))],
)
def test_a_file_is_for_its_owner_only_and_an_ordinary_one_for_whom_the_mask_allows(
    tmp_path: Path, wanted: dict[str, int], mask: int, mode: int
) -> None:
    before = os.umask(mask)
    try:
        write_whole(tmp_path / "kept", b"new", **wanted)
    finally:
        os.umask(before)
    assert (tmp_path / "kept").read_bytes() == b"new"
    assert stat.S_IMODE((tmp_path / "kept").stat().st_mode) == mode


def test_a_file_that_finds_no_room_leaves_the_former_one(tmp_path: Path) -> None:
    write_whole(tmp_path / "kept", b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            write_whole(tmp_path / "kept", b"new" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (tmp_path / "kept").read_bytes() == b"old"
    assert not list(tmp_path.glob(f"{UNFINISHED}*"))


@pytest.mark.parametrize(("is_lasting", "kept"), [(True, [(3, b"old")]), (False, [])])
def test_a_file_is_on_the_disk_before_it_takes_the_place_of_the_former(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_lasting: bool, kept: list[tuple[int, bytes]]
) -> None:
    write_whole(tmp_path / "kept", b"old")
    seen: list[tuple[int, bytes]] = []
    fsync = os.fsync

    def noting_fsync(descriptor: int) -> None:
        """The bytes of a file, and a check that runs during the write."""
        fsync(descriptor)
        seen.append((os.fstat(descriptor).st_size, (tmp_path / "kept").read_bytes()))

    monkeypatch.setattr(os, "fsync", noting_fsync)
    write_whole(tmp_path / "kept", b"new", is_lasting=is_lasting)
    assert seen == kept
    assert (tmp_path / "kept").read_bytes() == b"new"


def test_lock_that_is_written_is_read(tmp_path: Path) -> None:
    path = lock_path(tmp_path / "portal.yaml")
    write_lock(path, PINS)
    lock = read_lock(path)
    assert path.name == "portal.lock" and lock is not None
    assert lock.pins == {("files", None): SAYS, ("files", "read"): READ, ("files", "write"): WRITE}
    assert (lock.where("files", "read"), lock.where("files", "none")) == ("portal.lock:3", "portal.lock")
    assert [each.name for each in tmp_path.iterdir()] == ["portal.lock"]


def test_lock_is_the_same_whatever_the_order_and_has_a_line_for_each_in_ascii() -> None:
    text = lock_text(PINS)
    assert text == lock_text(reversed(PINS))
    assert text.isascii() and text.endswith("\n")
    header, *lines = text.splitlines()
    assert (header, [json.loads(line)["tool"] for line in lines]) == (HEADER, [None, "read", "write"])
    assert "\\u200b" in lines[2]


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
        (HEADER + "\n\udcff\udcfe\n", 2),
    ],
)
def test_whatever_else_stands_in_a_lock_is_told_with_its_line(tmp_path: Path, text: str, line: int) -> None:
    (tmp_path / "portal.lock").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ManifestError) as refused:
        read_lock(tmp_path / "portal.lock")
    assert refused.value.file == "portal.lock"
    assert [problem.line for problem in refused.value.problems] == [line]
