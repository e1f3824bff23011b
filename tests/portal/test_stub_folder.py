"""A killed portal's stubs are removed by the next one; a living one's never."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from portal.server.views import stub_folder


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_folder_of_a_process_that_ended_is_removed(temporary: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True
    )
    left = temporary / f"mcp-code-portal-{int(ended.stdout)}-abc"
    (left / "tools").mkdir(parents=True)
    new = stub_folder()
    assert new.is_dir()
    assert not left.exists()


def test_folders_of_the_living_and_of_strangers_stay(temporary: Path) -> None:
    kept = [
        temporary / name
        for name in (f"mcp-code-portal-{os.getpid()}-x", "mcp-code-portal-notes-x", "other-1-x")
    ]
    for folder in kept:
        folder.mkdir()
    stub_folder()
    assert all(folder.exists() for folder in kept)
