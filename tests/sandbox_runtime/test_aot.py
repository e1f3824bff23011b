"""The compiled component: made once, kept in private, made again when it is damaged."""

import resource
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


def test_file_that_is_no_component_is_an_error(tmp_path: Path, component: Path) -> None:
    component.write_bytes(b"\0asm nonsense")
    with pytest.raises(ComponentError):
        AotCache(tmp_path / "cache", print).compiled(component)
    assert list((tmp_path / "cache").glob("*.partial")) == []
