"""The tables of runs, in SQLite or in Postgres.

Rule 1: each write of a portal about a run carries the epoch under which it holds the run. Taking the run over, or
ending it, increments the epoch, so the former holder's writes change nothing (`FencedError`).
Rule 2: the first decision about a call wins.
"""

import hashlib
import math
import secrets
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from operator import attrgetter
from typing import Any, Final

from portal.records.store.records import (
    MAX_OPEN_RUNS,
    CallRow,
    CallRowState,
    FencedError,
    LogRow,
    RunRow,
    RunState,
    StoredRun,
    TooManyRunsError,
    still_waits,
)
from portal.records.store.tables import DAY_SECONDS, LEASE_SECONDS, id_range
from portal.records.store.trail import IS_ASKING, QUESTIONS, TrailRow, TrailTables

MAX_TRAIL: Final = 100_000
"""A sweep deletes the oldest rows of the trail beyond these."""

_RUN_FIELDS: Final = [field.name for field in fields(RunRow)]
_CALL_FIELDS: Final = [field.name for field in fields(CallRow)]
_OF_CALL: Final = attrgetter(*_CALL_FIELDS)
_RUN_COLUMNS: Final = ", ".join(_RUN_FIELDS)
_CALL_COLUMNS: Final = ", ".join(_CALL_FIELDS)
_LEFT: Final = "NOT EXISTS (SELECT 1 FROM replicas WHERE replicas.id = runs.holder AND seen > ?)"
_ADD_CALL: Final = (
    f"INSERT INTO calls ({_CALL_COLUMNS}) VALUES ({', '.join('?' * len(_CALL_FIELDS))}) "
    # The row exists if a person approved the call, which is now about to be sent.
    "ON CONFLICT (run, seq) DO UPDATE SET state = excluded.state"
)
_SUSPEND: Final = "UPDATE runs SET state = 'waiting', wake_at = ?, updated = ? WHERE id = ?"
_TOUCH: Final = "UPDATE runs SET updated = ? WHERE id = ?"
"""A task that asks a person has another status, so the time of its status changes, too."""

_OPEN: Final = "state IN ('running', 'waiting')"
_DELIVERED: Final = still_waits("delivered")
_DUE: Final = still_waits("due")
_OPEN_RUN: Final = f"runs.{_OPEN}"
"""_OPEN, where another table has a `state` too. Use it for one run: `run IN (SELECT ...)` would read all open ones."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A webhook message to be sent. `hook` is a number for its URL; `attempt` counts from 0. Ids sort by time."""

    id: str
    run: str
    hook: int
    body: bytes
    attempt: int
    next_at: float


class RunTables(TrailTables):
    # Runs

    def create(self, row: RunRow, head: bytes, caller: str = "") -> None:
        """Add a run of the caller with this name. Raises OwnLimitError."""
        self._refuse_over_quota(row.owner)
        if self._value(f"SELECT count(*) FROM runs WHERE owner = ? AND {_OPEN}", row.owner) >= MAX_OPEN_RUNS:
            raise TooManyRunsError(f"this caller has {MAX_OPEN_RUNS:,} open runs, which is the limit")
        values = {
            **{name: getattr(row, name) for name in _RUN_FIELDS},
            "title": self._seal.close(row.title.encode("utf-8", "replace")),
            "head": self._counted(row.owner, head),
        }
        # The row exists if an earlier commit succeeded but its acknowledgement was lost.
        self._insert("runs", {**values, "holder": self.holder}, "DO NOTHING")
        self.note_caller(row.owner, caller)
        self.note(row.id, "began")

    def note_caller(self, owner: str, caller: str) -> None:
        """Keep the name of an owner of runs."""
        if "/" in owner and self.caller(owner) != caller:
            self.put("caller", owner, "", caller.encode("utf-8", "replace"))

    def caller(self, owner: str) -> str:
        """The latest name of an owner of runs; "" if it is unknown."""
        return (self.get("caller", owner, "") or b"").decode() if "/" in owner else owner

    def advance(
        self,
        run: str,
        epoch: int,
        *,
        chunk: bytes = b"",
        n: int = 1,
        head: bytes | None = None,
        component: str = "",
        calls: Sequence[CallRow] = (),
        outcomes: Sequence[tuple[int, bytes]] = (),
    ) -> None:
        """Append to the journal of a run. `calls` are new ones; `outcomes` are those of calls, as JSON by `seq`.

        `n` is the number of the chunk, from 1. It exists if an earlier commit succeeded but its acknowledgement was
        lost. The new chunk then contains everything of the old one, so it replaces it.

        Raises FencedError: the caller no longer holds the run.
        """
        owner = self._hold(run, epoch)
        if head is not None:
            self._execute(
                "UPDATE runs SET head = ?, component = ? WHERE id = ?",
                (self._seal.close(head), component, run),
            )
        if chunk:
            self._execute(
                "INSERT INTO events (run, n, chunk) VALUES (?, ?, ?) "
                "ON CONFLICT (run, n) DO UPDATE SET chunk = excluded.chunk",
                (run, n, self._counted(owner, chunk)),
            )
        self.database.execute_many(_ADD_CALL, [*map(self._call_values, calls)])
        if any(call.asks for call in calls):
            self._execute(_TOUCH, (self.now(), run))
        for call in calls:
            if call.name:
                self._execute(
                    f"UPDATE calls SET state = 'delivered' WHERE run = ? AND seq = ? AND {_DELIVERED} AND EXISTS "
                    "(SELECT 1 FROM hooks WHERE run = ? AND name = ? AND payload IS NOT NULL)",
                    (run, call.seq, run, call.name),
                )
        self.database.execute_many(
            "UPDATE calls SET outcome = ?, state = 'done' WHERE run = ? AND seq = ?",
            [(self._counted(owner, outcome), run, seq) for seq, outcome in outcomes],
        )
        begun = [(call.state, call.seq, call.function) for call in calls]
        self._log(run, [*begun, *(("done", seq, "") for seq, _ in outcomes)])

    def park(self, run: str, epoch: int, waiting: Collection[int]) -> None:
        """Suspend the run until the first of its `waiting` calls is decided or due. If one is, it is due at once.

        The script gave up all other calls that still wait. Raises FencedError: the caller no longer holds the run.
        """
        self._hold(run, epoch)
        marks = ", ".join(map(str, waiting))
        self._execute(
            f"UPDATE calls SET state = 'done' WHERE run = ? AND {still_waits('done')} AND seq NOT IN ({marks})",
            (run,),
        )
        of_these = f"FROM calls WHERE run = ? AND seq IN ({marks}) AND state"
        decided = self._value(f"SELECT count(*) {of_these} != 'waiting'", run)
        due = self._value(f"SELECT min(due_at) {of_these} = 'waiting'", run)
        self._execute(_SUSPEND, (0.0 if decided else due, self.now(), run))
        self.note(run, "waiting")

    def lock_run(self, run: str) -> None:
        """Make other transactions about this run wait until this one is committed."""
        self._execute("UPDATE runs SET epoch = epoch WHERE id = ?", (run,))

    def postpone_run(self, run: str, epoch: int, wake_at: float) -> None:
        """Let a run that could not be resumed wait until a time. Raises FencedError."""
        self._hold(run, epoch)
        self._execute(_SUSPEND, (wake_at, self.now(), run))

    def claim(self, run: str) -> StoredRun:
        """Take over a run that is due, or whose holder is gone, in order to resume it. Increments its epoch.

        Raises FencedError: it has ended, is not due, or another portal was faster.
        """
        now = self.now()
        self.lock_run(run)
        before = self.row(run)
        changed = self._execute(
            "UPDATE runs SET epoch = epoch + 1, state = 'running', wake_at = NULL, updated = ?, holder = ? "
            f"WHERE id = ? AND (state = 'waiting' AND wake_at <= ? OR state = 'running' AND (holder = ? OR {_LEFT}))",
            (now, self.holder, run, now, self.holder, now - LEASE_SECONDS),
        )
        if not changed or before is None:
            raise FencedError(run)
        self._execute(f"UPDATE calls SET state = 'due' WHERE run = ? AND {_DUE} AND due_at <= ?", (run, now))
        found = self.load(run)
        assert found is not None
        if before.holder != self.holder and before.state == "running":
            self.note(run, "taken_up")
        self.note(run, "resumed")
        return found

    def finish(self, run: str, state: RunState, answer: bytes | None, epoch: int | None = None) -> bool:
        """End a run. Returns whether it was open. Without an epoch, the caller need not hold it: the holder is fenced.

        Raises FencedError: with an epoch, if the caller no longer holds the run.
        """
        if epoch is not None:
            self._hold(run, epoch)
        now, sealed = self.now(), answer and self._seal.close(answer)
        changed = self._rows(
            "UPDATE runs SET state = ?, answer = coalesce(?, answer), ended = ?, updated = ?, wake_at = NULL, "
            f"epoch = epoch + 1 WHERE id = ? AND {_OPEN} RETURNING owner",
            *(state, sealed, now, now, run),
        )
        if changed:
            if epoch is None:  # no segment ends with it, so the trail would not know
                self._execute("UPDATE trail SET state = ? WHERE id = ?", (state, run))
            self._kept[changed[0][0]] += len(sealed or b"")
            self.note(run, state)
        return bool(changed)

    def row(self, run: str) -> RunRow | None:
        # Postgres rejects NUL, and UTF-8 cannot encode lone surrogates.
        found = run.isprintable() and self._rows(f"SELECT {_RUN_COLUMNS} FROM runs WHERE id = ?", run)
        return self._run(found[0]) if found else None

    def head(self, run: str) -> bytes:
        """What a run was started with, as it was written. There has to be such a run."""
        return self._seal.open(self._value("SELECT head FROM runs WHERE id = ?", run))

    def load(self, run: str) -> StoredRun | None:
        row = self.row(run)
        if row is None:
            return None
        chunks = self._rows("SELECT chunk FROM events WHERE run = ? ORDER BY n", run)
        head, answer = self._rows("SELECT head, answer FROM runs WHERE id = ?", run)[0]
        opened = tuple(self._seal.open(chunk) for (chunk,) in chunks)
        answer = None if answer is None else self._seal.open(answer)
        return StoredRun(row, self._seal.open(head), opened, self.calls(run), answer)

    def listed(
        self,
        owner: str | None = None,
        limit: int = 100,
        *,
        tenant: str | None = None,
        is_open: bool = False,
        is_asking: bool = False,
        written: str | None = None,
    ) -> list[RunRow]:
        """The newest runs of one owner, or of all. `is_open` selects open runs, `is_asking` those that wait for a
        person, `written` those whose ids begin with it. A `tenant`, which may be "", adds the open runs of all its
        owners that have asked a person.
        """
        # `|| ''` keeps SQLite from using the index of owners, which would read all runs of one owner.
        whose = "owner" if written is None else "owner || ''"
        where = ["true" if owner is None else f"{whose} = ?"]
        values: list[Any] = [] if owner is None else [owner]
        if tenant is not None:
            of_tenant = "substr(owner, 1, ?) = ?" + ("" if tenant else f" OR {whose} = 'local'")
            where = [f"({where[0]} OR ({of_tenant}) AND {_OPEN} AND EXISTS ({QUESTIONS}))"]
            values += [len(tenant) + 1, f"{tenant}/"]
        if written is not None:
            if (bounds := id_range("run", written, owner)) is None:
                return []
            where, values = [*where, "id BETWEEN ? AND ?"], [*values, *bounds]
        where += [_OPEN] if is_open else []
        where += [IS_ASKING] if is_asking else []
        listed = f"FROM runs WHERE {' AND '.join(where)} ORDER BY began DESC, id LIMIT ?"
        return [self._run(each) for each in self._rows(f"SELECT {_RUN_COLUMNS} {listed}", *values, limit)]

    def epochs(self, runs: Sequence[str]) -> dict[str, int]:
        """The epochs of the open ones among these runs."""
        marks = ", ".join("?" * len(runs))
        return dict(self._rows(f"SELECT id, epoch FROM runs WHERE id IN ({marks}) AND {_OPEN}", *runs))

    def due(
        self, now: float, profiles: Sequence[str | None], limit: int, *, only_own: bool = False
    ) -> dict[str, str]:
        """The due runs of these profiles, with their owners, in rounds: first the longest due run of each owner, then
        the second of each, and so on. With `only_own`, only those that this portal held last.
        """
        whose, values = "true", list[Any]()
        if only_own:
            whose, values = "holder = ?", [self.holder]
        elif self.database.keeps_runs:
            whose, values = f"(holder = ? OR {_LEFT})", [self.holder, self.now() - LEASE_SECONDS]
        due = (
            "SELECT id, owner, wake_at, row_number() OVER (PARTITION BY owner ORDER BY wake_at) AS place "
            f"FROM runs WHERE state = 'waiting' AND wake_at <= ? AND {whose} AND {_of(profiles)}"
        )
        query = f"SELECT id, owner FROM ({due}) AS due ORDER BY place, wake_at LIMIT ?"
        return dict(self._rows(query, now, *values, *(each or "" for each in profiles), limit))

    def next_due(self, now: float) -> float:
        """The time at which the next run becomes due after `now`, or an open run expires."""
        query = "SELECT min(wake_at) FROM runs WHERE state = 'waiting' AND wake_at > ?"
        expires = self._value(f"SELECT min(expires) FROM runs WHERE {_OPEN}")
        return min(self._value(query, now) or math.inf, expires or math.inf)

    def open_counts(self) -> dict[str, int]:
        return dict(self._rows(f"SELECT state, count(*) FROM runs WHERE {_OPEN} GROUP BY state"))

    def components(self) -> set[str]:
        """The guest components that open runs began in."""
        return {
            component for (component,) in self._rows(f"SELECT DISTINCT component FROM runs WHERE {_OPEN}")
        }

    def left(self, profiles: Sequence[str | None]) -> dict[str, str]:
        """The runs of these profiles, with their owners, that were running in a portal which is gone."""
        # `+ 0` keeps SQLite from using the index of all runs by time, which has those that ended, too.
        query = f"WHERE state = 'running' AND holder != ? AND {_LEFT} AND {_of(profiles)} ORDER BY began + 0"
        values = self.holder, self.now() - LEASE_SECONDS, *(each or "" for each in profiles)
        return dict(self._rows(f"SELECT id, owner FROM runs {query}", *values))

    def sweep(self, now: float, keep_seconds: float) -> list[str]:
        """End the runs that are too old, and delete what has expired. Returns the runs that were ended."""
        expired = [run for (run,) in self._rows(f"SELECT id FROM runs WHERE {_OPEN} AND expires <= ?", now)]
        for run in expired:
            self.finish(run, "expired", None)
        old = [run for (run,) in self._rows("SELECT id FROM runs WHERE ended <= ?", now - keep_seconds)]
        for run in old:
            for table in ("events", "calls", "hooks", "log", "deliveries"):
                self._execute(f"DELETE FROM {table} WHERE run = ?", (run,))
            self._execute("DELETE FROM runs WHERE id = ?", (run,))
            self._execute("DELETE FROM key_values WHERE kind = 'stands' AND owner = ?", (run,))
        newest = f"SELECT began FROM trail ORDER BY began DESC LIMIT 1 OFFSET {MAX_TRAIL - 1}"
        is_old = "began < ? AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.id = trail.id)"
        self._execute(f"DELETE FROM trail WHERE {is_old} OR began < ({newest})", (now - keep_seconds,))
        self._execute("DELETE FROM results WHERE kept <= ?", (now - keep_seconds,))
        self.count_kept()
        return expired

    # Calls, decisions and events

    def calls(self, run: str, which: str = "true") -> tuple[CallRow, ...]:
        """The calls of a run, or those that match `which`, a condition in SQL."""
        found = self._rows(f"SELECT {_CALL_COLUMNS} FROM calls WHERE run = ? AND {which} ORDER BY seq", run)
        return tuple(map(self._call, found))

    def call(self, run: str, seq: int) -> CallRow | None:
        found = self._rows(f"SELECT {_CALL_COLUMNS} FROM calls WHERE run = ? AND seq = ?", run, seq)
        return self._call(found[0]) if found else None

    def decide(self, run: str, seq: int, state: CallRowState, decision: bytes, by: str) -> bool:
        """Decide about a call that waits for a person. Returns whether this was the first decision.

        The run has to be open; otherwise nothing changes.
        """
        self.lock_run(run)
        changed = self._execute(
            "UPDATE calls SET state = ?, decision = ?, decided_by = ? WHERE run = ? AND seq = ? "
            f"AND {still_waits(state)} AND EXISTS (SELECT 1 FROM runs WHERE id = calls.run AND {_OPEN_RUN})",
            (state, self._seal.close(decision), by, run, seq),
        )
        if changed:
            self._execute(_TOUCH, (self.now(), run))
            self._wake(run)
            self.note(run, state, seq)
        return bool(changed)

    def hook(self, run: str, name: str) -> str:
        """The token of the URL that delivers an event to a run. It is unguessable, and created once."""
        known = self._rows("SELECT token FROM hooks WHERE run = ? AND name = ?", run, name)
        if known:
            return self._seal.open(known[0][0]).decode()
        token = secrets.token_urlsafe(24)
        sealed = self._seal.close(token.encode())
        self._insert("hooks", {"token_sha256": _sha256(token), "run": run, "name": name, "token": sealed})
        return token

    def has_hook(self, run: str, name: str) -> bool:
        return bool(self._rows("SELECT 1 FROM hooks WHERE run = ? AND name = ?", run, name))

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
        self.lock_run(run)
        changed = self._execute(
            "UPDATE hooks SET payload = ? WHERE run = ? AND name = ? AND payload IS NULL",
            (self._seal.close(payload), run, name),
        )
        if changed:
            self._execute(
                f"UPDATE calls SET state = 'delivered' WHERE run = ? AND name = ? AND {_DELIVERED}",
                (run, name),
            )
            self._wake(run)
            self.note(run, "delivered")
        return run, bool(changed)

    def payload(self, run: str, name: str) -> bytes | None:
        """The payload of an event, if it was delivered."""
        found = self._rows("SELECT payload FROM hooks WHERE run = ? AND name = ?", run, name)
        return self._seal.open(found[0][0]) if found and found[0][0] is not None else None

    # The log of what happened, and webhooks

    def note(self, run: str, kind: str, seq: int = 0) -> None:
        self._log(run, [(kind, seq, "")])
        if not seq and self._on_note is not None:
            self._on_note(self, run, kind)

    @contextmanager
    def afterwards(self, row: TrailRow) -> Iterator[None]:
        """Write the journal of a run that has ended, and has a row in the trail. No webhook is told.

        Raises QuotaError: half of its owner's quota is used. The rest is for runs that need a journal.
        """
        self._refuse_over_quota(row.owner, share=0.5)
        on_note, self._on_note = self._on_note, None
        try:
            yield
        finally:
            self._on_note = on_note
        ended = row.began + row.ms / 1000
        self._execute("UPDATE runs SET ended = ? WHERE id = ?", (ended, row.id))
        times = "at = CASE kind WHEN 'began' THEN ? ELSE ? END"
        self._execute(f"UPDATE log SET {times} WHERE run = ?", (row.began, ended, row.id))
        self._execute("UPDATE trail SET is_journaled = 1 WHERE id = ?", (row.id,))

    def log_after(
        self, n: int, run: str | None = None, limit: int = 500, kind: str | None = None
    ) -> list[LogRow]:
        """The log entries after `n`, of one run or of all, and of one kind or of all, oldest first."""
        given = {name: value for name, value in (("run", run), ("kind", kind)) if value is not None}
        clause, values = "".join(f" AND {name} = ?" for name in given), given.values()
        query = f"SELECT n, run, at, kind, data FROM log WHERE n > ? {clause} ORDER BY n LIMIT ?"
        rows = []
        for number, of, at, kind, data in self._rows(query, n, *values, limit):
            seq, _, function = self._seal.open(data).decode().partition(" ") if data else ("0", "", "")
            rows.append(LogRow(number, of, at, kind, int(seq), function))
        return rows

    def last_log(self) -> int:
        return int(self._value("SELECT coalesce(max(n), 0) FROM log"))

    def add_delivery(self, delivery: Delivery) -> None:
        self._insert("deliveries", {**asdict(delivery), "body": self._seal.close(delivery.body)})

    def deliveries(self, hook: int, limit: int) -> list[Delivery]:
        """The messages to send to a URL, by `next_at`; only the oldest of each run, so that they arrive in order."""
        query = (
            "SELECT id, run, hook, body, attempt, next_at FROM deliveries AS d WHERE hook = ? AND NOT EXISTS "
            "(SELECT 1 FROM deliveries WHERE run = d.run AND hook = d.hook AND id < d.id) ORDER BY next_at LIMIT ?"
        )
        found = [Delivery(*each) for each in self._rows(query, hook, limit)]
        return [replace(each, body=self._seal.open(each.body)) for each in found]

    def take_delivery(self, delivery: Delivery, until: float) -> bool:
        """Keep other portals from sending a message until a time. Returns whether none of them was faster."""
        taken = "UPDATE deliveries SET next_at = ? WHERE id = ? AND next_at = ?"
        return self._execute(taken, (until, delivery.id, delivery.next_at)) > 0

    def postpone(self, delivery: str, attempt: int, next_at: float) -> None:
        self._execute(
            "UPDATE deliveries SET attempt = ?, next_at = ? WHERE id = ?", (attempt, next_at, delivery)
        )

    def end_delivery(self, delivery: str) -> None:
        self._execute("DELETE FROM deliveries WHERE id = ?", (delivery,))

    # Portals that share the tables

    def renew(self, run: str, epoch: int, url: str) -> None:
        """Renew this portal's heartbeat and its lease on a run. Raises FencedError: another portal took the run."""
        self._hold(run, epoch)
        self.beat(url)

    def put_component(self, sha256: str, content: bytes) -> None:
        """Keep a guest component for other portals, unless it is already there."""
        if not self.use_component(sha256):
            self.put("component", "", sha256, content)

    def use_component(self, sha256: str) -> bool:
        """Record that a component is in use. Deletes those that were unused for a day. Returns whether it is there."""
        now, needed = self.now(), {*self.components(), sha256}
        query = "SELECT name FROM key_values WHERE kind = 'component' AND changed < ?"
        for (name,) in self._rows(query, now - DAY_SECONDS):
            if name not in needed:
                self.drop("component", "", name)
        touch = "UPDATE key_values SET changed = ? WHERE kind = 'component' AND name = ?"
        return self._execute(touch, (now, sha256)) > 0

    # SQL

    def _log(self, run: str, noted: Sequence[tuple[str, int, str]]) -> None:
        """Log what happened: the kind of each event, with the number and function of its call."""
        now = self.now()
        self.database.execute_many(
            "INSERT INTO log (run, at, kind, data) VALUES (?, ?, ?, ?)",
            [
                (run, now, kind, self._seal.close(f"{seq} {function}".encode()) if seq else b"")
                for kind, seq, function in noted
            ],
        )

    def _hold(self, run: str, epoch: int) -> str:
        """Check that the run is held under this epoch, until the commit. Returns its owner. Raises FencedError."""
        held = f"SELECT owner FROM runs WHERE id = ? AND epoch = ? AND {_OPEN}{self.database.for_update}"
        found = self._rows(held, run, epoch)
        if not found:
            raise FencedError(run)
        return str(found[0][0])

    def _wake(self, run: str) -> None:
        self._execute("UPDATE runs SET wake_at = 0 WHERE id = ? AND state = 'waiting'", (run,))

    def _run(self, values: tuple[Any, ...]) -> RunRow:
        row = RunRow(*values)
        return replace(row, title=self._seal.open(values[_RUN_FIELDS.index("title")]).decode())

    def _call_values(self, call: CallRow) -> list[Any]:
        *plain, shown, decision, outcome = _OF_CALL(call)
        decision = decision and self._seal.close(decision)
        return [*plain, self._seal.close(shown), decision, outcome and self._seal.close(outcome)]

    def _call(self, values: tuple[Any, ...]) -> CallRow:
        *plain, shown, decision, outcome = values
        opened = (sealed and self._seal.open(sealed) for sealed in (shown, decision, outcome))
        return CallRow(*plain, *opened)


def _of(profiles: Sequence[str | None]) -> str:
    return f"coalesce(profile, '') IN ({', '.join('?' * len(profiles))})"


def _sha256(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
