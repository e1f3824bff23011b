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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, TypeAlias

import structlog

from manifests.errors import ManifestError
from manifests.loader import parse_manifest, read_files
from manifests.manifest import Manifest
from manifests.manifest_files import ManifestFiles, differing
from manifests.own_files import state_folder, write_whole
from manifests.references import stand_in
from portal.running import RunningPortal, running_portals

log = structlog.get_logger()

WATCHED_SECONDS: Final = 3.0
"""A portal that was killed counts as running for so long after its last sign of life."""

Verdict: TypeAlias = Literal["first", "same", "changed", "held"]
"""The files are the first ones, the accepted ones, others that take effect, or others that wait."""


def decide(
    accepted: str | None,
    current: str | None,
    *,
    is_watched: bool = False,
    is_held: bool = False,
    is_running: bool = False,
    changed_at: float = 0.0,
    watched_until: float = 0.0,
) -> Verdict:
    """Decide at a start, by the digests of the accepted and the present files; None if there are none, or unreadable.

    `is_watched`: the accepted ones say `reload: watch`. Times are those of the file system, which nobody can backdate.
    """
    if accepted is None:
        return "first"
    if accepted == current:
        return "same"
    waits = is_held or is_running or changed_at <= watched_until
    return "held" if waits and not is_watched else "changed"


class Acceptance:
    """What was accepted of the manifest at a path.

    It is found by that path as it is written, because a link may lead elsewhere tomorrow, and by where the path leads,
    because somebody else may take another one there.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(os.path.abspath(path))
        root = state_folder(os.environ) / "accepted"
        self._names = [root / hashlib.sha256(os.fsencode(way)).hexdigest()[:32] for way in _ways(path)]
        self.folder = next((each for each in self._names if each.exists()), self._names[0])
        self._record, self._held = self.folder / "accepted.json", self.folder / "held"
        self._watched = self.folder / "watched"

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
        """Keep exactly these files as the accepted ones; nothing waits any more. Raises OSError."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name in self._names:
            with suppress(FileExistsError):
                name.symlink_to(self.folder.resolve())
        copies = {self._copy(name, files.hashes[name]): content for name, content in files.contents.items()}
        for copy, content in copies.items():
            if not copy.exists():
                write_whole(copy, content)
        write_whole(self._record, json.dumps(files.hashes).encode())
        self.hold(False)
        if not portals_of(self.path):  # they may use their component for long
            for path in {*self.folder.iterdir()} - {*copies, self._record, self._watched}:
                path.unlink(missing_ok=True)

    def with_copies(self, manifest: Manifest) -> Manifest:
        """The same with the copy of its component, if that is kept: nobody changes it."""
        server = manifest.portal.server
        name = server.component or ""
        copy = self._copy(name, manifest.hashes.get(name, ""))
        if name and copy.is_file():
            server = server.model_copy(update={"component": str(copy)})
        return replace(manifest, portal=manifest.portal.model_copy(update={"server": server}))

    def is_held(self) -> bool:
        return self._held.exists()

    def hold(self, is_held: bool = True) -> None:
        """Record whether a change waits."""
        with suppress(OSError):
            self._held.touch(0o600) if is_held else self._held.unlink()

    def watched_until(self) -> float:
        """The time until which a change counts as one that was made while a portal ran."""
        with suppress(OSError):
            return self._watched.stat().st_mtime
        return 0.0

    def note_watched(self, seconds: float = WATCHED_SECONDS) -> None:
        """Let changes count so until `seconds` from now."""
        until = time.time() + seconds
        with suppress(OSError):
            self._watched.touch(0o600)
            os.utime(self._watched, (until, until))

    def note_end(self) -> None:
        """A portal has ended. What changed before waits; what changes from now on does not."""
        current = None
        with suppress(ManifestError):
            current = read_files(self.path, os.environ).hashes
        if self.hashes() not in (None, current):
            self.hold()
        self.note_watched(0)

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


@dataclass(frozen=True)
class Choice:
    """The files to run on. `waiting` are those that differ from them and wait."""

    files: ManifestFiles
    verdict: Verdict
    waiting: tuple[str, ...] = ()


def choose_files(path: Path) -> Choice:
    """Choose between the files as they are and the accepted ones. Raises ManifestError: they cannot be read."""
    acceptance = Acceptance(path)
    accepted, current, problem = acceptance.files(), None, None
    try:
        current = read_files(path, os.environ)
    except ManifestError as error:
        problem = error
    differ = differing(accepted.hashes if accepted else {}, current.hashes if current else {})
    times = [_changed_at(path.parent / name) for name in differ]
    verdict = decide(
        accepted.digest if accepted else None,
        current.digest if current else None,
        is_watched=bool(differ) and accepted is not None and _is_watched(accepted),
        is_held=acceptance.is_held(),
        is_running=bool(portals_of(path)),
        # Of files that cannot be read nobody knows which one was changed.
        changed_at=(min if current else max)(times, default=0.0),
        watched_until=acceptance.watched_until(),
    )
    if verdict == "held" and accepted is not None:
        return Choice(replace(accepted, path=path), verdict, differ)
    if current is None:
        raise problem or AssertionError
    return Choice(current, verdict)


def _is_watched(files: ManifestFiles) -> bool:
    with suppress(ManifestError):
        return parse_manifest(files, os.environ, stand_in).portal.server.reload == "watch"
    return False


def _changed_at(path: Path) -> float:
    """When a file or the link to it changed last; if it is gone, its folder."""
    for each in (path, path.parent):
        with suppress(OSError):
            return max(each.lstat().st_ctime, each.stat().st_ctime)
    return 0.0


def record_choice(choice: Choice) -> None:
    """Accept what a portal starts on, or hold what it does not."""
    acceptance = Acceptance(choice.files.path)
    if choice.files.hashes != (accepted := acceptance.hashes()):
        why = "first" if accepted is None else "changed"
        log.info("manifest_accepted", manifest=str(acceptance.path), why=why)
    if choice.waiting:
        log.warning("manifest_change_waits", files=choice.waiting, hint=reload_hint(acceptance.path))
    keep_accepted(choice.files)
    acceptance.hold(bool(choice.waiting))
    acceptance.note_watched()


def keep_accepted(files: ManifestFiles) -> None:
    """Accept, or log why that cannot be remembered."""
    try:
        Acceptance(files.path).accept(files)
    except OSError as error:
        log.warning("accepted_files_not_kept", reason=error.strerror, hint="a restart accepts what it finds")


def reload_hint(path: Path) -> str:
    """What the operator does about a change that waits."""
    return f"show and accept it: mcp-code-portal reload --config {shlex.quote(os.path.abspath(path))}"


def change_hint(path: Path) -> str:
    """What a command says that has changed the files."""
    acceptance, accepted = Acceptance(path), Acceptance(path).files()
    waits = (acceptance.is_held() or portals_of(path)) and not (accepted and _is_watched(accepted))
    return f"this waits for you, and is not used before; {reload_hint(path)}" if waits else ""
