"""The files of a manifest that a person accepted: copies in the state folder, on which portals and commands run.

A script that may write the manifest's folder must not decide what scripts may do. So what changes while a portal runs
waits until a person accepts it, also after a restart: desktop clients restart the portal without a person. It waits
until a portal has ended in order: whoever can kill it, or keep it busy, wins no time.
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
from manifests.own_files import ManifestFiles, differing, lock_path, state_folder, write_whole
from manifests.references import env_path
from portal.app.running import RunningPortal, announced, running_portals

log = structlog.get_logger()


class Acceptance:
    """What was accepted of the manifest at a path.

    It is found by that path as it is written, because a link may lead elsewhere tomorrow, and by where the path leads,
    because somebody else may take another one there. All share one record, with the names of whoever accepted.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        root = state_folder(os.environ) / "accepted"
        self._names = [root / hashlib.sha256(os.fsencode(way)).hexdigest()[:32] for way in _ways(path)]
        self.folder = next((each for each in self._names if each.exists()), self._names[0])
        self._record = self.folder / "accepted.json"

    def hashes(self) -> Mapping[str, str] | None:
        """The hashes of the accepted files; None if nothing was accepted."""
        with suppress(OSError, ValueError):
            kept: dict[str, str] = dict(json.loads(self._record.read_bytes()))
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
        """Keep exactly these files as the accepted ones. Raises OSError."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name in self._names:
            with suppress(FileExistsError):
                name.symlink_to(self.folder.resolve())
        copies = {self.folder / files.hashes[name]: content for name, content in files.contents.items()}
        for copy, content in copies.items():
            if not copy.exists():
                write_whole(copy, content)
        write_whole(self._record, json.dumps(files.hashes).encode())
        if not portals_of(self.path):  # they may use their component for long
            for path in {*self.folder.iterdir()} - {*copies, self._record, self.folder / "held"}:
                path.unlink(missing_ok=True)

    def with_copies(self, manifest: Manifest) -> Manifest:
        """The same with the copy of its component, if that is kept: nobody changes it."""
        server = manifest.portal.server
        name = server.component or ""
        copy = self.folder / manifest.hashes.get(name, "")
        if name and copy.is_file():
            server = server.model_copy(update={"component": str(copy)})
        return replace(manifest, portal=manifest.portal.model_copy(update={"server": server}))

    @property
    def _holds(self) -> set[Path]:
        """A file in each record: a link that leads elsewhere now may have found two of them."""
        return {name.resolve() / "held" for name in self._names if name.exists()}

    @property
    def is_held(self) -> bool:
        """Whether a portal has not ended in order since, or something waited when it did: then changes wait."""
        return any(each.exists() for each in self._holds)

    def hold(self) -> None:
        """Let changes wait from now on."""
        with suppress(OSError):
            for each in self._holds:
                each.touch(0o600)

    def release(self) -> None:
        """Let what changes from now on apply, if nothing waits and no portal runs. To be killed releases nothing."""
        with suppress(OSError, ManifestError):
            if not portals_of(self.path) and self.hashes() == read_files(self.path, os.environ).hashes:
                for each in self._holds:
                    each.unlink(missing_ok=True)
                if portals_of(self.path):  # it has started meanwhile
                    self.hold()


@contextmanager
def running(manifest: Manifest, host: str, port: int) -> Iterator[Callable[[Mapping[str, str]], None]]:
    """Announce a portal, and let changes of its files wait until the context is left. Yields as `announced`."""
    path = os.path.abspath(manifest.path) if manifest.path else ""
    acceptance = Acceptance(Path(path))  # without a manifest nothing is accepted, held or released
    try:
        with announced(RunningPortal(os.getpid(), path, host, port, manifest.hashes)) as announce:
            acceptance.hold()  # once it is announced: another one may be releasing
            yield announce
    finally:
        acceptance.release()


def portals_of(path: Path) -> list[RunningPortal]:
    """The running portals of a manifest, by whichever path they were started."""
    ways = {*_ways(path)}
    return [each for each in running_portals() if each.manifest and ways & {*_ways(Path(each.manifest))}]


def _ways(path: Path) -> tuple[str, ...]:
    """The path, also by where its folder is, and by where it leads itself."""
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.join(folder, name), os.path.join(os.path.realpath(folder), name), os.path.realpath(path)


def choose_files(path: Path) -> tuple[ManifestFiles, tuple[str, ...]]:
    """The files to run on, as they are or as they were accepted, and the names of those whose change waits."""
    acceptance = Acceptance(path)
    waits = acceptance.is_held or portals_of(path)  # before the files are read: a portal may end meanwhile
    accepted, current = acceptance.files(), read_files(path, os.environ)
    if accepted is None or not (differ := differing(accepted.hashes, current.hashes)):
        return current, ()
    return (accepted, differ) if waits and not _is_watched(accepted) else (current, ())


def _is_watched(files: ManifestFiles) -> bool:
    server = written(files, os.environ)[0].get("server")
    return isinstance(server, dict) and server.get("reload") == "watch"


def note_start(files: ManifestFiles, waiting: tuple[str, ...]) -> None:
    """Accept what a portal starts on, unless others wait."""
    if not waiting:
        if files.hashes != (accepted := Acceptance(files.path).hashes()):
            why = "first" if accepted is None else "changed"
            log.info("manifest_accepted", manifest=str(files.path), why=why)
        keep_accepted(files)


def keep_accepted(files: ManifestFiles) -> None:
    """Accept, or log why that cannot be remembered."""
    try:
        Acceptance(files.path).accept(files)
    except OSError as error:
        log.warning("accepted_files_not_kept", reason=error.strerror, hint="a restart accepts what it finds")


def reload_hint(path: Path) -> str:
    """What the operator does about a change that waits."""
    return f"show and accept it: mcp-code-portal reload --config {shlex.quote(os.path.abspath(path))}"
