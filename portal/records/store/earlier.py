"""The default stores of earlier versions, where each portal with a manifest had a file of its own, numbered from 0."""

import shutil
from pathlib import Path

import structlog

from manifests.own_files import locked
from portal.records.store.records import StoreError
from portal.records.store.run_tables import RunTables
from portal.records.store.sqlite import SqliteDatabase

log = structlog.get_logger()


def take_over(tables: RunTables, store: Path, components: Path) -> None:
    """Move everything into the store from the files beside it that no portal uses. One that cannot be read stays."""
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
