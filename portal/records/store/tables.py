"""The tables in SQLite or Postgres, and their contents besides runs: portals, kept results, logins, the audit log."""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from portal.base.caller import WITHOUT_TOKEN
from portal.records.store.postgres import PostgresDatabase
from portal.records.store.records import QuotaError, Seal, StoreError
from portal.records.store.sqlite import SqliteDatabase

FORMAT: Final = 5

UNSOURCED: Final = ("workspace", "", "")
"""The key of the mark that scripts ran here before portals recorded the sources of files."""

DAY_SECONDS: Final = 86_400.0

LEASE_SECONDS: Final = 10.0
"""How long the lease of a replica's runs lasts after its heartbeat. Then others take the runs over."""

AUDIT_PAGE_LINES: Final = 1_000

_META: Final = "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID"
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS runs (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, state TEXT NOT NULL, epoch INTEGER NOT NULL, began REAL NOT NULL,
    updated REAL NOT NULL, expires REAL NOT NULL, wake_at REAL, ended REAL, parent TEXT, title BLOB NOT NULL,
    component TEXT NOT NULL, profile TEXT, head BLOB NOT NULL, answer BLOB, holder TEXT NOT NULL DEFAULT ''
);
CREATE INDEX IF NOT EXISTS due ON runs (wake_at) WHERE state = 'waiting';
CREATE INDEX IF NOT EXISTS open_runs ON runs (expires) WHERE state IN ('running', 'waiting');
CREATE INDEX IF NOT EXISTS ended_runs ON runs (ended);
CREATE INDEX IF NOT EXISTS owned ON runs (owner, began);
CREATE INDEX IF NOT EXISTS owned_and_open ON runs (owner) WHERE state IN ('running', 'waiting');
CREATE INDEX IF NOT EXISTS runs_by_time ON runs (began);
CREATE INDEX IF NOT EXISTS failed_runs ON runs (owner, began)
    WHERE state IN ('error', 'refused', 'expired', 'stuck');
CREATE INDEX IF NOT EXISTS open_runs_by_time ON runs (began) WHERE state IN ('running', 'waiting');
CREATE INDEX IF NOT EXISTS failed_runs_by_time ON runs (began)
    WHERE state IN ('error', 'refused', 'expired', 'stuck');
CREATE INDEX IF NOT EXISTS held_runs ON runs (holder) WHERE state = 'running';
CREATE TABLE IF NOT EXISTS replicas (id TEXT PRIMARY KEY, seen REAL NOT NULL, url TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS key_values (
    kind TEXT, owner TEXT, name TEXT, value BLOB NOT NULL, changed REAL NOT NULL, PRIMARY KEY (kind, owner, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS events (run TEXT, n INTEGER, chunk BLOB NOT NULL, PRIMARY KEY (run, n)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS calls (
    run TEXT, seq INTEGER, kind TEXT NOT NULL, function TEXT NOT NULL, state TEXT NOT NULL, digest TEXT NOT NULL,
    arguments_sha256 TEXT NOT NULL, name TEXT NOT NULL, due_at REAL, decided_by TEXT NOT NULL, shown BLOB NOT NULL,
    decision BLOB, outcome BLOB, PRIMARY KEY (run, seq)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS hooks (
    token_sha256 TEXT PRIMARY KEY, run TEXT NOT NULL, name TEXT NOT NULL, token BLOB NOT NULL, payload BLOB,
    UNIQUE (run, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS results (
    handle TEXT PRIMARY KEY, owner TEXT NOT NULL, value BLOB NOT NULL, kept REAL NOT NULL, sources TEXT
);
CREATE TABLE IF NOT EXISTS log (n INTEGER PRIMARY KEY AUTOINCREMENT, run TEXT, at REAL, kind TEXT, data BLOB);
CREATE INDEX IF NOT EXISTS log_of_run ON log (run, n);
CREATE TABLE IF NOT EXISTS deliveries (
    id TEXT PRIMARY KEY, run TEXT, hook INTEGER, body BLOB, attempt INTEGER, next_at REAL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS due_deliveries ON deliveries (hook, next_at);
CREATE INDEX IF NOT EXISTS deliveries_of_run ON deliveries (run, hook, id);
CREATE TABLE IF NOT EXISTS audit (seq INTEGER PRIMARY KEY, line TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS trail (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, client TEXT NOT NULL, state TEXT NOT NULL,
    code TEXT NOT NULL, title BLOB NOT NULL, began REAL NOT NULL, ms REAL NOT NULL, check_ms REAL NOT NULL,
    calls INTEGER NOT NULL, failed INTEGER NOT NULL, unknown INTEGER NOT NULL,
    denied INTEGER NOT NULL, result_bytes INTEGER NOT NULL, answer_bytes INTEGER NOT NULL,
    is_journaled INTEGER NOT NULL, listed BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS trail_by_time ON trail (began, id);
CREATE INDEX IF NOT EXISTS owned_trail ON trail (owner, began, id) WHERE is_journaled = 0;
CREATE INDEX IF NOT EXISTS failed_trail ON trail (owner, began, id)
    WHERE is_journaled = 0 AND state IN ('error', 'refused', 'expired', 'stuck');
CREATE INDEX IF NOT EXISTS failed_trail_by_time ON trail (began, id)
    WHERE is_journaled = 0 AND state IN ('error', 'refused', 'expired', 'stuck');
"""


def id_range(kind: str, written: str, owner: str | None) -> tuple[str, str] | None:
    """The smallest and largest id of an owner with this prefix; None if that is too short, or not part of an id."""
    digits = written.removeprefix(f"{kind}_")
    # Where callers cannot be told apart, ids are secrets: trying all prefixes of four digits would find them all.
    least = 32 if owner == WITHOUT_TOKEN else 4
    is_id = re.fullmatch(f"[0-9a-f]{{{least},32}}", digits)
    return (f"{kind}_{digits}", f"{kind}_{digits}g") if is_id else None


class Tables:
    """One connection to the tables. Methods that write have to be called within `transaction()`.

    Not safe for concurrent use by several threads.
    """

    def __init__(
        self,
        database: SqliteDatabase | PostgresDatabase,
        key: str | None,
        holder: str = "",
        quota_bytes: float = math.inf,
        on_note: Callable[[Any, str, str], None] | None = None,
    ) -> None:
        """Create the tables if they are missing. `holder` is the portal that runs what it creates and claims.

        Each owner may keep `quota_bytes`. The count starts with `count_kept`. It then adds what this portal writes,
        even if that is rolled back, but not what others write. `on_note` is called in the same transaction with a run
        and what happened to it, such as its new state.
        Only a portal converts tables of an earlier format: portals of that version cannot open them any more.
        Raises StoreError: they are damaged, of another version, or need another key.
        """
        self.database = database
        self.transaction = database.transaction
        self.now = database.now
        self.holder = holder
        self.seal = self._seal = Seal(key)
        self._quota_bytes = quota_bytes
        self._on_note = on_note
        self._kept: Counter[str] = Counter()
        """Bytes that each owner keeps."""
        self._rows = database.rows
        self._execute = database.execute
        with database.transaction(is_lasting=True):
            self._prepare()

    def close(self) -> None:
        self.database.close()

    # Kept results

    def keep(self, handle: str, owner: str, value: bytes, sources: Sequence[str] | None) -> None:
        """Keep a value, unless it is already kept. Raises QuotaError."""
        if self._rows("SELECT 1 FROM results WHERE handle = ?", handle):
            return
        self._refuse_over_quota(owner)
        values = {"handle": handle, "owner": owner, "value": self._counted(owner, value), "kept": self.now()}
        self._insert("results", {**values, "sources": json.dumps(sources)}, "DO NOTHING")

    def kept(self, handle: str, owner: str) -> tuple[bytes, list[str] | None] | None:
        """The owner's value behind a handle, and its sources, None if those are unknown. None without such a value."""
        found = self._rows("SELECT value, sources FROM results WHERE handle = ? AND owner = ?", handle, owner)
        return (self._seal.open(found[0][0]), json.loads(found[0][1] or "null")) if found else None

    def handles(self, written: str, owner: str) -> list[str]:
        """At most two handles of an owner with this prefix: enough to see that it is ambiguous."""
        query = "SELECT handle FROM results WHERE handle BETWEEN ? AND ? AND owner = ? LIMIT 2"
        bounds = id_range("kept", written, owner)
        return [each for (each,) in self._rows(query, *bounds, owner)] if bounds else []

    def count_kept(self) -> None:
        """Count the bytes that each owner keeps: heads, journals, calls, events and answers of runs, and results."""
        of_runs = "FROM runs JOIN {} ON run = runs.id"
        counted = (
            "SELECT owner, length(head) + coalesce(length(answer), 0) AS size FROM runs",
            "SELECT owner, length(value) FROM results",
            f"SELECT owner, length(chunk) {of_runs.format('events')}",
            f"SELECT owner, length(shown) + coalesce(length(outcome), 0) {of_runs.format('calls')}",
            f"SELECT owner, coalesce(length(payload), 0) {of_runs.format('hooks')}",
        )
        all_of_them = " UNION ALL ".join(counted)
        found = self._rows(f"SELECT owner, sum(size) FROM ({all_of_them}) AS counted GROUP BY owner")
        self._kept = Counter({owner: int(size) for owner, size in found})

    def _counted(self, owner: str, content: bytes) -> bytes:
        """The content in its stored form, added to the owner's count."""
        sealed = self._seal.close(content)
        self._kept[owner] += len(sealed)
        return sealed

    def _refuse_over_quota(self, owner: str, share: float = 1.0) -> None:
        if self._kept[owner] >= self._quota_bytes * share:
            kept, most = (f"{size / 2**20:,.0f} MiB" for size in (self._kept[owner], self._quota_bytes))
            raise QuotaError(
                f"this caller keeps {kept} in the store of runs, and the limit runs.quota_mib is {most}"
            )

    # Other things that portals keep, such as logins and observed types

    def put(self, kind: str, owner: str, name: str, value: bytes) -> None:
        self._put(kind, owner, name, value, "value = excluded.value, changed = excluded.changed")

    def get(self, kind: str, owner: str, name: str) -> bytes | None:
        query = "SELECT value FROM key_values WHERE kind = ? AND owner = ? AND name = ?"
        found = self._rows(query, kind, owner, name)
        return self._seal.open(found[0][0]) if found else None

    def lock(self, kind: str, owner: str, name: str) -> None:
        """Make other transactions about this key wait until this one is committed. A missing value becomes empty."""
        self._put(kind, owner, name, b"", "changed = key_values.changed")

    def drop(self, kind: str, owner: str, name: str) -> None:
        self._execute("DELETE FROM key_values WHERE kind = ? AND owner = ? AND name = ?", (kind, owner, name))

    def _put(self, kind: str, owner: str, name: str, value: bytes, update: str) -> None:
        self._execute(
            "INSERT INTO key_values (kind, owner, name, value, changed) VALUES (?, ?, ?, ?, ?) "
            f"ON CONFLICT (kind, owner, name) DO UPDATE SET {update}",
            (kind, owner, name, self._seal.close(value), self.now()),
        )

    # The audit log. Its lines are not encrypted, because they contain no arguments and no results.

    def add_audit_lines(self, lines: Sequence[tuple[int, str]]) -> None:
        """Add lines with their numbers. Raises DatabaseError: one of the numbers is taken."""
        self.database.execute_many("INSERT INTO audit (seq, line) VALUES (?, ?)", lines)

    def audit_lines(self, after: int) -> Iterator[str]:
        """The lines of the log after the one of this number."""
        query = "SELECT seq, line FROM audit WHERE seq > ? ORDER BY seq LIMIT ?"
        while rows := self._rows(query, after, AUDIT_PAGE_LINES):
            yield from (line for _, line in rows)
            after, _ = rows[-1]

    def last_audit_line(self) -> tuple[int, str] | None:
        return next(iter(self._rows("SELECT seq, line FROM audit ORDER BY seq DESC LIMIT 1")), None)

    # Portals that share the tables

    def beat(self, url: str) -> None:
        """Renew this portal's heartbeat and the URL where others reach it. Deletes the portals that have ended."""
        self._execute(
            "INSERT INTO replicas (id, seen, url) VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE "
            "SET seen = excluded.seen, url = excluded.url "
            "WHERE replicas.seen <> excluded.seen OR replicas.url <> excluded.url",
            (self.holder, self.database.seen(), url),
        )
        for each in self.database.gone():
            self._execute("DELETE FROM replicas WHERE id = ?", (each,))
        self._execute(
            "DELETE FROM key_values WHERE kind = 'commit' AND changed < ?", (self.now() - DAY_SECONDS,)
        )

    def leave(self) -> None:
        """Remove this portal, which is ending, so that others resume its runs at once."""
        self._execute("DELETE FROM replicas WHERE id = ?", (self.holder,))

    def replica_url(self, replica: str) -> str | None:
        """The URL of a portal that is alive."""
        query = "SELECT url FROM replicas WHERE id = ? AND seen > ?"
        found = self._rows(query, replica, self.now() - LEASE_SECONDS)
        return found[0][0] if found else None

    def has_replicas(self) -> bool:
        """Whether another portal is alive, which resumes the runs of this one."""
        found = self._rows("SELECT id FROM replicas WHERE seen > ?", self.now() - LEASE_SECONDS)
        return bool({each for (each,) in found}.difference(self.database.gone(), [self.holder]))

    def has_portal(self) -> bool:
        """Whether a portal is alive that goes on with the runs of this store: this process, or another one."""
        return bool(self.holder) or self.has_replicas()

    # SQL

    def _prepare(self) -> None:
        self.database.prepare(_META)
        found = dict(self._rows("SELECT key, value FROM meta"))
        number = int(found.get("format", b"0"))
        if number > FORMAT:
            raise StoreError(
                f"the store of runs {self.database.name} is of format {number}, and this portal writes format "
                f"{FORMAT}. Use the version that wrote it, or name another one in runs.store"
            )
        if number < FORMAT and "key check" in found and not self.holder:
            raise StoreError(
                f"the store of runs {self.database.name} is of an earlier format than {FORMAT}, which this version "
                "writes. The next portal that starts converts it. Earlier versions cannot open it then"
            )
        if not number and "key check" in found:  # format 1 stored no number
            self._execute("ALTER TABLE runs ADD COLUMN holder TEXT NOT NULL DEFAULT ''")
        is_unsourced = number < 4 and "key check" in found
        if is_unsourced:
            self._execute("ALTER TABLE results ADD COLUMN sources TEXT")
        if number < FORMAT:
            self.database.prepare(_SCHEMA)
            if is_unsourced:
                self.put(*UNSOURCED, b"")
            written = {"key": "format", "value": str(FORMAT).encode()}
            self._insert("meta", written, "(key) DO UPDATE SET value = excluded.value")
        if "key check" not in found:
            self._insert("meta", {"key": "key check", "value": self._seal.close(b"")})
            return
        try:
            self._seal.open(found["key check"])
        except StoreError:
            other = "with another" if self._seal.has_key else "with a"
            how = "without" if found["key check"].startswith(b"-") else other
            raise StoreError(
                f"the store of runs {self.database.name} was written {how} runs.key, which cannot be changed later. "
                "Set it as it was, or name another store"
            ) from None

    def _insert(self, table: str, values: dict[str, Any], on_conflict: str = "") -> None:
        columns, marks = ", ".join(values), ", ".join("?" * len(values))
        clause = f" ON CONFLICT {on_conflict}" if on_conflict else ""
        self._execute(f"INSERT INTO {table} ({columns}) VALUES ({marks}){clause}", [*values.values()])

    def _value(self, query: str, *values: Any) -> Any:
        return self._rows(query, *values)[0][0]
