"""The build of the guest component knows when it has to happen, and a baked one is refused where it would not fit."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import sandbox_runtime
from sandbox_runtime.build_guest import Baked, GuestBuild, check_baked
from sandbox_runtime.errors import BakedComponentError
from tests.sandbox_runtime.test_aot import EMPTY_COMPONENT

PACKAGE = Path(sandbox_runtime.__file__).parent
BAKED = Baked(("tiny>=1",), GuestBuild(PACKAGE).fingerprint(), (("tiny", "1.0"),), ("tiny", "tiny_more"))


@pytest.mark.parametrize("changed", ["guest/entry.py", "guest/new.py", "wit/sandbox.wit", "build_guest.py"])
def test_changed_source_needs_a_build(tmp_path: Path, changed: str) -> None:
    copy = tmp_path / "sandbox_runtime"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", "guest.wasm"))
    (copy / "guest.wasm").write_bytes(b"")
    (copy / "guest.stamp").write_text(GuestBuild(copy).fingerprint() + "\n")
    assert GuestBuild(copy).is_current
    with (copy / changed).open("a") as file:
        file.write("\n# changed\n")
    assert not GuestBuild(copy).is_current


@pytest.mark.parametrize(
    "content",
    [
        b"",
        EMPTY_COMPONENT + b"\0\x03\x01x!",  # another tool's section
        EMPTY_COMPONENT + BAKED.section()[:-1],
        EMPTY_COMPONENT + BAKED.section().replace(b"fingerprint", b"FINGERPRINT"),
        EMPTY_COMPONENT + b"\0\xff\xff\xff\xff\xff\xff",
        b"no wasm at all",
    ],
)
def test_file_that_was_not_baked_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.wasm"
    path.write_bytes(content)
    assert Baked.read(path) is None
    with pytest.raises(BakedComponentError, match="not made by"):
        check_baked(path)


def test_component_of_another_version_is_refused_with_the_command_that_makes_it_again(tmp_path: Path) -> None:
    path = tmp_path / "baked.wasm"
    path.write_bytes(EMPTY_COMPONENT + replace(BAKED, fingerprint="0" * 64).section())
    with pytest.raises(BakedComponentError, match=r"mcp-code-portal bake 'tiny>=1' --out"):
        check_baked(path)
