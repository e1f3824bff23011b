"""Files that are there whole or as they were before."""

import os
import resource
import stat
from pathlib import Path

import pytest

from manifests.own_files import ORDINARY, UNFINISHED, write_whole


def test_a_file_is_made_for_its_owner_only(tmp_path: Path) -> None:
    write_whole(tmp_path / "kept", b"new")
    assert (tmp_path / "kept").read_bytes() == b"new"
    assert stat.S_IMODE((tmp_path / "kept").stat().st_mode) == 0o600


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0o077, 0o600)])
def test_an_ordinary_file_is_for_whom_the_mask_allows(tmp_path: Path, mask: int, mode: int) -> None:
    before = os.umask(mask)
    try:
        write_whole(tmp_path / "shared", b"", mode=ORDINARY)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "shared").stat().st_mode) == mode


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
        """The bytes of a file, and what is to be seen meanwhile."""
        fsync(descriptor)
        seen.append((os.fstat(descriptor).st_size, (tmp_path / "kept").read_bytes()))

    monkeypatch.setattr(os, "fsync", noting_fsync)
    write_whole(tmp_path / "kept", b"new", is_lasting=is_lasting)
    assert seen == kept
    assert (tmp_path / "kept").read_bytes() == b"new"
