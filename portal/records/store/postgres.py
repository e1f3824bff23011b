"""The Postgres database of runs, which several portals share.

Rule 1: a transaction about a run locks the run's row first. So no decision is lost while the run is being suspended.
Rule 2: every transaction stores an idempotency number. After a lost connection it is retried, unless the number is
there. So nothing is written twice, and nothing counts as written that a crash or a failover lost.
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
"""How long a transaction is retried while the database restarts or fails over. Then it fails."""

_PAUSE_SECONDS: Final = 0.2
_CONNECT_SECONDS: Final = 3
_ANSWER_SECONDS: Final = 12.0
"""After this time without an answer the connection counts as lost. The server itself ends a statement after 10 s."""

_FORGOTTEN_SECONDS: Final = 86_400.0
_SILENT_SECONDS: Final = 1.0
"""For this long after a failed connection, reads fail at once."""

_TIME: Final = "extract(epoch FROM clock_timestamp())::float8"
_MARK: Final = (
    "INSERT INTO key_values (kind, owner, name, value, changed) VALUES ('commit', '', '{}', '{}'::bytea, "
    f"{_TIME}) ON CONFLICT (kind, owner, name) DO UPDATE SET value = excluded.value, changed = excluded.changed "
    "WHERE key_values.value <> excluded.value RETURNING 1;"
)
"""Stores a transaction's number. Waits while an earlier attempt commits; returns no row if that one succeeded."""

_NO_CLOCK: Final = (0.0, 0.0)
_EXACT_SECONDS: Final = 0.5
"""The clock in an answer that took longer is too inexact to use."""

_PREPARE_LOCK: Final = 0x6D637063
_SETTINGS: Final = (
    # A portal that is stopped within a transaction must not hold the locks of runs for long.
    "SET idle_in_transaction_session_timeout = '5s'; SET statement_timeout = '10s'; "
    "SET default_transaction_isolation = 'read committed'; "
    # A crash of the database must not lose the intent of a call that was sent.
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
    """The transaction failed for a transient reason: a lost connection, or a deadlock."""


class PostgresDatabase:
    """One connection, reopened when it is lost. Raises DatabaseError: it cannot be opened."""

    for_update = " FOR UPDATE"
    keeps_runs = False

    def __init__(self, url: str) -> None:
        self._psycopg = _driver()
        self._url = url
        # For messages: the hosts and the name of the database, without user and password.
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
        # Always lasting: a portal outlives a crash of its database, and would rely on rows that are lost.
        with self._transaction(""):
            yield

    def commit(self, work: Callable[[], Result], *, is_lasting: bool, is_patient: bool = True) -> Result:
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
                    raise DatabaseError(self._unusable("its mark of this transaction was altered"))
                return done[0]
            except PassingError as error:
                if time.monotonic() > until or self._closed.wait(_PAUSE_SECONDS):
                    if done:
                        raise DatabaseError(str(error), is_in_doubt=True) from None
                    raise

    @contextmanager
    def _transaction(self, mark: str) -> Iterator[bool]:
        """Yield whether the work has to be done: no earlier attempt has stored this mark."""
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
        """Seconds since 1970 by the clock of the database, which does not depend on this machine's clock."""
        at, theirs = self._clock
        return theirs + time.monotonic() - at

    def seen(self) -> float:
        return self.now()

    def gone(self) -> list[str]:
        """Portals whose last heartbeat is a day old. LEASE_SECONDS decides who has ended; this only deletes rows."""
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
                raise PassingError(self._unusable("the connection was lost"))
            if time.monotonic() < self._silent_until:
                raise PassingError(self._unusable("it does not answer"))
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
                client_encoding="utf8",  # in SQL_ASCII, the driver would return bytes for texts
                connect_timeout=_CONNECT_SECONDS,
                # Notices within about ten seconds that a network drops all packets.
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
        """Adjust the store's clock. Each transaction does: clocks drift, are set, and stop in a suspended machine."""
        now = time.monotonic()
        if self._clock == _NO_CLOCK or now - before < _EXACT_SECONDS:
            self._clock = (before + now) / 2, theirs

    def _check_url(self) -> None:
        """Raises StoreError without libpq's text: on a malformed URL, that may quote parts of the password."""
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
        """Raise the driver's errors in the operator's words. The next statement reopens a lost connection."""
        errors = self._psycopg.errors
        try:
            yield
        except (errors.DeadlockDetected, errors.SerializationFailure, errors.LockNotAvailable) as error:
            raise PassingError(self._unusable(_reason(error))) from None
        except (
            self._psycopg.OperationalError,
            self._psycopg.InterfaceError,
            errors.IdleInTransactionSessionTimeout,
            errors.ReadOnlySqlTransaction,  # a standby, or a former primary
        ) as error:
            if self._sql is not None:
                self._sql.close()
                self._sql = None
            raise PassingError(self._unusable(_reason(error))) from None
        except self._psycopg.Error as error:
            raise DatabaseError(self._unusable(_reason(error)), spoils_all=False) from None

    def _unusable(self, reason: str) -> str:
        return (
            f"the store of runs in Postgres {self.name} cannot be used: {reason}. "
            "Is it running, and may this user write there? The address is that of runs.store"
        )


def _own_address(descriptor: int) -> str:
    """This machine's address on a connection; the loopback address for a Unix socket."""
    with socket.socket(fileno=os.dup(descriptor)) as connection:
        own = connection.getsockname()
    return str(own[0]) if isinstance(own, tuple) else "127.0.0.1"


@cache
def _own(statement: str) -> str:
    return statement.replace("?", "%s")


def _reason(error: Exception) -> str:
    """The first line of the driver's or the database's message. It may name hosts and users, but no password."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")[:300]


@cache
def _connection_class(driver: Any) -> Any:
    """A connection class whose waits end, as when a proxy is up but the database behind it is down."""

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
