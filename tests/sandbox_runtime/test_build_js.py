"""The build of the JavaScript component knows when it has to happen, and gives the same image each time."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sandbox_runtime
from sandbox_runtime import build_js
from sandbox_runtime.build_js import JsBuild
from sandbox_runtime.errors import BakeToolsError

PACKAGE = Path(sandbox_runtime.__file__).parent


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    copy = tmp_path / "sandbox_runtime"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", "guest.wasm"))
    return copy


@pytest.mark.parametrize(
    "changed", ["guest_js/guest.c", "guest_js/library.js", "guest_js/new.js", "build_js.py"]
)
def test_changed_source_needs_a_build(copy: Path, changed: str) -> None:
    assert JsBuild(copy).is_current
    with (copy / changed).open("a") as file:
        file.write("\n")
    assert not JsBuild(copy).is_current


def test_two_builds_are_identical(copy: Path) -> None:
    """The compiled QuickJS is kept from the first build, which scripts/setup made; our JavaScript is loaded anew."""
    build, before = JsBuild(copy), (PACKAGE / "js.wasm").read_bytes()
    build.component.unlink()
    build.build(print)
    assert build.component.read_bytes() == before
    assert build.is_current


def test_kept_quickjs_is_used_only_if_no_one_else_can_write_it(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builds: list[Path] = []

    def compile_core(guest: Path, _: Path) -> bytes:
        builds.append(guest)
        return b"compiled"

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(build_js, "compile_core", compile_core)
    monkeypatch.setattr(build_js, "make_image", lambda core, *_: core)
    monkeypatch.setattr(build_js, "component_around", lambda image: image)
    build = JsBuild(copy)
    for _ in range(2):
        build.build(print)
    assert len(builds) == 1
    [kept] = build_js.cache_folder(os.environ).iterdir()
    kept.parent.chmod(0o777)
    build.build(print)
    assert len(builds) == 2 and build.component.read_bytes() == b"compiled"


def test_build_without_its_tools_names_the_missing_one(copy: Path) -> None:
    run = (
        f"import sys; sys.path[:0] = [{str(copy.parent)!r}]; sys.path.append({str(PACKAGE.parent)!r})\n"
        "from sandbox_runtime.build_js import JsBuild; from pathlib import Path\n"
        f"JsBuild(Path({str(copy)!r})).build(print)"
    )
    done = subprocess.run([sys.executable, "-S", "-c", run], capture_output=True, text=True, timeout=60)
    assert done.returncode and BakeToolsError.__name__ in done.stderr and "is not installed" in done.stderr
