"""The Postgres database of runs, which several portals share.

Rule 1: what has to change together locks the row of its run first. So no decision is lost while a run is parked.
Rule 2: each transaction of a portal leaves its number. One that a restart of the database interrupts is done again,
unless its number is there. So nothing is written twice, and nothing is believed that a crash or a failover forgot.
"""

import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

from manifests.errors import with_extra
from portal.records.store.records import DatabaseError, StoreError

if TYPE_CHECKING:
    import psycopg

Result = TypeVar("Result")

PATIENCE_SECONDS: Final = 10.0
"""How long a transaction is tried again while the database restarts or fails over. Then it fails."""

_PAUSE_SECONDS: Final = 0.2
_CONNECT_SECONDS: Final = 3
_ANSWER_SECONDS: Final = 12.0
"""After this time without an answer the connection counts as lost. The server itself ends a statement after 10."""

_FORGOTTEN_SECONDS: Final = 86_400.0
_SILENT_SECONDS: Final = 1.0
"""After a failed connection, reading fails at once for this long."""

_TIME: Final = "extract(epoch FROM clock_timestamp())::float8"
_MARK: Final = (
    "INSERT INTO key_values (kind, owner, name, value, changed) VALUES ('commit', '', '{}', '{}'::bytea, "
    f"{_TIME}) ON CONFLICT (kind, owner, name) DO UPDATE SET value = excluded.value, changed = excluded.changed "
    "WHERE key_values.value <> excluded.value RETURNING 1;"
)
"""Waits for a former transaction of this number that is still being committed. Returns nothing if it was."""

_NO_CLOCK: Final = (0.0, 0.0)
_EXACT_SECONDS: Final = 0.5
"""An answer that took longer does not tell the time."""

_PREPARE_LOCK: Final = 0x6D637063
_SETTINGS: Final = (
    # Whoever is stopped within a transaction must not hold the locks of runs for long.
    "SET idle_in_transaction_session_timeout = '5s'; SET statement_timeout = '10s'; "
    "SET default_transaction_isolation = 'read committed'; "
    # A crash of the database must not forget that a call was about to be sent.
    "SELECT set_config('synchronous_commit', 'on', false) "
    "WHERE current_setting('synchronous_commit') IN ('off', 'local')"
)
_TYPES: Final = (
    ("INTEGER PRIMARY KEY AUTOINCREMENT", "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"),
    (" WITHOUT ROWID", ""),
    ("INTEGER", "BIGINT"),
    ("BLOB", "BYTEA"),
    ("REAL", "DOUBLE PRECISION"),
)


class PassingError(DatabaseError):
    """The transaction was ended for a reason that passes: no connection, or a deadlock."""


class PostgresDatabase:
    """One connection, opened again when it is lost. Raises DatabaseError: there is none."""

    keeps_runs = False

    def __init__(self, url: str) -> None:
        self._psycopg = _driver()
        self._url = url
        # The hosts and the name of the database, without user and password.
        self.name = re.sub(r"^postgres(ql)?://", "", url).partition("?")[0].rpartition("@")[2]
        self._sql: psycopg.Connection[Any] | None = None
        self._id = secrets.token_hex(8)
        self._number = 0
        self._is_within = False
        self._silent_until = 0.0
        self.address = "127.0.0.1"
        self._clock = _NO_CLOCK
        self._closed = threading.Event()
        self._check_url()
        self._connect()

    def prepare(self, schema: str) -> None:
        for own, theirs in _TYPES:
            schema = schema.replace(own, theirs)
        self.rows("SELECT pg_advisory_xact_lock(?)", _PREPARE_LOCK)
        for statement in filter(str.strip, schema.split(";")):
            self.execute(statement)

    @contextmanager
    def transaction(self, *, is_lasting: bool = False) -> Iterator[None]:
        # Always lasting: a portal outlives its database, and must not believe what that forgot.
        with self._transaction(""):
            yield

    def commit(self, work: Callable[[], Result], *, is_lasting: bool) -> Result:
        until = time.monotonic() + PATIENCE_SECONDS
        self._number += 1
        done: list[Result] = []
        while True:
            try:
                with self._transaction(_MARK.format(self._id, self._number)) as is_new:
                    if is_new:
                        done = []
                        done.append(work())
                if not done:
                    raise DatabaseError(self._told("its mark of this transaction was altered"))
                return done[0]
            except PassingError as error:
                if time.monotonic() > until or self._closed.wait(_PAUSE_SECONDS):
                    if done:
                        raise DatabaseError(str(error), is_in_doubt=True) from None
                    raise

    @contextmanager
    def _transaction(self, mark: str) -> Iterator[bool]:
        """Yields whether no earlier transaction has left this mark."""
        connection, before = self._connection(), time.monotonic()
        try:
            with self._explaining():
                cursor = connection.execute(f"BEGIN; {mark} SELECT {_TIME}")
                results = [cursor.fetchall() if cursor.description else []]
                while cursor.nextset():
                    results.append(cursor.fetchall() if cursor.description else [])
            self._set_clock(before, results[-1][0][0])
            self._is_within = True
            yield not mark or bool(results[1])
            with self._explaining():
                self._connection().execute("COMMIT")
        except BaseException:
            with suppress(DatabaseError), self._explaining():
                if self._sql is not None:
                    self._sql.execute("ROLLBACK")
            raise
        finally:
            self._is_within = False

    @contextmanager
    def part(self) -> Iterator[None]:
        self.execute("SAVEPOINT part")
        try:
            yield
        except PassingError:
            raise
        except BaseException:
            self.execute("ROLLBACK TO part")
            raise
        else:
            self.execute("RELEASE part")

    def execute(self, statement: str, values: Sequence[Any] = ()) -> int:
        with self._explaining():
            return self._connection().execute(_own(statement), values).rowcount

    def execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        if rows:
            with self._explaining(), self._connection().cursor() as cursor:
                cursor.executemany(_own(statement), rows)

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        try:
            return self._rows(query, values)
        except PassingError:
            if self._is_within:
                raise
            return self._rows(query, values)

    def now(self) -> float:
        """By the clock of the database, however this machine's clock is set."""
        at, theirs = self._clock
        return theirs + time.monotonic() - at

    def seen(self) -> float:
        """When a sign of life counts as given."""
        return self.now()

    def gone(self) -> list[str]:
        """None: what tells who has ended is its last sign of life. This only limits how many there are."""
        oldest = self.now() - _FORGOTTEN_SECONDS
        return [each for (each,) in self.rows("SELECT id FROM replicas WHERE seen < ?", oldest)]

    def close(self) -> None:
        self._closed.set()
        if self._sql is not None:
            self._sql.close()

    def _rows(self, query: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        with self._explaining():
            return self._connection().execute(_own(query), values).fetchall()

    def _connection(self) -> "psycopg.Connection[Any]":
        if self._sql is None:
            if self._is_within:
                raise PassingError(self._told("the connection was lost"))
            if time.monotonic() < self._silent_until:
                raise PassingError(self._told("it does not answer"))
            self._connect()
            assert self._sql is not None
        return self._sql

    def _connect(self) -> None:
        with self._explaining():
            self._silent_until = time.monotonic() + _SILENT_SECONDS
            connection = _connection_class(self._psycopg).connect(
                self._url,
                autocommit=True,
                application_name="mcp-code-portal",
                client_encoding="utf8",  # texts of a database in SQL_ASCII would be bytes
                connect_timeout=_CONNECT_SECONDS,
                # A network that swallows everything is noticed within about ten seconds.
                keepalives_idle=5,
                keepalives_interval=2,
                keepalives_count=3,
                tcp_user_timeout=10_000,
            )
            connection.execute(_SETTINGS)
            self._clock, before = _NO_CLOCK, time.monotonic()
            row = connection.execute(f"SELECT {_TIME}").fetchone()
            assert row is not None
            self._set_clock(before, row[0])
            self.address = _own_address(connection.fileno())
            self._sql, self._silent_until = connection, 0.0

    def _set_clock(self, before: float, theirs: float) -> None:
        """Each transaction does, because clocks drift, are set, and stand still while a machine is suspended."""
        now = time.monotonic()
        if self._clock == _NO_CLOCK or now - before < _EXACT_SECONDS:
            self._clock = (before + now) / 2, theirs

    def _check_url(self) -> None:
        """Raises StoreError: what libpq says about a malformed URL may contain parts of its password."""
        found = re.match(r"postgres(?:ql)?://([^/?#@]*@)?[^?@#\s]*(\?[^@#\s]*)?$", self._url)
        try:
            self._psycopg.conninfo.conninfo_to_dict(self._url)
        except self._psycopg.ProgrammingError:
            found = None
        if found is None:
            raise StoreError(
                "runs.store is not a URL of Postgres, such as postgres://user:password@host/name. Percent-encode "
                "what is special in its password: @ is %40, / is %2F, ? is %3F, # is %23, % is %25"
            )

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """Raise errors of the driver in the operator's words. Without a connection the next statement opens one."""
        errors = self._psycopg.errors
        try:
            yield
        except (errors.DeadlockDetected, errors.SerializationFailure, errors.LockNotAvailable) as error:
            raise PassingError(self._told(_reason(error))) from None
        except (
            self._psycopg.OperationalError,
            self._psycopg.InterfaceError,
            errors.IdleInTransactionSessionTimeout,
            errors.ReadOnlySqlTransaction,  # a standby, or a server that has become one
        ) as error:
            if self._sql is not None:
                self._sql.close()
                self._sql = None
            raise PassingError(self._told(_reason(error))) from None
        except self._psycopg.Error as error:
            raise DatabaseError(self._told(_reason(error)), spoils_all=False) from None

    def _told(self, reason: str) -> str:
        return (
            f"the store of runs in Postgres {self.name} cannot be used: {reason}. "
            "Is it running, and may this user write there? The address is that of runs.store"
        )


def _own_address(descriptor: int) -> str:
    """The address of this machine at one end of a connection; that of the loopback interface for a Unix socket."""
    with socket.socket(fileno=os.dup(descriptor)) as connection:
        own = connection.getsockname()
    return str(own[0]) if isinstance(own, tuple) else "127.0.0.1"


@cache
def _own(statement: str) -> str:
    return statement.replace("?", "%s")


def _reason(error: Exception) -> str:
    """The first line of what the driver or the database says. It names hosts and users, but no password."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")[:300]


@cache
def _connection_class(driver: Any) -> Any:
    """Connections that do not wait for ever, such as for a proxy that is up while the database is not."""

    class Connection(driver.Connection):  # type: ignore[misc]  # the driver is an extra
        def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
            return super().wait(gen, interval, timeout or _ANSWER_SECONDS)

    return Connection


def _driver() -> Any:
    try:
        import psycopg  # an extra, and a tenth of a second
    except ImportError:
        raise StoreError(
            f"runs.store names a Postgres database, and its driver is not installed. {with_extra('postgres')}"
        ) from None
    return psycopg
