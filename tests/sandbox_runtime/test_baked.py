"""A baked component says what it holds, and is refused where it would not fit."""

from dataclasses import replace
from pathlib import Path

import pytest

from sandbox_runtime.build_guest import Baked, GuestBuild, check_baked
from sandbox_runtime.errors import BakedComponentError
from tests.sandbox_runtime.test_aot import EMPTY_COMPONENT
from tests.sandbox_runtime.test_build_guest import PACKAGE

BAKED = Baked(("tiny>=1",), GuestBuild(PACKAGE).fingerprint(), (("tiny", "1.0"),), ("tiny", "tiny_more"))
FOREIGN = b"\0\x03\x01x!"
"""Somebody else's section."""


def component(folder: Path, *sections: bytes) -> Path:
    path = folder / "baked.wasm"
    path.write_bytes(EMPTY_COMPONENT + b"".join(sections))
    return path


@pytest.mark.parametrize(
    "content",
    [
        b"",
        EMPTY_COMPONENT,
        EMPTY_COMPONENT + FOREIGN,
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
    other = replace(BAKED, fingerprint="0" * 64)
    with pytest.raises(BakedComponentError, match=r"mcp-code-portal bake 'tiny>=1' --out"):
        check_baked(component(tmp_path, other.section()))
