"""Where a portal keeps its runs: a SQLite file, which one portal uses at a time, or a Postgres database for several."""

import fcntl
import hashlib
import math
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import structlog

from manifests.manifest import Manifest
from manifests.own_files import has_locked, state_folder
from portal.store.postgres import PostgresDatabase
from portal.store.records import StoreError
from portal.store.run_tables import RunTables
from portal.store.sqlite import SqliteDatabase
from portal.store.writer import RunStore

log = structlog.get_logger()

LOCK_SECONDS: Final = 0.2
MAX_SLOTS: Final = 1_000
"""Default files per manifest: each portal that runs at the same time has its own."""


@dataclass(frozen=True)
class FilePlace:
    """A SQLite file. `components` is the folder with the guest components of its runs."""

    path: Path

    @property
    def components(self) -> Path:
        return self.path.with_name(f"{self.path.name}.components")

    def open_workspaces(self) -> RunStore:
        """What all portals beside it know of shared workspaces. It has no secrets, and no key. Raises StoreError."""
        path = self.path.with_name("workspaces.db")
        return RunStore(*(RunTables(SqliteDatabase(path), None) for _ in range(2)))

    @contextmanager
    def unmoved(self) -> Iterator[bool]:
        """Keep portals from moving the file of an ended one meanwhile. Yields whether it is still there."""
        # If a portal keeps the lock, the file is its own. One that moves the file has it for a moment.
        with _locked(self.path, LOCK_SECONDS, fcntl.LOCK_SH):
            yield self.path.exists()

    def is_used(self, file: RunTables) -> bool:
        """Whether a portal goes on with the runs."""
        with _locked(self.path) as is_free:
            return not is_free


@dataclass(frozen=True)
class PostgresPlace:
    """A Postgres database. `components` is where this machine keeps copies of guest components."""

    url: str

    @property
    def components(self) -> Path:
        return state_folder(os.environ) / "components"

    @contextmanager
    def unmoved(self) -> Iterator[bool]:
        yield True

    def is_used(self, file: RunTables) -> bool:
        """Whether a portal goes on with the runs."""
        return file.has_replicas()


Place: TypeAlias = FilePlace | PostgresPlace


def places(manifest: Manifest) -> list[Place]:
    """Where portals with this manifest have written runs, for the command line."""
    place = written_place(manifest)
    if isinstance(place, FilePlace):
        return [place] if place.path.exists() else []
    if place is not None:
        return [place]
    found = _default_folder(manifest).glob("*.sqlite")
    return [FilePlace(path) for path in sorted(found, key=lambda path: (len(path.name), path.name))]


def holding(run: str = "") -> list[FilePlace]:
    """The files in this user's state folder, whatever their manifest, that have a run whose id begins so."""
    found = []
    for path in sorted((state_folder(os.environ) / "runs").glob("*/*.sqlite")):
        with suppress(StoreError), closing(SqliteDatabase(path)) as database:
            # Ids are never encrypted, and nothing is written: a portal of another version may use the file.
            if database.rows("SELECT 1 FROM runs WHERE substr(id, 1, ?) = ? LIMIT 1", len(run), run):
                found.append(FilePlace(path))
    return found


def written_place(manifest: Manifest) -> Place | None:
    """What `runs.store` names."""
    settings = manifest.portal.runs
    if settings.store is None:
        return None
    return (
        PostgresPlace(settings.store) if settings.is_shared else FilePlace(manifest.folder / settings.store)
    )


@contextmanager
def held_place(manifest: Manifest) -> Iterator[Place]:
    """The place of this portal. No other portal uses its file meanwhile.

    Without `runs.store` it is the first in the state folder that no other portal with this manifest uses.
    Raises StoreError: another portal uses the file of `runs.store`, or it cannot be created.
    """
    place = written_place(manifest)
    if isinstance(place, PostgresPlace):
        yield place
        return
    if place is not None:
        # The command line takes the lock for a moment to see whether a portal holds it.
        with _locked(place.path, LOCK_SECONDS) as is_held:
            if not is_held:
                raise StoreError(
                    f"another portal uses the store of runs {place.path}. Stop it, or name another file in runs.store"
                )
            yield place
        return
    folder = _default_folder(manifest)
    for slot in range(MAX_SLOTS):
        path = folder / f"{slot}.sqlite"
        with _locked(path) as is_held:
            if is_held:
                yield FilePlace(path)
                return
    raise StoreError(f"{MAX_SLOTS} portals use this manifest: {folder}")


def open_tables(place: Place, manifest: Manifest | None, holder: str = "") -> RunTables:
    """Open the tables at a place; without its manifest only those that are not encrypted. Raises StoreError."""
    key = manifest and manifest.portal.runs.key
    database = SqliteDatabase(place.path) if isinstance(place, FilePlace) else PostgresDatabase(place.url)
    quota_bytes = manifest.portal.runs.quota_mib << 20 if manifest else math.inf
    return RunTables(database, key.get_secret_value() if key else None, holder, quota_bytes)


def open_store(place: Place, manifest: Manifest) -> RunStore:
    """Open the store, and move into a default file what portals left that have ended. Blocks. Raises StoreError."""
    holder = secrets.token_hex(8)
    file = open_tables(place, manifest, holder)
    log.info("store_opened", store=file.database.name)
    if isinstance(place, FilePlace) and manifest.portal.runs.store is None:
        for other in places(manifest):
            if isinstance(other, FilePlace) and other != place:
                _adopt(file, place, other, manifest)
    return RunStore(file, open_tables(place, manifest, holder))


@contextmanager
def _locked(path: Path, seconds: float = 0.0, kind: int = fcntl.LOCK_EX) -> Iterator[bool]:
    """Hold the lock of a file, if nobody else holds it for so many seconds. It ends with the process."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreError(
            f"the store of runs {path} cannot be created: {error.strerror}. Name another file in runs.store"
        ) from error
    try:
        deadline = time.monotonic() + seconds
        while not (is_taken := has_locked(lock, kind)) and time.monotonic() < deadline:
            time.sleep(0.02)
        yield is_taken
    finally:
        os.close(lock)


def _default_folder(manifest: Manifest) -> Path:
    path = os.path.realpath(manifest.path or manifest.folder)  # which resolves also a link to itself
    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    return state_folder(os.environ) / "runs" / name


def _adopt(file: RunTables, place: FilePlace, other: FilePlace, manifest: Manifest) -> None:
    """Move everything from another file, if no portal uses it. One that cannot be read stays."""
    with _locked(other.path) as is_free:
        if not is_free:
            return
        try:
            open_tables(other, manifest).close()  # it has today's format and key
            file.take_over(other.path)
        except StoreError as error:
            log.error("runs_not_taken_over", reason=str(error))
            return
        for component in other.components.glob("*.wasm"):
            place.components.mkdir(exist_ok=True, mode=0o700)
            component.replace(place.components / component.name)
        shutil.rmtree(other.components, ignore_errors=True)
        for suffix in ("", "-wal", "-shm"):
            other.path.with_name(other.path.name + suffix).unlink(missing_ok=True)
