"""Keeps shapes on disk, for the next portal over the same manifest: one file for each upstream."""

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from manifests.json_value import Json
from manifests.own_folders import is_private
from manifests.whole_file import UNFINISHED, write_whole
from portal.observed.shape import Shape, merged
from portal.observed.shape_json import read_shape, schema_of, stored

MAX_FILE_BYTES: Final = 4 * 1024 * 1024
"""Of one upstream's file; of what does not fit, the tools whose shapes changed longest ago are left out."""

MAX_FILES: Final = 1_000
"""Upstreams in the folder; those that nobody learnt anything about for longest are removed."""

_FORMAT: Final = 1
_LOCK_SECONDS: Final = 2.0
_POLL_SECONDS: Final = 0.02
_UNFINISHED_SECONDS: Final = 3600
_MAX_NAME: Final = 200


@dataclass(frozen=True)
class Observed:
    """What is known of one tool's results, as long as its definition has this hash."""

    definition: str
    shape: Shape
    mismatch: str = ""
    """Where results were not what the tool declares; without any value of them."""

    def and_also(self, other: "Observed") -> "Observed":
        """What both say, of one definition; the same object where that is nothing new."""
        shape, told = merged(self.shape, other.shape), self.mismatch or other.mismatch
        is_same = shape == self.shape and told == self.mismatch
        return self if is_same else Observed(self.definition, shape, told)

    @cached_property
    def schema(self) -> Json:
        """The shape as a JSON Schema; always the same object, so that it is cheap to see that nothing changed."""
        return schema_of(self.shape)


class ShapeStore:
    """One folder, private to this user, which several portals may use at once. Its methods block.

    What lies there is believed only if it reads as shapes. `scope` tells manifests apart that use one name for
    different upstreams.
    """

    def __init__(self, folder: Path, scope: str) -> None:
        self._folder = folder
        self._scope = scope

    def load(self, upstream: str) -> dict[str, Observed]:
        """What is kept about the tools of an upstream, by their names; nothing, if its file cannot be read."""
        return _read(self._file(upstream)) if is_private(self._folder) else {}

    def save(
        self, upstream: str, tools: Mapping[str, Observed], outdated: Collection[str] = ()
    ) -> dict[str, Observed]:
        """Keep this, together with what other portals learnt meanwhile of the same definitions; all that is kept.

        Of the tools in `outdated` nothing is kept but what is in `tools`.

        Raises:
            OSError: The folder cannot be written, or another portal holds it for seconds.
        """
        file = self._file(upstream)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not is_private(self._folder):
            raise PermissionError("the folder could be changed by other users")
        with _locked(self._folder / ".lock"):
            theirs = {name: each for name, each in _read(file).items() if name not in outdated}
            together = _together(theirs, tools)
            write_whole(file, _text(together), is_lasting=False)
            _prune(self._folder)
        return together

    def _file(self, upstream: str) -> Path:
        name = hashlib.sha256(f"{self._scope}\n{upstream}".encode(errors="surrogatepass")).hexdigest()
        return self._folder / f"{name[:32]}.json"


def _together(theirs: Mapping[str, Observed], ours: Mapping[str, Observed]) -> dict[str, Observed]:
    """Ours last, because they are the latest. Another definition than ours is a former one."""
    together = {name: each for name, each in theirs.items() if name not in ours}
    for name, own in ours.items():
        other = theirs.get(name)
        is_same = other is not None and other.definition == own.definition
        together[name] = other.and_also(own) if other is not None and is_same else own
    return together


def _read(file: Path) -> dict[str, Observed]:
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_FILE_BYTES + 1)
        whole = json.loads(data) if len(data) <= MAX_FILE_BYTES else None
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(whole, dict) or whole.get("format") != _FORMAT:
        return {}
    tools = whole.get("tools")
    return dict(_entries(tools)) if isinstance(tools, dict) else {}


def _entries(tools: dict[str, Json]) -> Iterator[tuple[str, Observed]]:
    for name, entry in tools.items():
        definition = entry.get("definition") if isinstance(entry, dict) else None
        shape = read_shape(entry.get("shape")) if isinstance(definition, str) else None
        if shape is not None and isinstance(definition, str) and len(name) <= _MAX_NAME:
            told = entry.get("mismatch", "")
            yield name, Observed(definition, shape, told if isinstance(told, str) else "")


def _text(tools: Mapping[str, Observed]) -> bytes:
    left = MAX_FILE_BYTES - 1000
    kept: list[str] = []
    for name, each in reversed([*tools.items()]):
        told = {"mismatch": each.mismatch} if each.mismatch else {}
        entry = json.dumps({"definition": each.definition, "shape": stored(each.shape), **told})
        line = f"{json.dumps(name)}: {entry}"
        left -= len(line) + 2
        if left < 0:
            break
        kept.append(line)
    inner = ",\n".join(reversed(kept))
    return f'{{"format": {_FORMAT}, "tools": {{\n{inner}\n}}}}\n'.encode()


def _prune(folder: Path) -> None:
    files = sorted(folder.glob("*.json"), key=_modified)
    for file in files[: max(0, len(files) - MAX_FILES)]:
        with contextlib.suppress(OSError):
            file.unlink()
    for left in folder.glob(f"{UNFINISHED}*"):
        with contextlib.suppress(OSError):
            if time.time() - _modified(left) > _UNFINISHED_SECONDS:
                left.unlink()


def _modified(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock that other portals respect; one that dies lets go of it."""
    import fcntl  # not on Windows, where this module must still be importable

    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + _LOCK_SECONDS
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)
