"""Locates and opens the store of runs: a SQLite file on one machine, or a Postgres database for several machines.

All portals with one manifest share it. A portal counts as alive while it holds the lock of its file beside the SQLite
file, or keeps renewing its heartbeat in Postgres.
"""

import fcntl
import hashlib
import math
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from manifests.own_files import locked, state_folder
from portal.base.plain_text import shown_path
from portal.records.store.postgres import PostgresDatabase
from portal.records.store.records import StoreError
from portal.records.store.run_tables import RunTables
from portal.records.store.sqlite import SqliteDatabase, portals_folder
from portal.records.store.tables import id_range
from portal.records.store.writer import RunStore

if TYPE_CHECKING:  # the command `status` has no time to import it, nor structlog
    from manifests.manifest import Manifest

Place: TypeAlias = Path | str
"""A SQLite file, or the URL of a Postgres database."""

OnNote: TypeAlias = Callable[[RunTables, str, str], None] | None


def place_of(manifest: "Manifest") -> Place:
    """The place of `runs.store`; by default a file in the state folder, in a folder for each manifest."""
    settings = manifest.portal.runs
    if settings.store is not None:
        return settings.store if settings.is_shared else manifest.folder / settings.store
    path = os.path.realpath(manifest.path or manifest.folder)  # also if the file itself is a link
    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    return state_folder(os.environ) / "runs" / name / "runs.sqlite"


def components_folder(place: Place) -> Path:
    """The folder where this machine keeps the guest components of runs."""
    if isinstance(place, str):
        return state_folder(os.environ) / "components"
    return place.with_name(f"{place.name}.components")


def holding(run: str = "", tables: Sequence[str] = ("runs",)) -> list[Path]:
    """The stores in this user's state folder, of any manifest, that have a run whose id begins with `run`. The table
    `trail` has those that only read.
    """
    found, bounds = [], id_range("run", run, None) if run else ("run_", "run_g")
    for path in sorted((state_folder(os.environ) / "runs").glob("*/*.sqlite")):
        with suppress(StoreError), closing(SqliteDatabase(path)) as database:
            # Ids are never encrypted. Nothing is written, because a portal of another version may use the file.
            queries = (f"SELECT 1 FROM {table} WHERE id BETWEEN ? AND ? LIMIT 1" for table in tables)
            if bounds and any(database.rows(query, *bounds) for query in queries):
                found.append(path)
    return found


@contextmanager
def present(place: Place) -> Iterator[str]:
    """Yield the id of a portal, which counts as alive to the others at this place until the context is left.

    Raises StoreError: a portal of an earlier version uses the file exclusively, or its folder cannot be written.
    """
    holder = secrets.token_hex(8)
    with ExitStack() as stack:
        if isinstance(place, Path):
            own = portals_folder(place) / holder
            try:
                own.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                stack.enter_context(locked(own))
                stack.callback(own.unlink, missing_ok=True)
                # Earlier versions lock it exclusively, because their portals did not share a file.
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


def manifest_of(tables: RunTables) -> str:
    """The manifest of the portal that was the last one to open a store, for people."""
    return shown_path(os.fsdecode(tables.get("manifest", "", "") or b"a portal"))


def open_tables(
    place: Place, manifest: "Manifest | None", holder: str = "", on_note: OnNote = None
) -> RunTables:
    """Open the tables at a place; without its manifest, only unencrypted ones. Raises StoreError."""
    key = manifest and manifest.portal.runs.key
    database = SqliteDatabase(place) if isinstance(place, Path) else PostgresDatabase(place)
    quota_bytes = manifest.portal.runs.quota_mib << 20 if manifest else math.inf
    return RunTables(database, key.get_secret_value() if key else None, holder, quota_bytes, on_note)


def open_store(place: Place, manifest: "Manifest", holder: str = "", on_note: OnNote = None) -> RunStore:
    """Open the store for the portal `holder`, which is `present`; without a holder, only for logins.

    Blocks. Raises StoreError.
    """
    import structlog

    with ExitStack() as stack:
        if isinstance(place, Path):  # SQLite does not let two processes create a file at once
            stack.enter_context(locked(portals_folder(place) / "opening", is_waiting=True))
        file = open_tables(place, manifest, holder, on_note)
        structlog.get_logger().info("store_opened", store=file.database.name)
        if isinstance(place, Path) and manifest.portal.runs.store is None:
            _take_over(file, place, manifest)
        if holder:
            with file.transaction():
                file.beat("")
                file.put("manifest", "", "", os.fsencode(os.path.abspath(manifest.path or manifest.folder)))
        return RunStore(file, open_tables(place, manifest, holder))


def open_workspaces(path: Path) -> RunStore:
    """Open the store of the sources of shared workspaces, for all portals with a store beside it. It is unencrypted.

    Raises StoreError.
    """
    file = path.with_name("workspaces.db")
    return RunStore(*(RunTables(SqliteDatabase(file), None, "portal") for _ in range(2)))


def _take_over(tables: RunTables, store: Path, manifest: "Manifest") -> None:
    """Move everything into the default store from the stores of earlier versions, where each portal had its own file,
    numbered from 0. A file that a portal uses, or that cannot be read, stays.
    """
    import structlog

    components = components_folder(store)
    for path in sorted(store.parent.glob("[0-9]*.sqlite")):
        with locked(path.with_name(f"{path.name}.lock")) as is_free:
            if not is_free:
                continue
            try:
                open_tables(path, manifest, tables.holder).close()  # converts it, and checks its key
                _copy(tables, path)
            except StoreError as error:
                structlog.get_logger().error("runs_not_taken_over", reason=str(error))
                continue
            theirs = path.with_name(f"{path.name}.components")
            for component in theirs.glob("*.wasm"):
                components.mkdir(exist_ok=True, mode=0o700)
                component.replace(components / component.name)
            shutil.rmtree(theirs, ignore_errors=True)
            for suffix in ("", "-wal", "-shm"):
                path.with_name(path.name + suffix).unlink(missing_ok=True)


def _copy(tables: RunTables, path: Path) -> None:
    """Copy everything from another file, without replacing existing rows. Raises StoreError: it cannot be read."""
    database = tables.database
    database.execute("ATTACH DATABASE ? AS earlier", (str(path),))
    try:
        with tables.transaction(is_lasting=True):
            for table in ("runs", "events", "calls", "hooks", "results", "deliveries", "key_values"):
                database.execute(f"INSERT OR IGNORE INTO {table} SELECT * FROM earlier.{table}")
            columns = "run, at, kind, data"
            database.execute(f"INSERT INTO log ({columns}) SELECT {columns} FROM earlier.log ORDER BY n")
        # A command that still has the file open must fail rather than decide about a row that was copied.
        with tables.transaction(is_lasting=True):
            database.execute("DELETE FROM earlier.runs")
    finally:
        database.execute("DETACH DATABASE earlier")
