"""Runs in a store, for tests."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from portal.base.caller import LOCAL
from portal.base.requests import ExecuteCode
from portal.records.store.places import present
from portal.records.store.postgres import PostgresDatabase
from portal.records.store.records import CallRow, RunRow, StoreError
from portal.records.store.run_tables import RunTables
from portal.records.store.sqlite import SqliteDatabase
from portal.records.store.tables import LEASE_SECONDS
from portal.records.store.writer import Pace, RunStore
from portal.runs.past import HEAD, RunHead, new_row, new_run_id


def begun(
    file: RunTables,
    code: str = "1 + 1",
    owner: str = "local",
    max_age_days: float = 30.0,
    run: str = "",
    profile: str | None = None,
) -> RunRow:
    """A run that has just begun, with its row in the store."""
    head = RunHead(ExecuteCode(code), LOCAL, profile, is_background=True)
    row = new_row(run or new_run_id(), owner, head, None, max_age_days)
    with file.transaction():
        file.create(row, HEAD.dump_json(head))
    return row


def asked(file: RunTables, run: RunRow, seq: int = 1, function: str = "git.merge") -> CallRow:
    """A call of the run that waits for a person, and the run parked."""
    call = CallRow(
        run.id, seq, "ask", function, "waiting", "digest", "arguments", shown=b'{"arguments": {"id": 1}}'
    )
    with file.transaction():
        file.advance(run.id, run.epoch, calls=[call])
        file.park(run.id, run.epoch, [seq])
    return call


def kinds(file: RunTables, run: str) -> list[str]:
    """The run's log events."""
    return [row.kind for row in file.log_after(0, run, limit=100_000)]


def opened(folder: Path, key: str | None = None) -> RunTables:
    return RunTables(SqliteDatabase(folder / "runs.sqlite"), key)


class Tables:
    """The tables in a folder, or at a URL of Postgres."""

    def __init__(self, place: Path | str) -> None:
        self.place = place
        self._files: list[RunTables] = []

    @property
    def path(self) -> Path | str:
        """The file, or the URL."""
        return self.place if isinstance(self.place, str) else self.place / "runs.sqlite"

    def __call__(self, key: str | None = None, holder: str = "") -> RunTables:
        """Another connection to them."""
        path = self.path
        database = SqliteDatabase(path) if isinstance(path, Path) else PostgresDatabase(path)
        self._files.append(RunTables(database, key, holder))
        return self._files[-1]

    def close(self) -> None:
        for file in self._files:
            file.close()


def alive(file: RunTables) -> RunTables:
    """The tables of a portal that gives a sign of its life."""
    with file.transaction():
        file.beat("")
    return file


def silent(file: RunTables, holder: str) -> None:
    """That portal was not seen in Postgres for too long."""
    with file.transaction():
        file.database.execute("UPDATE replicas SET seen = seen - ? WHERE id = ?", (LEASE_SECONDS + 1, holder))


@contextmanager
def living(tables: Tables) -> Iterator[RunTables]:
    """The tables of a portal, which lives in the block and is killed at its end."""
    with present(tables.path) as holder:
        yield alive(file := tables(holder=holder))
    if isinstance(tables.place, str):
        silent(file, holder)


@asynccontextmanager
async def store_of(
    tables: Tables, key: str | None = None, holder: str = "", pace: Pace | None = None
) -> AsyncIterator[RunStore]:
    """The store of a portal."""
    store = RunStore(tables(key, holder), tables(key, holder), pace=pace)
    try:
        yield store
    finally:
        await store.close()


@contextmanager
def failing(store: RunStore, is_meant: Callable[[Any], object] = lambda rows: True) -> Iterator[None]:
    """Meanwhile such writes fail, as on a full disk. `is_meant` gets the rows of a journal, or empty ones."""
    submit = store.submit

    def submit_or_fail(work: Any, done: Any, **how: Any) -> None:
        rows = getattr(work, "keywords", {}).get("rows") or SimpleNamespace(calls=(), outcomes=())
        if is_meant(rows):
            asyncio.get_running_loop().call_soon(done, None, StoreError("full"))
        else:
            submit(work, done, **how)

    store.submit = submit_or_fail
    try:
        yield
    finally:
        store.submit = submit


def together(*works: Callable[[], Any]) -> list[Any]:
    """The results of these functions, which start at the same time, each in a thread."""
    start = threading.Barrier(len(works))

    def do(work: Callable[[], Any]) -> Any:
        start.wait()
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        return [*pool.map(do, works)]
