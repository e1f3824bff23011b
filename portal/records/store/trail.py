"""The trail: a row for each run, also for those that no one has to resume, and the lists of runs.

Nothing depends on the trail: a row that is lost is missing in a list, and nothing else. A run with a journal is listed
from its row in `runs`; its row in the trail only adds durations, sizes and calls.
"""

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

from manifests.json_value import Json
from portal.records.store.records import ASKING, OPEN, CallKind, CallRowState, DamagedRowError, RunState
from portal.records.store.tables import DAY_SECONDS, Tables

MAX_SEARCHED: Final = 1_000
"""A search looks at so many runs, the newest ones first."""

_HALF_HOUR_SECONDS: Final = 1_800


@dataclass(frozen=True, slots=True)
class TrailRow:
    """What one segment of a run did. In the store, `ms` and bytes of all segments of the run (`id`) are added up.

    `began` is in seconds since 1970. `ms` includes `check_ms` and the wait for a sandbox process. `code` is that of
    the error. `result_bytes` are those of what its calls answered, `answer_bytes` those of the texts that
    clients got. `listed` has at most 100 calls: `[[seq, function, state, at_ms after began, ms, code], ...]`.
    """

    id: str
    owner: str
    state: RunState
    title: str
    began: float
    client: str = ""
    """The program that began it, as that names itself."""
    code: str = ""
    ms: float = 0.0
    check_ms: float = 0.0
    calls: int = 0
    failed: int = 0
    unknown: int = 0
    denied: int = 0
    result_bytes: int = 0
    answer_bytes: int = 0
    is_journaled: bool = False
    """Whether it has a row in `runs`, too."""
    listed: Sequence[Sequence[Json]] = ()


@dataclass(frozen=True, slots=True)
class HistoryRow(TrailRow):
    """A run in a list. Durations and sizes are 0 while its first segment is under way, or if `runs.trail` was off."""

    told: RunState = "ok"
    """The state for people, as in RunRow."""
    ended: float | None = None
    waiting: tuple[CallKind, ...] = ()
    """The kind of each call that it waits for."""
    waited: Mapping[int, CallKind] = field(default_factory=dict)
    """By `seq`, the kinds of those and of the calls that it did wait for: for a person, a time or an event."""


@dataclass(frozen=True, slots=True)
class Day:
    """The last 24 hours. `p50_ms` is that of the newest 1,000 runs; 0 without a run. `half_hours` has the runs of the
    last 48 half hours of the clock, oldest first, and how many of them failed.
    """

    runs: int
    failed: int
    p50_ms: float
    result_bytes: int
    answer_bytes: int
    half_hours: tuple[tuple[int, int], ...]


_FIELDS: Final = [each.name for each in fields(TrailRow)]
_GROWING: Final = ("ms", "check_ms", "result_bytes", "answer_bytes")
_REPLACED: Final = ("state", "code", "calls", "failed", "unknown", "denied", "is_journaled", "listed")
_ADD_UP: Final = "(id) DO UPDATE SET " + ", ".join(
    [f"{name} = trail.{name} + excluded.{name}" for name in _GROWING]
    + [f"{name} = excluded.{name}" for name in _REPLACED]
)
_COLUMNS: Final = (
    dict.fromkeys(_FIELDS, "trail.{0}")
    | dict.fromkeys(("id", "owner", "state", "title", "began"), "runs.{0}")
    | {"is_journaled": "CAST(1 AS BIGINT) AS {0}"}
)
# The types of both parts are the same, so that SQLite merges them by their indexes, and sorts nothing.
_HISTORY: Final = (
    f"(SELECT {', '.join(column.format(name) for name, column in _COLUMNS.items())}, wake_at, ended FROM runs "
    f"LEFT JOIN trail ON trail.id = runs.id UNION ALL SELECT {', '.join(_FIELDS)}, CAST(NULL AS DOUBLE PRECISION), "
    "CAST(began + ms / 1000 AS DOUBLE PRECISION) FROM trail WHERE is_journaled = 0) AS runs"
)
"""It has the name of the table, so that the conditions below fit both."""
_IS_OPEN: Final = f"state IN {OPEN}"
QUESTIONS: Final = f"SELECT 1 FROM calls WHERE calls.run = runs.id AND calls.kind IN {ASKING}"
IS_ASKING: Final = f"{_IS_OPEN} AND EXISTS ({QUESTIONS} AND calls.state = 'waiting')"
_FAILED: Final = "state IN ('error', 'refused', 'expired', 'stuck')"  # who cancels a run wants that
_WHICH: Final = {"open": _IS_OPEN, "person": IS_ASKING, "failed": _FAILED}


class TrailTables(Tables):
    def add_trail(self, rows: Sequence[TrailRow], read: Mapping[str, int]) -> None:
        """Add rows, and then to those with the ids of `read` the bytes of answers that clients got."""
        for row in rows:
            values = {name: getattr(row, name) for name in _FIELDS}
            values["title"] = self._seal.close(row.title.encode("utf-8", "replace"))
            values["is_journaled"] = int(row.is_journaled)
            values["listed"] = self._seal.close(json.dumps([*row.listed]).encode())
            self._insert("trail", values, _ADD_UP)
        grow = "UPDATE trail SET answer_bytes = answer_bytes + ? WHERE id = ?"
        self.database.execute_many(grow, [(size, run) for run, size in read.items()])

    def history(
        self,
        owner: str | None,
        *,
        state: str = "",
        q: str = "",
        before: tuple[float, str] | None = None,
        limit: int = 50,
    ) -> list[HistoryRow]:
        """The newest runs of one owner, or of all; `before` is `(began, id)` of the last one of the page before.

        `state` is "open", "person" (they wait for one) or "failed"; anything else stands for all. `q` is searched in
        titles and names of functions, without regard to case, and at the beginning of ids.
        """
        which, values = "(began, id) < (?, ?)", [*(before or (math.inf, ""))]
        is_of_open = state in ("open", "person")
        if owner is not None:
            # `|| ''` keeps SQLite from using the index of owners, which would read all runs that have ended.
            of_owner = "owner || ''" if is_of_open else "owner"
            which, values = f"{which} AND {of_owner} = ?", [*values, owner]
        if state in _WHICH:
            which += f" AND {_WHICH[state]}" + " AND is_journaled = 1" * is_of_open
        return self._history(which, *values, limit=limit, q=q.lower())

    def history_row(self, run: str) -> HistoryRow | None:
        """The run with this id, of any owner."""
        found = self._history("id = ?", run, limit=1) if run.isprintable() else []
        return found[0] if found else None

    def history_counts(self, owner: str | None) -> dict[str, int]:
        """How many runs `history` lists: `all`, those that are `open`, wait for a `person`, and have `failed`."""
        values = [] if owner is None else [owner]
        whose = "owner = ?" if values else "true"
        of_trail = f"trail WHERE is_journaled = 0 AND {whose}"
        # Counted by their indexes, which takes a tenth of the time that counting in _HISTORY takes.
        lists = [f"runs WHERE {whose} AND {which}" for which in ("true", *_WHICH.values())]
        counts = [
            f"(SELECT count(*) FROM {each})" for each in (*lists, of_trail, f"{of_trail} AND {_FAILED}")
        ]
        (found,) = self._rows(f"SELECT {', '.join(counts)}", *values * len(counts))
        every, is_open, person, failed, more, more_failed = found
        return {"all": every + more, "open": is_open, "person": person, "failed": failed + more_failed}

    def day(self, owner: str | None, now: float) -> Day:
        values = [now - DAY_SECONDS, *([] if owner is None else [owner])]
        since = f"FROM trail WHERE began > ? AND {'true' if owner is None else 'owner = ?'}"
        times = self._rows(f"SELECT ms {since} ORDER BY began DESC LIMIT 1000", *values)
        # Postgres rounds a cast where SQLite truncates: half a second does not matter here.
        rows = self._rows(
            f"SELECT CAST(began AS BIGINT) / {_HALF_HOUR_SECONDS}, count(*), "
            f"sum(CASE WHEN {_FAILED} THEN 1 ELSE 0 END), sum(result_bytes), sum(answer_bytes) {since} GROUP BY 1",
            *values,
        )
        halves = {int(half): (int(runs), int(failed)) for half, runs, failed, *_ in rows}
        runs, failed, results, answers = (sum(int(row[n]) for row in rows) for n in range(1, 5))
        last = int(now // _HALF_HOUR_SECONDS)
        last_halves = tuple(halves.get(half, (0, 0)) for half in range(last - 47, last + 1))
        middle = sorted(times)[len(times) // 2][0] if times else 0.0
        return Day(runs, failed, middle, results, answers, last_halves)

    def _history(self, which: str, *values: Any, limit: int, q: str = "") -> list[HistoryRow]:
        query = f"SELECT * FROM {_HISTORY} WHERE {which} ORDER BY began DESC, id DESC LIMIT ?"
        columns = [*_FIELDS, "wake_at", "ended"]
        read = self._rows(query, *values, MAX_SEARCHED if q else limit)
        raws = (dict(zip(columns, raw, strict=True)) for raw in read)
        found = [(raw, texts) for raw in raws if (texts := self._texts(raw, q)) is not None][:limit]
        ids = [raw["id"] for raw, _ in found if raw["is_journaled"]]
        asked = f"SELECT run, seq, kind, state FROM calls WHERE kind != 'call' AND run IN ({', '.join('?' * len(ids))})"
        waited = defaultdict[str, dict[int, tuple[CallKind, CallRowState]]](dict)
        for run, seq, kind, state in self._rows(f"{asked} ORDER BY run, seq", *ids) if ids else ():
            waited[run][seq] = kind, state
        rows, has_portal = [], all(raw["state"] not in OPEN for raw, _ in found) or self.has_portal()
        for raw, texts in found:
            # Of a run without a row in the trail, what only that has is not known.
            known = {name: value for name, value in raw.items() if value is not None}
            is_due = known.pop("wake_at", None) == 0 and raw["state"] == "waiting"
            told = "running" if is_due else raw["state"]
            told = "waiting" if told == "running" and not has_portal else told
            calls = waited[raw["id"]]
            waiting = (kind for kind, state in calls.values() if state == "waiting" and raw["state"] in OPEN)
            known |= {"told": told, "waiting": (*waiting,)}
            known["waited"] = {seq: kind for seq, (kind, _) in calls.items()}
            known["title"], known["listed"] = texts
            known["is_journaled"] = bool(raw["is_journaled"])
            rows.append(HistoryRow(**known))
        return rows

    def _texts(self, raw: Mapping[str, Any], q: str) -> tuple[str, list[Json]] | None:
        """The title and the calls of a row; None if `q` is not found there."""
        is_found, listed = raw["id"].startswith(q), list[Json]()
        try:
            title = self._seal.open(raw["title"]).decode()
            calls = self._seal.open(raw["listed"]) if raw["listed"] else b"[]"
            is_found = is_found or q in title.lower()
            # To parse the calls of all runs would take four times as long.
            if is_found or json.dumps(q)[1:-1].encode() in calls.lower():
                listed = json.loads(calls)
        except (DamagedRowError, ValueError):  # it must not hide the others
            title = "(damaged)"
        return (title, listed) if is_found or any(q in str(call[1]).lower() for call in listed) else None
