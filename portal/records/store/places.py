"""Where portals keep their runs: in a SQLite file on one machine, or in a Postgres database for several machines.

All portals with a manifest share it. One is alive while it holds the lock of a file beside the SQLite file, or has
given the Postgres database a sign of its life.
"""

import fcntl
import hashlib
import math
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

import structlog

from manifests.manifest import Manifest
from manifests.own_files import locked, state_folder
from portal.records.store.postgres import PostgresDatabase
from portal.records.store.records import StoreError
from portal.records.store.run_tables import RunTables
from portal.records.store.sqlite import SqliteDatabase, portals_folder
from portal.records.store.tables import id_range
from portal.records.store.writer import RunStore

log = structlog.get_logger()

Place: TypeAlias = Path | str
"""A SQLite file, or the URL of a Postgres database."""


def place_of(manifest: Manifest) -> Place:
    """The place of `runs.store`; by default a file in the state folder, in a folder for each manifest."""
    settings = manifest.portal.runs
    if settings.store is not None:
        return settings.store if settings.is_shared else manifest.folder / settings.store
    path = os.path.realpath(manifest.path or manifest.folder)  # which resolves also a link to itself
    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    return state_folder(os.environ) / "runs" / name / "runs.sqlite"


def components_folder(place: Place) -> Path:
    """Where this machine keeps the guest components of runs."""
    if isinstance(place, str):
        return state_folder(os.environ) / "components"
    return place.with_name(f"{place.name}.components")


def holding(run: str = "") -> list[Path]:
    """The files in this user's state folder, whatever their manifest, that have a run whose id begins so."""
    found, bounds = [], id_range("run", run, None) if run else ("run_", "run_g")
    for path in sorted((state_folder(os.environ) / "runs").glob("*/*.sqlite")):
        with suppress(StoreError), closing(SqliteDatabase(path)) as database:
            # Ids are never encrypted, and nothing is written: a portal of another version may use the file.
            if bounds and database.rows("SELECT 1 FROM runs WHERE id BETWEEN ? AND ? LIMIT 1", *bounds):
                found.append(path)
    return found


@contextmanager
def present(place: Place) -> Iterator[str]:
    """The id of a portal, which the others at this place see to be alive meanwhile.

    Raises StoreError: a portal of an earlier version uses the file alone, or nothing can be written beside it.
    """
    holder = secrets.token_hex(8)
    with ExitStack() as stack:
        if isinstance(place, Path):
            own = portals_folder(place) / holder
            try:
                own.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                stack.enter_context(locked(own))
                stack.callback(own.unlink, missing_ok=True)
                # Earlier versions lock it exclusively: no other portal used their file.
                lock = place.with_name(f"{place.name}.lock")
                is_shared = stack.enter_context(locked(lock, fcntl.LOCK_SH))
            except OSError as error:
                raise StoreError(
                    f"the store of runs {place} cannot be created: {error.strerror}. "
                    "Name another file in runs.store"
                ) from error
            if not is_shared:
                raise StoreError(
                    f"a portal of an earlier version uses the store of runs {place}. Stop it first"
                )
        yield holder


def open_tables(place: Place, manifest: Manifest | None, holder: str = "") -> RunTables:
    """Open the tables at a place; without its manifest only those that are not encrypted. Raises StoreError."""
    key = manifest and manifest.portal.runs.key
    database = SqliteDatabase(place) if isinstance(place, Path) else PostgresDatabase(place)
    quota_bytes = manifest.portal.runs.quota_mib << 20 if manifest else math.inf
    return RunTables(database, key.get_secret_value() if key else None, holder, quota_bytes)


def open_store(place: Place, manifest: Manifest, holder: str = "") -> RunStore:
    """Open the store for the portal `holder`, which is `present`; without one only for logins.

    Blocks. Raises StoreError.
    """
    with ExitStack() as stack:
        if isinstance(place, Path):  # SQLite does not let two create a file at once
            stack.enter_context(locked(portals_folder(place) / "opening", is_waiting=True))
        file = open_tables(place, manifest, holder)
        log.info("store_opened", store=file.database.name)
        if isinstance(place, Path) and manifest.portal.runs.store is None:
            _take_over(file, place, components_folder(place))
        if holder:
            with file.transaction():
                file.beat("")
        return RunStore(file, open_tables(place, manifest, holder))


def open_workspaces(path: Path) -> RunStore:
    """What all portals with a store beside this one know of shared workspaces. It has no secrets, and no key.

    Raises StoreError.
    """
    return RunStore(*(RunTables(SqliteDatabase(path.with_name("workspaces.db")), None) for _ in range(2)))


def _take_over(tables: RunTables, store: Path, components: Path) -> None:
    """Move everything into the default store from those of earlier versions, where each portal had a file of its own,
    numbered from 0. One that a portal uses, or that cannot be read, stays.
    """
    for path in sorted(store.parent.glob("[0-9]*.sqlite")):
        with locked(path.with_name(f"{path.name}.lock")) as is_free:
            if not is_free:
                continue
            try:
                RunTables(SqliteDatabase(path), tables.key).close()  # it has today's format and key
                _copy(tables, path)
            except StoreError as error:
                log.error("runs_not_taken_over", reason=str(error))
                continue
            theirs = path.with_name(f"{path.name}.components")
            for component in theirs.glob("*.wasm"):
                components.mkdir(exist_ok=True, mode=0o700)
                component.replace(components / component.name)
            shutil.rmtree(theirs, ignore_errors=True)
            for suffix in ("", "-wal", "-shm"):
                path.with_name(path.name + suffix).unlink(missing_ok=True)


def _copy(tables: RunTables, path: Path) -> None:
    """Copy everything from another file. What is there already stays as it is. Raises StoreError: it cannot be read."""
    database = tables.database
    database.execute("ATTACH DATABASE ? AS earlier", (str(path),))
    try:
        with tables.transaction(is_lasting=True):
            for table in ("runs", "events", "calls", "hooks", "results", "deliveries", "key_values"):
                database.execute(f"INSERT OR IGNORE INTO {table} SELECT * FROM earlier.{table}")
            columns = "run, at, kind, data"
            database.execute(f"INSERT INTO log ({columns}) SELECT {columns} FROM earlier.log ORDER BY n")
        # What a command that has the file open decides must not be lost.
        with tables.transaction(is_lasting=True):
            database.execute("DELETE FROM earlier.runs")
    finally:
        database.execute("DETACH DATABASE earlier")
