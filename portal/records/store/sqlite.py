"""The SQLite database of runs, which portals and commands on one machine share."""

import fcntl
import math
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from manifests.own_files import locked
from portal.records.store.records import BusyError, DatabaseError

Result = TypeVar("Result")

BUSY_SECONDS: Final = 5.0
"""How long a write waits for the lock of other processes."""

_CHECKPOINT_PAGES: Final = 1_000
"""When the write-ahead log has this many pages, a patient commit copies them into the file."""


def portals_folder(path: Path) -> Path:
    """The folder where each portal of this store has a file, named by its id, and holds its lock while it lives."""
    return path.with_name(f"{path.name}.portals")


class SqliteDatabase:
    """A SQLite file, created if it is missing. Raises DatabaseError: it cannot be opened, or is damaged.

    One connection, not for several threads at once. Each change has to be within `transaction()`. `PostgresDatabase`
    has the same methods, and takes the same statements: `?` marks a value.
    """

    for_update = ""
    """Ends a query whose rows no one else may change until the commit. Here, one transaction writes at a time."""
    keeps_runs = True
    """Whether a waiting run stays with its portal while that is alive, near its upstreams and its client."""
    address = "127.0.0.1"
    """The address of this machine, as the database sees it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = str(path)
        """For messages: the path, or the host and the name of the database."""
        self._kind: tuple[bool, bool] | tuple[None, None] = None, None
        """Whether the last transaction was lasting and patient."""
        self.commit_seconds = 0.0
        """How long the disk took for the last COMMIT, with its checkpoint if there was one."""
        self._sql = self._run(self._open)

    def _open(self) -> sqlite3.Connection:
        # Created here, because SQLite would apply the umask. An existing file must not be opened: closing it would drop
        # the locks of this process's other connections, and a process that closes the file then would delete their
        # -wal. Source: sqlite.org/howtocorrupt.html, 2.2.
        with suppress(FileExistsError):
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(
            self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA journal_mode = WAL")
        return connection

    def prepare(self, schema: str) -> None:
        """Create missing tables and indexes. Within a transaction."""
        for statement in filter(str.strip, schema.split(";")):
            self.execute(statement)

    @contextmanager
    def transaction(self, *, is_lasting: bool = False, is_patient: bool = True) -> Iterator[None]:
        """Write everything or nothing; with `is_lasting` it survives a loss of power.

        An impatient one does not wait for other processes (BusyError), and leaves the checkpoint to a patient one.
        """
        was_lasting, was_patient = self._kind
        if was_lasting != is_lasting:
            self.execute(f"PRAGMA synchronous = {'FULL' if is_lasting else 'NORMAL'}")
        if was_patient != is_patient:
            self.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000) if is_patient else 0}")
            self.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES if is_patient else 0}")
        self._kind = is_lasting, is_patient
        self.execute("BEGIN IMMEDIATE")
        try:
            yield
            began = time.perf_counter()
            self.execute("COMMIT")
            self.commit_seconds = time.perf_counter() - began
        except BaseException:
            if self._sql.in_transaction:
                self.execute("ROLLBACK")
            raise

    def commit(self, work: Callable[[], Result], *, is_lasting: bool, is_patient: bool = True) -> Result:
        """Do `work` in a transaction. If that fails for a transient reason, `work` is done again from its start."""
        with self.transaction(is_lasting=is_lasting, is_patient=is_patient):
            return work()

    @contextmanager
    def part(self) -> Iterator[None]:
        """A savepoint: if the part raises, it alone is undone."""
        self.execute("SAVEPOINT part")
        try:
            yield
        except BaseException:
            if self._sql.in_transaction:  # a full disk has undone all of it
                self.execute("ROLLBACK TO part")
                self.execute("RELEASE part")
            raise
        self.execute("RELEASE part")

    def execute(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Returns the number of changed rows."""
        return self._run(self._sql.execute, statement, values).rowcount

    def execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        if rows:
            self._run(self._sql.executemany, statement, rows)

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._run(lambda: self._sql.execute(query, values).fetchall())

    def now(self) -> float:
        """Seconds since 1970, by the clock that all users of the database share."""
        return time.time()

    def seen(self) -> float:
        """The time of a heartbeat that is sent now. One is enough here, because a lock shows who is alive."""
        return math.inf

    def gone(self) -> list[str]:
        """The portals that ended without `leave`, as after a kill."""
        return [each for (each,) in self.rows("SELECT id FROM replicas") if not self._is_alive(each)]

    def _is_alive(self, portal: str) -> bool:
        path = portals_folder(self.path) / portal
        if not path.exists():
            return False
        with suppress(OSError), locked(path, fcntl.LOCK_SH) as is_free:  # shared: two may look at once
            if is_free:
                path.unlink()
                return False
        return True

    def close(self) -> None:
        self._sql.close()

    def _run(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Raise errors in the operator's words: what is wrong with the file, and what to do."""
        try:
            return work(*arguments)
        except (OSError, sqlite3.Error) as error:
            reason, kind = (getattr(error, "strerror", None) or str(error)).rstrip("."), DatabaseError
            hint = "Make room or access, or name another file in runs.store"
            if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
                hint = (
                    "The file is damaged or no store of runs. Move it away, or name another one in runs.store"
                )
            elif "locked" in reason:
                kind, hint = BusyError, "Another process holds its lock: is one of them stopped?"
            raise kind(f"the store of runs {self.path} cannot be used: {reason}. {hint}") from None
