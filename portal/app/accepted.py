"""The files of a manifest that a person accepted: copies in the state folder, on which portals and commands run.

A script that may write the manifest's folder must not decide what scripts may do. So a change that is made while a
portal runs waits until a person accepts it, even after a restart: desktop clients restart the portal without a person.
The hold ends only when a portal ends in order, so an attacker gains nothing by killing it, or by keeping it busy.
"""

import hashlib
import json
import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import structlog

from manifests.errors import ManifestError
from manifests.loader import read_files, written
from manifests.manifest import Manifest
from manifests.own_files import ManifestFiles, check_state, differing, lock_path, state_folder, write_whole
from manifests.references import env_path
from portal.app.running import PORTALS, RunningPortal, announced, running_portals

log = structlog.get_logger()


class Acceptance:
    """The record of the accepted files of the manifest at a path.

    It is found by the path as written, because a link may lead elsewhere tomorrow, and by where the path leads, because
    others may get there by another path. All these paths share one record, which has the names of those who accepted.

    Raises ManifestError: the record, or what is known of running portals, is another user's.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        names = [f"accepted/{hashlib.sha256(os.fsencode(way)).hexdigest()[:32]}" for way in _ways(path)]
        check_state(PORTALS, "accepted", *names)
        self._names = [state_folder(os.environ) / name for name in names]
        self.folder = next((each for each in self._names if each.exists()), self._names[0])
        self.record = self.folder / "accepted.json"

    def hashes(self) -> Mapping[str, str] | None:
        """The hashes of the accepted files; None if nothing was accepted."""
        with suppress(OSError, ValueError):
            kept: dict[str, str] = dict(json.loads(self.record.read_bytes()))
            paths = Path(next(iter(kept), "")), self.path  # the name of the manifest comes first
            own = dict(zip(*((p.name, env_path(p).name, lock_path(p).name) for p in paths), strict=True))
            return {own.get(name, name): sha256 for name, sha256 in kept.items()}
        return None

    def files(self) -> ManifestFiles | None:
        """The accepted files; None if nothing was accepted, or a copy is damaged."""
        hashes = self.hashes() or {}
        with suppress(OSError):
            contents = {name: (self.folder / sha256).read_bytes() for name, sha256 in hashes.items()}
            files = ManifestFiles(self.path, contents)
            return files if hashes and files.hashes == hashes else None
        return None

    def accept(self, files: ManifestFiles) -> None:
        """Record exactly these files as accepted. Raises OSError."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name in self._names:
            with suppress(FileExistsError):
                name.symlink_to(self.folder.resolve())
        copies = {self.folder / files.hashes[name]: content for name, content in files.contents.items()}
        for copy, content in copies.items():
            if not copy.exists():
                write_whole(copy, content)
        write_whole(self.record, json.dumps(files.hashes).encode())
        if not portals_of(self.path):  # running portals may use their component for long
            for path in {*self.folder.glob("?" * 64)} - copies.keys():
                path.unlink(missing_ok=True)

    def with_copies(self, manifest: Manifest) -> Manifest:
        """The manifest with the accepted copy of its component, if there is one: no one else changes that."""
        server = manifest.portal.server
        name = server.component or ""
        copy = self.folder / manifest.hashes.get(name, "")
        if name and copy.is_file():
            server = server.model_copy(update={"component": str(copy)})
        return replace(manifest, portal=manifest.portal.model_copy(update={"server": server}))

    @property
    def _holds(self) -> set[Path]:
        """The hold files of all records: if a link now leads elsewhere, there may be two."""
        return {name.resolve() / "held" for name in self._names if name.exists()}

    @property
    def is_held(self) -> bool:
        """Whether changes wait: a portal did not end in order, or a change waited when it did."""
        return any(each.exists() for each in self._holds)

    def hold(self) -> None:
        """Make changes wait from now on."""
        with suppress(OSError):
            for each in self._holds:
                each.touch(0o600)

    def release(self) -> None:
        """Let later changes apply at once, if nothing waits and no portal runs. A killed portal does not get here."""
        with suppress(OSError, ManifestError):
            if not portals_of(self.path) and self.hashes() == read_files(self.path, os.environ).hashes:
                for each in self._holds:
                    each.unlink(missing_ok=True)
                if portals_of(self.path):  # one has started in between
                    self.hold()


@contextmanager
def running(
    manifest: Manifest, host: str, port: int
) -> Iterator[tuple[RunningPortal, Callable[[Mapping[str, str]], None]]]:
    """Announce a portal, and make changes of its files wait until the context is left.

    Yields the portal, and what `announced` yields.
    """
    path = os.path.abspath(manifest.path) if manifest.path else ""
    acceptance = Acceptance(Path(path))  # without a manifest nothing is accepted, held or released
    own = RunningPortal(os.getpid(), path, host, port, manifest.hashes)
    try:
        with announced(own) as announce:
            acceptance.hold()  # after it is announced, because another portal may be releasing
            yield own, announce
    finally:
        acceptance.release()


def portals_of(path: Path) -> list[RunningPortal]:
    """The running portals of a manifest, whichever path they were started with."""
    ways = {*_ways(path)}
    return [each for each in running_portals() if each.manifest and ways & {*_ways(Path(each.manifest))}]


def _ways(path: Path) -> tuple[str, ...]:
    """The path as written, with its folder resolved, and fully resolved."""
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.join(folder, name), os.path.join(os.path.realpath(folder), name), os.path.realpath(path)


def choose_files(path: Path) -> tuple[ManifestFiles, tuple[str, ...]]:
    """The files to run on, current or accepted, and the names of those with changes that wait."""
    acceptance = Acceptance(path)
    waits = acceptance.is_held or portals_of(path)  # before the files are read: a portal may end in between
    accepted, current = acceptance.files(), read_files(path, os.environ)
    if accepted is None or not (differ := differing(accepted.hashes, current.hashes)):
        return current, ()
    return (accepted, differ) if waits and not _is_watched(accepted) else (current, ())


def _is_watched(files: ManifestFiles) -> bool:
    server = written(files, os.environ)[0].get("server")
    return isinstance(server, dict) and server.get("reload") == "watch"


def note_start(files: ManifestFiles, waiting: tuple[str, ...]) -> None:
    """Accept the files that a portal starts on, unless changes wait."""
    if not waiting:
        if files.hashes != (accepted := Acceptance(files.path).hashes()):
            why = "first" if accepted is None else "changed"
            log.info("manifest_accepted", manifest=str(files.path), why=why)
        keep_accepted(files)


def keep_accepted(files: ManifestFiles) -> None:
    """Accept files, or log why that cannot be recorded."""
    try:
        Acceptance(files.path).accept(files)
    except (OSError, ManifestError) as error:
        reason = getattr(error, "strerror", str(error))
        log.warning("accepted_files_not_kept", reason=reason, hint="a restart accepts what it finds")


def reload_hint(path: Path) -> str:
    """The hint that tells an operator how to accept a change that waits."""
    return f"show and accept it: mcp-code-portal reload --config {shlex.quote(os.path.abspath(path))}"
