"""Compiled namespaces on disk, so that a portal that starts need not compile again what did not change."""

import contextlib
import hashlib
import importlib.metadata
import json
import os
from functools import cached_property
from pathlib import Path
from typing import Final

from pydantic_core import from_json

from manifests import reserved
from manifests.own_folders import is_private
from manifests.whole_file import write_whole
from portal.library.namespace import LibrarySource, Namespace
from portal.library.namespace_json import NotANamespaceError, namespace_json, read_namespace

MAX_BYTES: Final = 256 * 1024 * 1024
"""Of all files together; beyond it, those that were not used for longest are removed."""

MAX_FILE_BYTES: Final = 64 * 1024 * 1024
"""A namespace that takes more is compiled each time."""

_HASH_BYTES: Final = 32


class NamespaceCache:
    """One folder, private to this user, which several portals may use at once. Its methods block; none raises.

    What is there is named by everything it was made of: the definitions, and the compiler. Each file begins with the
    hash of the rest. A file that is damaged, or that somebody else could have written, is as good as none.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._is_pruned = False

    def load(self, source: LibrarySource, digest: str) -> Namespace | None:
        """The namespace of this source, if it is there."""
        file = self._file(digest)
        try:
            data = _read(file) if is_private(self._folder) else None
            if data is None:
                return None
            namespace = read_namespace(from_json(data), source, digest)
            os.utime(file)
        except (OSError, NotANamespaceError, ValueError):
            return None
        return namespace

    def store(self, namespace: Namespace) -> None:
        """Keep it for the next time, if the disk allows."""
        assert namespace.digest is not None, "what cannot be digested cannot be found again"
        with contextlib.suppress(OSError, RecursionError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            data = json.dumps(namespace_json(namespace), separators=(",", ":")).encode()
            if is_private(self._folder) and len(data) < MAX_FILE_BYTES:
                file = self._file(namespace.digest)
                write_whole(file, hashlib.sha256(data).digest() + data, is_lasting=False)
                self._prune()

    def _file(self, digest: str) -> Path:
        key = hashlib.sha256(f"{self._compiler} {digest}".encode()).hexdigest()
        return self._folder / f"{key[:40]}.json"

    @cached_property
    def _compiler(self) -> str:
        """What compiled namespaces depend on beside their definitions: the version, and the code itself.

        Names of parameters come from `manifests`.
        """
        known = hashlib.sha256(importlib.metadata.version("mcp-code-portal").encode())
        folders = Path(__file__).parent, Path(reserved.__file__).parent
        for file in sorted(file for folder in folders for file in folder.rglob("*.py")):
            known.update(file.read_bytes())
        return known.hexdigest()

    def _prune(self) -> None:
        """Once for each portal: it never stores more than its own upstreams after that."""
        if self._is_pruned:
            return
        self._is_pruned = True
        files = sorted(
            ((each.stat(), each) for each in self._folder.iterdir()), key=lambda pair: pair[0].st_mtime
        )
        excess = sum(status.st_size for status, _ in files) - MAX_BYTES
        for status, file in files:
            if excess <= 0:
                break
            file.unlink(missing_ok=True)
            excess -= status.st_size


def _read(file: Path) -> bytes | None:
    with file.open("rb") as opened:
        status = os.fstat(opened.fileno())
        if status.st_uid != os.geteuid() or status.st_mode & 0o022 or status.st_size > MAX_FILE_BYTES:
            return None
        data = opened.read(MAX_FILE_BYTES + 1)
    known, rest = data[:_HASH_BYTES], data[_HASH_BYTES:]
    return rest if hashlib.sha256(rest).digest() == known else None
