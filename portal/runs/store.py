"""The SQLite file of runs. One portal writes it; the command line reads it, and writes decisions of people.

Rule 1: each write of a portal about a run names the epoch under which it holds the run. Who takes the run over, or ends
it, increases the epoch, so the former holder's writes change nothing (`FencedError`).
Rule 2: the first decision about a call wins.
"""

import hashlib
import math
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from portal.runs.records import (
    MAX_OPEN_RUNS,
    CallRow,
    CallRowState,
    FencedError,
    LogRow,
    RunRow,
    RunState,
    Seal,
    StoredRun,
    StoreError,
    TooManyRunsError,
)

FORMAT: Final = 1
BUSY_SECONDS: Final = 5.0
"""How long a write waits for another process, such as the command line."""

DAY_SECONDS: Final = 86_400.0

_SCHEMA: Final = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID;
CREATE TABLE runs (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, state TEXT NOT NULL, epoch INTEGER NOT NULL, began REAL NOT NULL,
    updated REAL NOT NULL, expires REAL NOT NULL, wake_at REAL, ended REAL, parent TEXT, title BLOB NOT NULL,
    component TEXT NOT NULL, profile TEXT, head BLOB NOT NULL, answer BLOB
);
CREATE INDEX due ON runs (wake_at) WHERE state = 'waiting';
CREATE INDEX open_runs ON runs (expires) WHERE state IN ('running', 'waiting');
CREATE INDEX ended_runs ON runs (ended);
CREATE INDEX owned ON runs (owner, began);
CREATE INDEX owned_and_open ON runs (owner) WHERE state IN ('running', 'waiting');
CREATE TABLE events (run TEXT, n INTEGER, chunk BLOB NOT NULL, PRIMARY KEY (run, n)) WITHOUT ROWID;
CREATE TABLE calls (
    run TEXT, seq INTEGER, kind TEXT NOT NULL, function TEXT NOT NULL, state TEXT NOT NULL, digest TEXT NOT NULL,
    arguments_sha256 TEXT NOT NULL, name TEXT NOT NULL, due_at REAL, decided_by TEXT NOT NULL, shown BLOB NOT NULL,
    decision BLOB, outcome BLOB, PRIMARY KEY (run, seq)
) WITHOUT ROWID;
CREATE TABLE hooks (
    token_sha256 TEXT PRIMARY KEY, run TEXT NOT NULL, name TEXT NOT NULL, token BLOB NOT NULL, payload BLOB,
    UNIQUE (run, name)
) WITHOUT ROWID;
CREATE TABLE results (handle TEXT PRIMARY KEY, owner TEXT NOT NULL, value BLOB NOT NULL, kept REAL NOT NULL);
CREATE TABLE log (n INTEGER PRIMARY KEY AUTOINCREMENT, run TEXT, at REAL, kind TEXT, data BLOB);
CREATE INDEX log_of_run ON log (run, n);
CREATE TABLE deliveries (
    id TEXT PRIMARY KEY, run TEXT, hook INTEGER, body BLOB, attempt INTEGER, next_at REAL
) WITHOUT ROWID;
CREATE INDEX due_deliveries ON deliveries (hook, next_at);
CREATE INDEX deliveries_of_run ON deliveries (run, hook, id);
"""
_ADDED: Final = (
    "CREATE TABLE IF NOT EXISTS kept (kind TEXT NOT NULL, owner TEXT NOT NULL, name TEXT NOT NULL, "
    "value BLOB NOT NULL, changed REAL NOT NULL, PRIMARY KEY (kind, owner, name))"
)
"""What files of this format may lack that an earlier version wrote."""

_RUN_FIELDS: Final = [field.name for field in fields(RunRow)]
_CALL_FIELDS: Final = [field.name for field in fields(CallRow)]
_OF_CALL: Final = attrgetter(*_CALL_FIELDS)
_RUN_COLUMNS: Final = ", ".join(_RUN_FIELDS)
_CALL_COLUMNS: Final = ", ".join(_CALL_FIELDS)
_ADD_CALL: Final = (
    f"INSERT INTO calls ({_CALL_COLUMNS}) VALUES ({', '.join('?' * len(_CALL_FIELDS))}) "
    # An approved call is about to be sent: its row exists.
    "ON CONFLICT (run, seq) DO UPDATE SET state = excluded.state"
)
_OPEN: Final = "state IN ('running', 'waiting')"
_OPEN_RUN: Final = f"runs.{_OPEN}"
"""The same beside another table's `state`. Ask it of one run: `run IN (SELECT ...)` would read all open ones."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A webhook that has to be sent. `hook` is a number of its URL; `attempt` counts from 0. Ids sort by time."""

    id: str
    run: str
    hook: int
    body: bytes
    attempt: int
    next_at: float


class RunFile:
    """A connection to the file. Methods that write have to be called within `transaction()`.

    Not for several threads at once.
    """

    def __init__(self, path: Path, key: str | None) -> None:
        """Open the file, and create it if it is missing.

        Raises StoreError: it cannot be opened, is damaged, of another version, or needs another key.
        """
        self.path = path
        self.on_note: Callable[[RunFile, str, str], None] | None = None
        """Called with a run and what happened to it, such as its new state, in the same transaction."""
        self._key = key
        self._is_lasting: bool | None = None
        self._seal = Seal(key)
        try:
            # Created here, because SQLite would do it with the umask. An existing file must not be opened: closing it
            # would drop the locks of this process's other connections, and a process that closes the file then would
            # delete their -wal. Source: sqlite.org/howtocorrupt.html, 2.2.
            with suppress(FileExistsError):
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            self._sql = sqlite3.connect(
                path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            self._sql.execute("PRAGMA journal_mode = WAL")
            with self.transaction():
                self._prepare()
        except (OSError, sqlite3.Error) as error:
            raise _explained(error, path) from None

    def close(self) -> None:
        self._sql.close()

    @contextmanager
    def transaction(self, *, is_lasting: bool = False) -> Iterator[None]:
        """Write everything or nothing; with `is_lasting` it survives a loss of power when this returns.

        Raises StoreError: it cannot be written.
        """
        try:
            if is_lasting is not self._is_lasting:
                self._sql.execute(f"PRAGMA synchronous = {'FULL' if is_lasting else 'NORMAL'}")
                self._is_lasting = is_lasting
            self._sql.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._sql.execute("COMMIT")
            except BaseException:
                if self._sql.in_transaction:
                    self._sql.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise _explained(error, self.path) from None

    @contextmanager
    def part(self) -> Iterator[None]:
        """A part of a transaction, which is undone alone if it raises."""
        self._sql.execute("SAVEPOINT part")
        try:
            yield
        except BaseException:
            self._sql.execute("ROLLBACK TO part")
            raise
        finally:
            self._sql.execute("RELEASE part")

    # Runs

    def create(self, row: RunRow, head: bytes) -> None:
        """Add a run, with its epoch. Raises TooManyRunsError."""
        if self._value(f"SELECT count(*) FROM runs WHERE owner = ? AND {_OPEN}", row.owner) >= MAX_OPEN_RUNS:
            raise TooManyRunsError(
                f"this caller has {MAX_OPEN_RUNS:,} open runs, which is the limit. Cancel some, or wait for them"
            )
        named = {name: getattr(row, name) for name in _RUN_FIELDS}
        values = {
            **named,
            "title": self._seal.close(row.title.encode("utf-8", "replace")),
            "head": self._seal.close(head),
        }
        self._insert("runs", values)
        self.note(row.id, "began")

    def advance(
        self,
        run: str,
        epoch: int,
        *,
        chunk: bytes = b"",
        head: bytes | None = None,
        component: str = "",
        calls: Sequence[CallRow] = (),
        outcomes: Sequence[tuple[int, bytes]] = (),
    ) -> None:
        """Append to the journal of a run. `calls` are new ones; `outcomes` are those of calls, as JSON by `seq`.

        Raises FencedError: the caller does not hold the run any more.
        """
        self._hold(run, epoch)
        if head is not None:
            self._sql.execute(
                "UPDATE runs SET head = ?, component = ? WHERE id = ?",
                (self._seal.close(head), component, run),
            )
        if chunk:
            self._sql.execute(
                "INSERT INTO events SELECT ?, coalesce(max(n), 0) + 1, ? FROM events WHERE run = ?",
                (run, self._seal.close(chunk), run),
            )
        self._sql.executemany(_ADD_CALL, map(self._call_values, calls))
        for call in calls:
            if call.name:
                self._sql.execute(
                    "UPDATE calls SET state = 'delivered' WHERE run = ? AND seq = ? AND state = 'waiting' AND EXISTS "
                    "(SELECT 1 FROM hooks WHERE run = ? AND name = ? AND payload IS NOT NULL)",
                    (run, call.seq, run, call.name),
                )
        self._sql.executemany(
            "UPDATE calls SET outcome = ?, state = 'done' WHERE run = ? AND seq = ?",
            [(self._seal.close(outcome), run, seq) for seq, outcome in outcomes],
        )
        begun = [(call.state, call.seq, call.function) for call in calls]
        self._log(run, [*begun, *(("done", seq, "") for seq, _ in outcomes)])

    def park(self, run: str, epoch: int, waiting: Collection[int]) -> None:
        """Let the run wait until the first of its `waiting` calls is decided or due: at once, if one is.

        What else it waited for, the script gave up. Raises FencedError: the caller does not hold the run any more.
        """
        self._hold(run, epoch)
        marks = ", ".join(map(str, waiting))
        self._sql.execute(
            f"UPDATE calls SET state = 'done' WHERE run = ? AND state = 'waiting' AND seq NOT IN ({marks})",
            (run,),
        )
        of_these = f"FROM calls WHERE run = ? AND seq IN ({marks}) AND state"
        decided = self._value(f"SELECT count(*) {of_these} != 'waiting'", run)
        due = self._value(f"SELECT min(due_at) {of_these} = 'waiting'", run)
        self._sql.execute(
            "UPDATE runs SET state = 'waiting', wake_at = ? WHERE id = ?", (0.0 if decided else due, run)
        )
        self.note(run, "waiting")

    def postpone_run(self, run: str, epoch: int, wake_at: float) -> None:
        """Let a run that could not be taken up wait until a time. Raises FencedError."""
        self._hold(run, epoch)
        self._sql.execute("UPDATE runs SET state = 'waiting', wake_at = ? WHERE id = ?", (wake_at, run))

    def claim(self, run: str) -> StoredRun:
        """Take a run over to go on with it: increases its epoch. Raises FencedError: it has ended."""
        now = time.time()
        self._sql.execute(
            "UPDATE calls SET state = 'due' WHERE run = ? AND state = 'waiting' AND due_at <= ?", (run, now)
        )
        changed = self._sql.execute(
            "UPDATE runs SET epoch = epoch + 1, state = 'running', wake_at = NULL, updated = ? "
            f"WHERE id = ? AND {_OPEN}",
            (now, run),
        )
        found = self.load(run) if changed.rowcount else None
        if found is None:
            raise FencedError(run)
        self.note(run, "resumed")
        return found

    def finish(self, run: str, state: RunState, answer: bytes | None, epoch: int | None = None) -> bool:
        """End a run. Without an epoch anybody may: then the holder is fenced. Returns whether it was open.

        Raises FencedError: with an epoch, if the caller does not hold the run any more.
        """
        if epoch is not None:
            self._hold(run, epoch)
        now = time.time()
        changed = self._sql.execute(
            "UPDATE runs SET state = ?, answer = coalesce(?, answer), ended = ?, updated = ?, wake_at = NULL, "
            f"epoch = epoch + 1 WHERE id = ? AND {_OPEN}",
            (state, answer and self._seal.close(answer), now, now, run),
        )
        if changed.rowcount:
            self.note(run, state)
        return bool(changed.rowcount)

    def row(self, run: str) -> RunRow | None:
        found = self._rows(f"SELECT {_RUN_COLUMNS} FROM runs WHERE id = ?", run)
        return self._run(found[0]) if found else None

    def load(self, run: str) -> StoredRun | None:
        """Everything about a run."""
        row = self.row(run)
        if row is None:
            return None
        chunks = self._rows("SELECT chunk FROM events WHERE run = ? ORDER BY n", run)
        head, answer = self._rows("SELECT head, answer FROM runs WHERE id = ?", run)[0]
        return StoredRun(
            row,
            self._seal.open(head),
            tuple(self._seal.open(chunk) for (chunk,) in chunks),
            self.calls(run),
            None if answer is None else self._seal.open(answer),
        )

    def ids(self, prefix: str, limit: int = 100) -> list[str]:
        """The ids that begin with a prefix."""
        query = "SELECT id FROM runs WHERE substr(id, 1, ?) = ? ORDER BY id LIMIT ?"
        return [run for (run,) in self._rows(query, len(prefix), prefix, limit)]

    def listed(self, owner: str | None = None, limit: int = 100, *, is_open: bool = False) -> list[RunRow]:
        """The newest runs, of one owner or of all; with `is_open` only those that go on."""
        where = ["owner = ?"] if owner is not None else []
        where += [_OPEN] if is_open else []
        clause = f"WHERE {' AND '.join(where)}" if where else ""
        values = [] if owner is None else [owner]
        found = self._rows(
            f"SELECT {_RUN_COLUMNS} FROM runs {clause} ORDER BY began DESC, rowid DESC LIMIT ?",
            *values,
            limit,
        )
        return [self._run(each) for each in found]

    def epochs(self, runs: Sequence[str]) -> dict[str, int]:
        """The epochs of those of these runs that are open and exist."""
        marks = ", ".join("?" * len(runs))
        return dict(self._rows(f"SELECT id, epoch FROM runs WHERE id IN ({marks}) AND {_OPEN}", *runs))

    def due(self, now: float, profiles: Sequence[str | None], limit: int) -> list[str]:
        """The waiting runs of these profiles whose time has come, longest due first."""
        query = f"WHERE state = 'waiting' AND wake_at <= ? AND {_of(profiles)} ORDER BY wake_at LIMIT ?"
        return [run for (run,) in self._rows(f"SELECT id FROM runs {query}", now, *profiles, limit)]

    def next_due(self, now: float) -> float:
        """When the next waiting run is due that is not due now, or an open run expires."""
        query = "SELECT min(wake_at) FROM runs WHERE state = 'waiting' AND wake_at > ?"
        expires = self._value(f"SELECT min(expires) FROM runs WHERE {_OPEN}")
        return min(self._value(query, now) or math.inf, expires or math.inf)

    def components(self) -> set[str]:
        """The guest components in which open runs began."""
        return {
            component for (component,) in self._rows(f"SELECT DISTINCT component FROM runs WHERE {_OPEN}")
        }

    def running(self, profiles: Sequence[str | None]) -> list[str]:
        """The runs of these profiles that a portal was running: after its end, those to go on with."""
        query = f"SELECT id FROM runs WHERE state = 'running' AND {_of(profiles)} ORDER BY began"
        return [run for (run,) in self._rows(query, *profiles)]

    def sweep(self, now: float, keep_seconds: float) -> list[str]:
        """End the runs that are too old, and delete what is kept no longer. Returns the ended ones."""
        expired = [run for (run,) in self._rows(f"SELECT id FROM runs WHERE {_OPEN} AND expires <= ?", now)]
        for run in expired:
            self.finish(run, "expired", None)
        old = [run for (run,) in self._rows("SELECT id FROM runs WHERE ended <= ?", now - keep_seconds)]
        for run in old:
            self._sql.execute("DELETE FROM runs WHERE id = ?", (run,))
            for table in ("events", "calls", "hooks", "log", "deliveries"):
                self._sql.execute(f"DELETE FROM {table} WHERE run = ?", (run,))
        self._sql.execute("DELETE FROM results WHERE kept <= ?", (now - keep_seconds,))
        return expired

    # Calls, decisions and events

    def calls(self, run: str, which: str = "true") -> tuple[CallRow, ...]:
        """The calls of a run, or those of which `which` is true, in SQL."""
        found = self._rows(f"SELECT {_CALL_COLUMNS} FROM calls WHERE run = ? AND {which} ORDER BY seq", run)
        return tuple(map(self._call, found))

    def call(self, run: str, seq: int) -> CallRow | None:
        found = self._rows(f"SELECT {_CALL_COLUMNS} FROM calls WHERE run = ? AND seq = ?", run, seq)
        return self._call(found[0]) if found else None

    def decide(self, run: str, seq: int, state: CallRowState, decision: bytes, by: str) -> bool:
        """Decide about a call that waits for a person. Returns whether this was the first decision.

        The run has to be open; otherwise nothing changes.
        """
        changed = self._sql.execute(
            "UPDATE calls SET state = ?, decision = ?, decided_by = ? WHERE run = ? AND seq = ? "
            "AND state = 'waiting' AND kind IN ('ask', 'approve') "
            f"AND EXISTS (SELECT 1 FROM runs WHERE id = calls.run AND {_OPEN_RUN})",
            (state, self._seal.close(decision), by, run, seq),
        )
        if changed.rowcount:
            self._wake(run)
            self.note(run, state, seq)
        return bool(changed.rowcount)

    def expire_call(self, run: str, seq: int) -> None:
        """The time of a waiting call has come, unless it was decided before."""
        self._sql.execute(
            "UPDATE calls SET state = 'due' WHERE run = ? AND seq = ? AND state = 'waiting'", (run, seq)
        )

    def hook(self, run: str, name: str) -> str:
        """The token of the URL that delivers an event to a run. It cannot be guessed, and is created once."""
        known = self._rows("SELECT token FROM hooks WHERE run = ? AND name = ?", run, name)
        if known:
            return self._seal.open(known[0][0]).decode()
        token = secrets.token_urlsafe(24)
        sealed = self._seal.close(token.encode())
        self._insert("hooks", {"token_sha256": _sha256(token), "run": run, "name": name, "token": sealed})
        return token

    def knows_hook(self, token: str) -> bool:
        return bool(self._rows("SELECT 1 FROM hooks WHERE token_sha256 = ?", _sha256(token)))

    def deliver(self, token: str, payload: bytes) -> tuple[str, bool] | None:
        """Deliver an event. Returns the run and whether it was the first delivery; None for an unknown token."""
        found = self._rows(
            "SELECT run, name FROM hooks WHERE token_sha256 = ? "
            f"AND EXISTS (SELECT 1 FROM runs WHERE id = hooks.run AND {_OPEN_RUN})",
            _sha256(token),
        )
        if not found:
            return None
        run, name = found[0]
        changed = self._sql.execute(
            "UPDATE hooks SET payload = ? WHERE run = ? AND name = ? AND payload IS NULL",
            (self._seal.close(payload), run, name),
        )
        if changed.rowcount:
            self._sql.execute(
                "UPDATE calls SET state = 'delivered' "
                "WHERE run = ? AND name = ? AND kind = 'event' AND state = 'waiting'",
                (run, name),
            )
            self._wake(run)
            self.note(run, "delivered")
        return run, bool(changed.rowcount)

    def payload(self, run: str, name: str) -> bytes | None:
        """The payload of an event, if it was delivered."""
        found = self._rows("SELECT payload FROM hooks WHERE run = ? AND name = ?", run, name)
        return self._seal.open(found[0][0]) if found and found[0][0] is not None else None

    # Kept results

    def keep_result(self, handle: str, owner: str, value: bytes) -> None:
        values = {"handle": handle, "owner": owner, "value": self._seal.close(value), "kept": time.time()}
        self._insert("results", values, "DO NOTHING")

    def kept_result(self, handle: str, owner: str) -> bytes | None:
        """The value behind a handle, if it is the owner's."""
        found = self._rows("SELECT value FROM results WHERE handle = ? AND owner = ?", handle, owner)
        return self._seal.open(found[0][0]) if found else None

    # What else is kept for an owner: one value for each kind and name

    def keep(self, kind: str, owner: str, name: str, value: bytes) -> None:
        values = {"kind": kind, "owner": owner, "name": name, "value": self._seal.close(value)}
        update = "(kind, owner, name) DO UPDATE SET value = excluded.value, changed = excluded.changed"
        self._insert("kept", {**values, "changed": time.time()}, update)

    def kept(self, kind: str, owner: str, name: str) -> bytes | None:
        query = "SELECT value FROM kept WHERE kind = ? AND owner = ? AND name = ?"
        found = self._rows(query, kind, owner, name)
        return self._seal.open(found[0][0]) if found else None

    def drop_kept(self, kind: str, owner: str, name: str) -> None:
        self._sql.execute("DELETE FROM kept WHERE kind = ? AND owner = ? AND name = ?", (kind, owner, name))

    # The log of what happened, and webhooks

    def note(self, run: str, kind: str, seq: int = 0) -> None:
        """Log one thing that happened to a run."""
        self._log(run, [(kind, seq, "")])
        if not seq and self.on_note is not None:
            self.on_note(self, run, kind)

    def log_after(self, n: int, run: str | None = None, limit: int = 500) -> list[LogRow]:
        """What happened after entry `n`, to one run or to all; oldest first."""
        clause, values = ("AND run = ?", [run]) if run is not None else ("", [])
        query = f"SELECT n, run, at, kind, data FROM log WHERE n > ? {clause} ORDER BY n LIMIT ?"
        rows = []
        for number, of, at, kind, data in self._rows(query, n, *values, limit):
            seq, _, function = self._seal.open(data).decode().partition(" ") if data else ("0", "", "")
            rows.append(LogRow(number, of, at, kind, int(seq), function))
        return rows

    def last_log(self) -> int:
        return int(self._value("SELECT coalesce(max(n), 0) FROM log"))

    def add_delivery(self, delivery: Delivery) -> None:
        values = {each.name: getattr(delivery, each.name) for each in fields(Delivery)}
        self._insert("deliveries", {**values, "body": self._seal.close(delivery.body)})

    def deliveries(self, hook: int, limit: int) -> list[Delivery]:
        """What is to be sent to a URL, in order of `next_at`: of each run only the oldest."""
        query = (
            "SELECT id, run, hook, body, attempt, next_at FROM deliveries AS d WHERE hook = ? AND NOT EXISTS "
            "(SELECT 1 FROM deliveries WHERE run = d.run AND hook = d.hook AND id < d.id) ORDER BY next_at LIMIT ?"
        )
        found = [Delivery(*each) for each in self._rows(query, hook, limit)]
        return [replace(each, body=self._seal.open(each.body)) for each in found]

    def postpone(self, delivery: str, attempt: int, next_at: float) -> None:
        self._sql.execute(
            "UPDATE deliveries SET attempt = ?, next_at = ? WHERE id = ?", (attempt, next_at, delivery)
        )

    def end_delivery(self, delivery: str) -> None:
        self._sql.execute("DELETE FROM deliveries WHERE id = ?", (delivery,))

    def take_over(self, path: Path) -> None:
        """Copy everything from another file of the same format and key, which nobody writes. Outside a transaction.

        Raises StoreError: it cannot be read. What this file has already stays as it is.
        """
        RunFile(path, self._key).close()  # checks format and key
        try:
            self._sql.execute("ATTACH DATABASE ? AS other", (str(path),))
            try:
                with self.transaction(is_lasting=True):
                    for table in ("runs", "events", "calls", "hooks", "results", "deliveries", "kept"):
                        self._sql.execute(f"INSERT OR IGNORE INTO {table} SELECT * FROM other.{table}")
                    self._sql.execute(
                        "INSERT INTO log (run, at, kind, data) SELECT run, at, kind, data FROM other.log ORDER BY n"
                    )
            finally:
                self._sql.execute("DETACH DATABASE other")
        except sqlite3.Error as error:
            raise _explained(error, path) from None

    # SQL

    def _prepare(self) -> None:
        found = self._value("PRAGMA user_version")
        if found == 0:
            for statement in filter(str.strip, _SCHEMA.split(";")):
                self._sql.execute(statement)
            self._sql.execute(f"PRAGMA user_version = {FORMAT}")
            self._insert("meta", {"key": "key check", "value": self._seal.close(b"")})
        elif found != FORMAT:
            raise StoreError(
                f"the store of runs {self.path} is of format {found}, and this portal writes format {FORMAT}. "
                "Use the version that wrote it, or name another file in runs.store"
            )
        self._sql.execute(_ADDED)
        try:
            self._seal.open(self._value("SELECT value FROM meta WHERE key = 'key check'"))
        except StoreError:
            raise StoreError(
                f"the store of runs {self.path} was written with another runs.key. Set that key, or name another "
                "file in runs.store"
            ) from None

    def _log(self, run: str, noted: Sequence[tuple[str, int, str]]) -> None:
        """Log what happened, each with its call's number and function."""
        now = time.time()
        self._sql.executemany(
            "INSERT INTO log (run, at, kind, data) VALUES (?, ?, ?, ?)",
            [
                (run, now, kind, self._seal.close(f"{seq} {function}".encode()) if seq else b"")
                for kind, seq, function in noted
            ],
        )

    def _hold(self, run: str, epoch: int) -> None:
        changed = self._sql.execute(
            f"UPDATE runs SET updated = ? WHERE id = ? AND epoch = ? AND {_OPEN}", (time.time(), run, epoch)
        )
        if not changed.rowcount:
            raise FencedError(run)

    def _wake(self, run: str) -> None:
        self._sql.execute("UPDATE runs SET wake_at = 0 WHERE id = ? AND state = 'waiting'", (run,))

    def _run(self, values: tuple[Any, ...]) -> RunRow:
        row = RunRow(*values)
        return replace(row, title=self._seal.open(values[_RUN_FIELDS.index("title")]).decode())

    def _call_values(self, call: CallRow) -> list[Any]:
        *plain, shown, decision, outcome = _OF_CALL(call)
        decision = decision and self._seal.close(decision)
        return [*plain, self._seal.close(shown), decision, outcome and self._seal.close(outcome)]

    def _call(self, values: tuple[Any, ...]) -> CallRow:
        row = CallRow(*values)
        opened = {
            name: None if sealed is None else self._seal.open(sealed)
            for name in ("shown", "decision", "outcome")
            for sealed in (getattr(row, name),)
        }
        return replace(row, **opened)  # type: ignore[arg-type]  # all three are bytes

    def _insert(self, table: str, values: dict[str, Any], on_conflict: str = "") -> None:
        columns, marks = ", ".join(values), ", ".join("?" * len(values))
        clause = f" ON CONFLICT {on_conflict}" if on_conflict else ""
        self._sql.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks}){clause}", [*values.values()])

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        try:
            return self._sql.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise _explained(error, self.path) from None

    def _value(self, query: str, *values: Any) -> Any:
        return self._rows(query, *values)[0][0]


def _of(profiles: Sequence[str | None]) -> str:
    return f"({' OR '.join(['profile IS ?'] * len(profiles))})"


def _sha256(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _explained(error: OSError | sqlite3.Error, path: Path) -> StoreError:
    """The error in the operator's words: what is wrong with the file, and what to do."""
    reason = (getattr(error, "strerror", None) or str(error)).rstrip(".")
    if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
        hint = "The file is damaged or no store of runs. Move it away, or name another one in runs.store"
    elif "locked" in reason:
        hint = "Another process holds its lock: is one of them stopped?"
    else:
        hint = "Make room or access, or name another file in runs.store"
    return StoreError(f"the store of runs {path} cannot be used: {reason}. {hint}")
