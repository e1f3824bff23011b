"""Keeps shapes on disk, for the next portal over the same manifest: one file for each upstream."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, Literal

from pydantic import TypeAdapter, ValidationError

from manifests.json_value import Json
from manifests.own_files import is_private, write_whole
from portal.observed.shape import Shape, merged, schema_of

MAX_FILE_BYTES: Final = 4 * 1024 * 1024
"""Of one upstream's file. Of tools that do not fit, those whose shapes changed longest ago are left out."""


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


@dataclass(frozen=True)
class _File:
    format: Literal[1]
    tools: dict[str, Observed]


_FILE: Final = TypeAdapter(_File)


class ShapeStore:
    """One folder, private to this user, which several portals may use at once. Its methods block.

    What lies there is believed only if it reads as shapes. `scope` tells manifests apart that use one name for
    different upstreams. Of two portals that save at the same moment, one loses what it learnt last.
    """

    def __init__(self, folder: Path, scope: str) -> None:
        self._folder = folder
        self._scope = scope

    def load(self, upstream: str) -> dict[str, Observed]:
        """What is kept about the tools of an upstream, by their names; nothing, if its file cannot be read."""
        if not is_private(self._folder):
            return {}
        try:
            with self._file(upstream).open("rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
            return _FILE.validate_json(data).tools if len(data) <= MAX_FILE_BYTES else {}
        except (OSError, ValidationError):
            return {}

    def save(self, upstream: str, tools: Mapping[str, Observed]) -> None:
        """Keep this, together with what other portals learnt meanwhile.

        Raises:
            OSError: The folder cannot be written.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not is_private(self._folder):
            raise PermissionError("the folder could be changed by other users")
        theirs = self.load(upstream)
        together = {name: each for name, each in theirs.items() if name not in tools}
        for name, own in tools.items():  # last, because they are the latest
            other = theirs.get(name)
            is_same = other is not None and other.definition == own.definition
            together[name] = other.and_also(own) if other is not None and is_same else own
        write_whole(self._file(upstream), _bytes(together), is_lasting=False)

    def _file(self, upstream: str) -> Path:
        name = hashlib.sha256(f"{self._scope}\n{upstream}".encode(errors="surrogatepass")).hexdigest()
        return self._folder / f"{name[:32]}.json"


def _bytes(tools: Mapping[str, Observed]) -> bytes:
    names = [name for name in tools if name.isprintable()]
    while True:
        data = _FILE.dump_json(_File(1, {name: tools[name] for name in names}), exclude_defaults=True)
        if len(data) <= MAX_FILE_BYTES:
            return data
        names = names[len(names) // 2 :]
