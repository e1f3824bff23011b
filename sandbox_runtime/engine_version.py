"""Which engine is installed: the wheel's version says only which bindings, the library itself says which engine."""

import importlib.metadata
import mmap
import re
from dataclasses import dataclass
from pathlib import Path

import wasmtime._ffi as ffi

# From the text with which the engine reports its own bugs.
_TOLD = re.compile(rb"version: (\d+)\.(\d+)\.(\d+)\n\nThis is a bug in Wasmtime")


@dataclass(frozen=True, slots=True)
class InstalledEngine:
    """`wheel` is the version of the Python package; the engine's own version may be an older one."""

    version: tuple[int, ...]
    wheel: str
    is_certain: bool


def installed_engine() -> InstalledEngine:
    """Look into the library that is loaded; 20 ms. Where it does not tell, the wheel's version has to do."""
    wheel = importlib.metadata.version("wasmtime")
    told = _told(Path(ffi.dll._name))
    if told is not None:
        return InstalledEngine(told, wheel, True)
    return InstalledEngine(tuple(int(part) for part in re.findall(r"\d+", wheel)[:3]), wheel, False)


def _told(library: Path) -> tuple[int, ...] | None:
    try:
        with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            found = _TOLD.search(content)
            return tuple(map(int, found.groups())) if found else None
    except (OSError, ValueError):
        return None
