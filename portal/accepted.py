"""The files of a manifest that a person accepted: copies in the state folder, on which portals and commands run.

A script that may write the manifest's folder must not decide what scripts may do. So what changes while a portal runs
waits until a person accepts it, also after a restart: desktop clients restart the portal without a person.
"""

import hashlib
import json
import os
import shlex
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import structlog

from manifests.errors import ManifestError
from manifests.loader import read_files, written
from manifests.manifest import Manifest
from manifests.own_files import ManifestFiles, differing, state_folder, write_whole
from portal.running import RunningPortal, running_portals

log = structlog.get_logger()

WATCHED_SECONDS: Final = 3.0
"""A portal that was killed counts as running for so long after its last sign of life."""

UNTIL_ACCEPTED: Final = 1e9
"""Seconds that never end: a change waits until somebody accepts it."""


class Acceptance:
    """What was accepted of the manifest at a path.

    It is found by that path as it is written, because a link may lead elsewhere tomorrow, and by where the path leads,
    because somebody else may take another one there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        root = state_folder(os.environ) / "accepted"
        self._names = [root / hashlib.sha256(os.fsencode(way)).hexdigest()[:32] for way in _ways(path)]
        self.folder = next((each for each in self._names if each.exists()), self._names[0])
        self._record, self._until = self.folder / "accepted.json", self.folder / "until"

    def hashes(self) -> Mapping[str, str] | None:
        """The hashes of the accepted files; None if nothing was accepted."""
        with suppress(OSError, ValueError):
            return dict(json.loads(self._record.read_bytes()))
        return None

    def files(self) -> ManifestFiles | None:
        """The accepted files; None if nothing was accepted, or a copy is damaged."""
        hashes = self.hashes() or {}
        with suppress(OSError):
            contents = {name: self._copy(name, sha256).read_bytes() for name, sha256 in hashes.items()}
            files = ManifestFiles(self.path, contents)
            return files if hashes and files.hashes == hashes else None
        return None

    def accept(self, files: ManifestFiles) -> None:
        """Keep exactly these files as the accepted ones; no earlier change waits any more. Raises OSError."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name in self._names:
            with suppress(FileExistsError):
                name.symlink_to(self.folder.resolve())
        copies = {self._copy(name, files.hashes[name]): content for name, content in files.contents.items()}
        for copy, content in copies.items():
            if not copy.exists():
                write_whole(copy, content)
        write_whole(self._record, json.dumps(files.hashes).encode())
        self.hold(0)
        if not portals_of(self.path):  # they may use their component for long
            for path in {*self.folder.iterdir()} - {*copies, self._record, self._until}:
                path.unlink(missing_ok=True)

    def with_copies(self, manifest: Manifest) -> Manifest:
        """The same with the copy of its component, if that is kept: nobody changes it."""
        server = manifest.portal.server
        name = server.component or ""
        copy = self._copy(name, manifest.hashes.get(name, ""))
        if name and copy.is_file():
            server = server.model_copy(update={"component": str(copy)})
        return replace(manifest, portal=manifest.portal.model_copy(update={"server": server}))

    def hold(self, seconds: float) -> None:
        """Let changes wait that are made until so many seconds from now."""
        until = time.time() + seconds
        with suppress(OSError):
            self._until.touch(0o600)
            os.utime(self._until, (until, until))

    def held_until(self) -> float:
        """The time until which changes wait, on the clock of the file system."""
        with suppress(OSError):
            return self._until.stat().st_mtime
        return 0.0

    def note_end(self) -> None:
        """A portal has ended. What changed before waits; what changes from now on does not."""
        is_same = False
        with suppress(OSError, ManifestError):
            is_same = self.hashes() in (None, read_files(self.path, os.environ).hashes)
        self.hold(0 if is_same else UNTIL_ACCEPTED)

    def _copy(self, name: str, sha256: str) -> Path:
        return self.folder / f"{sha256}-{Path(name).name[-100:]}"


def portals_of(path: Path) -> list[RunningPortal]:
    """The running portals of a manifest, by whichever path they were started."""
    ways = {*_ways(path)}
    return [each for each in running_portals() if each.manifest and ways & {*_ways(Path(each.manifest))}]


def _ways(path: Path) -> tuple[str, str]:
    """The path, also by where its folder is. A link to a file is a manifest of its own: so is what lies beside it."""
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.join(folder, name), os.path.join(os.path.realpath(folder), name)


def choose_files(path: Path) -> tuple[ManifestFiles, tuple[str, ...]]:
    """The files to run on, as they are or as they were accepted, and the names of those whose change waits."""
    acceptance, current = Acceptance(path), read_files(path, os.environ)
    accepted = acceptance.files()
    if accepted is None or not (differ := differing(accepted.hashes, current.hashes)):
        return current, ()
    until = acceptance.held_until()
    waits = portals_of(path) or any(_changed_at(path.parent / name) <= until for name in differ)
    return (accepted, differ) if waits and not _is_watched(accepted) else (current, ())


def _is_watched(files: ManifestFiles) -> bool:
    server = written(files, os.environ).get("server")
    return isinstance(server, dict) and server.get("reload") == "watch"


def _changed_at(path: Path) -> float:
    """When a file or the link to it changed last, which nobody can backdate; if it is gone, its folder."""
    for each in (path, path.parent):
        with suppress(OSError):
            return max(each.lstat().st_ctime, each.stat().st_ctime)
    return 0.0


def note_start(files: ManifestFiles, waiting: tuple[str, ...]) -> None:
    """Accept what a portal starts on, unless others wait."""
    acceptance = Acceptance(files.path)
    if not waiting:
        if files.hashes != (accepted := acceptance.hashes()):
            why = "first" if accepted is None else "changed"
            log.info("manifest_accepted", manifest=str(files.path), why=why)
        keep_accepted(files)
    acceptance.hold(UNTIL_ACCEPTED if waiting else WATCHED_SECONDS)


def keep_accepted(files: ManifestFiles) -> None:
    """Accept, or log why that cannot be remembered."""
    try:
        Acceptance(files.path).accept(files)
    except OSError as error:
        log.warning("accepted_files_not_kept", reason=error.strerror, hint="a restart accepts what it finds")


def reload_hint(path: Path) -> str:
    """What the operator does about a change that waits."""
    return f"show and accept it: mcp-code-portal reload --config {shlex.quote(os.path.abspath(path))}"
