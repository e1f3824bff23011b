"""The files of a manifest as somebody read them: what accepts, shows and parses them works on the same bytes."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from manifests.errors import ManifestError


@dataclass(frozen=True)
class ManifestFiles:
    """`contents` by path, relative to the folder of the manifest. A file that does not exist is not in it.

    If one could not be read, `problem` says why, and so does its content.
    """

    path: Path
    contents: Mapping[str, bytes] = field(repr=False)
    problem: ManifestError | None = None
    hashes: Mapping[str, str] = field(init=False)
    """The sha256 of each file, computed by the thread that reads them: a component may be large."""

    def __post_init__(self) -> None:
        hashes = {name: hashlib.sha256(content).hexdigest() for name, content in self.contents.items()}
        object.__setattr__(self, "hashes", hashes)


def differing(one: Mapping[str, str], other: Mapping[str, str]) -> tuple[str, ...]:
    """The files that differ, or are missing in one."""
    return tuple(sorted(name for name in {*one, *other} if one.get(name) != other.get(name)))
