"""The compiled component: made once, kept in private, made again when it is damaged."""

import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox_runtime.aot import CACHE_VARIABLE, AotCache
from sandbox_runtime.errors import ComponentError

EMPTY_COMPONENT = b"\0asm\x0d\0\x01\0"
"""The smallest component there is; it compiles at once."""


@pytest.fixture
def component(tmp_path: Path) -> Path:
    path = tmp_path / "small.wasm"
    path.write_bytes(EMPTY_COMPONENT)
    return path


def test_second_use_finds_what_the_first_compiled(tmp_path: Path, component: Path) -> None:
    told: list[str] = []
    first = AotCache(tmp_path / "cache", told.append).compiled(component)
    second = AotCache(tmp_path / "cache", told.append).compiled(component)
    assert first == second
    assert len(told) == 1
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o702, 0o720])
def test_folder_that_others_may_write_is_not_trusted(tmp_path: Path, component: Path, mode: int) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(mode)
    told: list[str] = []
    cache = AotCache(folder, told.append)
    compiled = cache.compiled(component)
    assert list(folder.iterdir()) == []
    assert any(CACHE_VARIABLE in message for message in told)
    cache.close()
    assert not compiled.exists()


@pytest.fixture
def full_disk(component: Path) -> Iterator[Callable[[], None]]:
    """Once the component is written no file takes a byte, until this is called."""
    assert component.is_file()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def make_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield make_room
    finally:
        make_room()


def test_full_cache_folder_gives_way_to_a_temporary_one(
    tmp_path: Path, component: Path, full_disk: Callable[[], None]
) -> None:
    def progress(text: str) -> None:
        if CACHE_VARIABLE in text:
            full_disk()

    cache = AotCache(tmp_path / "cache", progress)
    compiled = cache.compiled(component)
    assert compiled.stat().st_size > 0
    assert list((tmp_path / "cache").iterdir()) == []
    cache.close()
    assert not compiled.exists()


NOEXEC = [
    "unshare",
    "--user",
    "--map-root-user",
    "--mount",
    "sh",
    "-c",
    'mount -t tmpfs -o noexec,mode=700 none "$0" && exec "$@"',
]
"""Runs a command with a folder of its own, from which no code is loaded."""


def has_noexec(folder: Path) -> bool:
    return sys.platform == "linux" and subprocess.run([*NOEXEC, str(folder), "true"]).returncode == 0


@pytest.mark.parametrize("temporary", ["elsewhere", "hardened"])
def test_folder_from_which_no_code_is_loaded_is_not_used(
    tmp_path: Path, component: Path, temporary: str
) -> None:
    for name in ("hardened", "elsewhere"):
        (tmp_path / name).mkdir()
    if not has_noexec(tmp_path / "hardened"):
        pytest.skip("no namespaces of mounts here")
    folders = {CACHE_VARIABLE: str(tmp_path / "hardened"), "TMPDIR": str(tmp_path / temporary)}
    command = [sys.executable, "-m", "sandbox_runtime.aot", str(component)]
    done = subprocess.run(
        [*NOEXEC, str(tmp_path / "hardened"), *command],
        env={**os.environ, **folders},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert str(tmp_path / "hardened") in done.stderr
    if temporary == "elsewhere":
        assert Path(done.stdout).is_relative_to(tmp_path / "elsewhere")
    else:
        assert "noexec" in done.stderr
        assert not done.stdout


def test_file_that_is_no_component_is_an_error(tmp_path: Path, component: Path) -> None:
    component.write_bytes(b"\0asm nonsense")
    with pytest.raises(ComponentError):
        AotCache(tmp_path / "cache", print).compiled(component)
    assert list((tmp_path / "cache").glob("*.partial")) == []
