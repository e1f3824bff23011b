"""The build of the guest component knows when it has to happen."""

import shutil
from pathlib import Path

import pytest

import sandbox_runtime
from sandbox_runtime.build_guest import GuestBuild

PACKAGE = Path(sandbox_runtime.__file__).parent


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    package = tmp_path / "sandbox_runtime"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__", "guest.wasm"))
    (package / "guest.wasm").write_bytes(b"")
    (package / "guest.stamp").write_text(GuestBuild(package).fingerprint() + "\n")
    return package


def test_unchanged_sources_need_no_build(copy: Path) -> None:
    assert GuestBuild(copy).is_current


@pytest.mark.parametrize("changed", ["guest/entry.py", "guest/new.py", "wit/sandbox.wit", "build_guest.py"])
def test_changed_source_needs_a_build(copy: Path, changed: str) -> None:
    with (copy / changed).open("a") as file:
        file.write("\n# changed\n")
    assert not GuestBuild(copy).is_current
