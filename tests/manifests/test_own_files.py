"""Where the portal keeps what it makes for itself."""

import os
import sys
from pathlib import Path

import pytest

from manifests.own_files import cache_folder, is_private, state_folder

linux = pytest.mark.skipif(sys.platform != "linux", reason="macOS has other places")


@linux
def test_folders_lie_in_the_users_home() -> None:
    assert cache_folder({"HOME": "/home/x"}) == Path("/home/x/.cache/mcp-code-portal")
    assert state_folder({"HOME": "/home/x"}) == Path("/home/x/.local/state/mcp-code-portal")


@linux
def test_xdg_folders_are_used_where_they_are_absolute() -> None:
    assert cache_folder({"HOME": "/home/x", "XDG_CACHE_HOME": "/c"}) == Path("/c/mcp-code-portal")
    assert state_folder({"HOME": "/home/x", "XDG_STATE_HOME": "/s"}) == Path("/s/mcp-code-portal")
    assert cache_folder({"HOME": "/home/x", "XDG_CACHE_HOME": "c"}) == Path("/home/x/.cache/mcp-code-portal")


def test_a_folder_is_private_while_only_its_owner_can_write_there(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir(mode=0o700)
    assert is_private(folder)
    os.chmod(folder, 0o755)
    assert is_private(folder)
    os.chmod(folder, 0o775)
    assert not is_private(folder)
    assert not is_private(tmp_path / "missing")
