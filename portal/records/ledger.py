"""The ledger of one run: the state of each call of its script, however the run ended."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final, Literal, TypeAlias, get_args

from manifests.json_value import Json
from portal.base.plain_text import one_line
from sandbox_runtime.call_port import CallError
from sandbox_runtime.grants.files import FileService, FileTally

CallState: TypeAlias = Literal["not_started", "done", "failed", "refused", "unknown"]
"""not_started: never sent; done: answered with a value; failed: answered with an error; refused: the portal did not
send it; unknown: sent, and no answer was read, so it may have acted."""

SLOW_MS = 1_000
"""A call that takes longer is reported even if it succeeded."""

MAX_NAMED = 5
"""Equal calls that are listed by number."""

READING: Final = "portal.files.read"
"""Stands for all that a run read of granted files."""

MAX_ROWS = 100
"""A longer ledger is summarised: rows that are not `done` come first, the others are counted by function and state."""


@dataclass(slots=True)
class Entry:
    """One call. Without `end()` after `sent()` its state is `unknown`."""

    seq: int
    function: str
    began: float
    at: float = 0.0
    """When the script first made it, in seconds since 1970: a resumed run makes its calls again."""
    state: CallState = "not_started"
    ended: float | None = None
    error: CallError | None = None
    request: str = ""
    """The request to the upstream, if that is not the function: `files.resources/read`, or a fallback."""
    answered_by: str = ""
    """The fallback that answered, or "middleware" if nothing was sent; "" if the function itself did."""
    arguments: str = ""
    """The masked, shortened arguments of a call that may have changed something and is not done."""
    sources: set[str] = field(default_factory=set)
    """The sources of its data, in the names of the flow rules: everything that an attempt was sent to or failed at."""

    def restart(self, request: str) -> None:
        """Begin an attempt with another request."""
        self.state, self.error, self.ended, self.request = "not_started", None, None, request

    def sent(self, *sources: str) -> None:
        self.state = "unknown"
        self.sources.update(sources)

    def end(self, state: CallState, error: CallError | None = None) -> None:
        self.state, self.error, self.ended = state, error, time.monotonic()


@dataclass(slots=True)
class Ledger:
    """Entries by `seq`, which counts the calls of one run from 1 in the script's order.

    There are at most `limits.tool_calls` entries, plus `MAX_REFUSED` refused ones.
    """

    entries: dict[int, Entry] = field(default_factory=dict)
    files: FileService | None = None
    """The file service of the run, which counts file operations; None without granted files."""
    run_id: str = ""
    """The id of the run; "" before it begins."""
    stdout: str = ""
    """The output of a cancelled run; otherwise the answer has it."""

    @property
    def calls(self) -> int:
        return len(self.entries)

    def open(self, seq: int, function: str) -> None:
        self.entries[seq] = Entry(seq, function[:200], time.monotonic(), time.time())

    def __getitem__(self, seq: int) -> Entry:
        return self.entries[seq]

    def count(self, state: CallState) -> int:
        calls = sum(entry.state == state for entry in self.entries.values())
        return calls + sum(each.count for each in self._tallies() if each.is_writing and each.state == state)

    def rows(self) -> list[dict[str, Json]]:
        """`[{seq, function, state, ms, answered_by?, arguments?, error?}]`, `summarised` beyond MAX_ROWS.

        The last rows are for files, with the total `ms`: one for all reads, and one per state for changes.
        """
        return [*self._call_rows(), *self._file_rows()]

    def _file_rows(self) -> Iterator[dict[str, Json]]:
        tallies = [tally for tally in self._tallies() if tally.is_writing]
        reading = [tally for tally in self._tallies() if not tally.is_writing]
        if reading:
            count, ms = sum(tally.count for tally in reading), sum(tally.ms for tally in reading)
            tallies.insert(0, FileTally(False, "done", count, ms))
        for seq, tally in enumerate(tallies, self.calls + 1):
            function = "portal.files.write" if tally.is_writing else READING
            row = {"function": function, "state": tally.state, "ms": round(tally.ms, 1), "count": tally.count}
            yield {"seq": seq, **row}

    def _tallies(self) -> Sequence[FileTally]:
        return () if self.files is None else self.files.tallies()

    def _call_rows(self) -> list[dict[str, Json]]:
        now = time.monotonic()
        rows: list[dict[str, Json]] = []
        for entry in self.entries.values():
            ms = round(((entry.ended or now) - entry.began) * 1000, 1)
            row = {"seq": entry.seq, "function": entry.function, "state": entry.state, "ms": ms}
            if entry.answered_by:
                row["answered_by"] = entry.answered_by
            if entry.arguments and entry.state != "done":
                row["arguments"] = entry.arguments
            if entry.error is not None:
                row["error"] = {"code": entry.error.code, "message": entry.error.message[:300]}
            rows.append(row)
        return summarised(rows, MAX_ROWS)


def summarised(rows: list[dict[str, Json]], most: int) -> list[dict[str, Json]]:
    """At most `most` rows: some of calls without an answer, and `{seq, function, state, ms, answered_by?, count}` for
    groups of the others, with the first `seq` and the largest `ms`. The rarest functions form one group, `…`.
    """
    if len(rows) <= most:
        return rows
    kept = [row for row in rows if row["state"] != "done" and ("error" in row or "answered_by" not in row)]
    kept = kept[: most * 3 // 4]
    kept_rows = {id(row) for row in kept}
    groups: dict[tuple[str, str, str], dict[str, Json]] = {}
    for row in rows:
        if id(row) in kept_rows:
            continue
        key = row["function"], row["state"], row.get("answered_by", "")
        if key not in groups and len(kept) + len(groups) + 2 * len(get_args(CallState)) > most:
            key = "…", row["state"], key[2] and "…"
        answered = {"answered_by": key[2]} if key[2] else {}
        group = groups.setdefault(
            key,
            {"seq": row.get("seq"), "function": key[0], "state": key[1], "ms": 0.0, **answered, "count": 0},
        )
        group["count"] += row.get("count", 1)
        # Calls may be concurrent, so a sum could exceed the duration of the script.
        group["ms"] = max(group["ms"], row.get("ms", 0.0))
    return [*kept, *groups.values()]


def counted(rows: Sequence[dict[str, Json]]) -> str:
    """The calls by function, each namespace once: `git.git_log, sqlite.list_tables, .read_query 2`."""
    counts: Counter[str] = Counter()
    for row in rows:
        counts[plain_name(row["function"])] += row.get("count", 1)
    shown, last = [], ""
    for function, count in sorted(counts.items()):
        namespace, _, name = function.rpartition(".")
        short = f".{name}" if namespace and namespace == last else function
        shown.append(f"{short} {count}" if count > 1 else short)
        last = namespace
    return ", ".join(shown)


def not_done(rows: Sequence[dict[str, Json]], is_said: Callable[[str], bool]) -> list[str]:
    """The calls that did not succeed: `git.git_log failed #4, #6: no such file`.

    Equal ones share a line, with the numbers of the first few. An error that `is_said` already is left out. No text of
    an error or of arguments can look like another call.
    """
    told: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        message = row.get("error", {}).get("message", "")
        function = plain_name(row["function"])
        what = f"{function} {row['state']}"
        if _succeeded(row):
            continue
        message = "" if is_said(message) else one_line(message, 300)
        more = f" and {row['count'] - 1} more" if row.get("count", 1) > 1 else ""
        number = f" #{row['seq']}{more}" if len(rows) > 1 or more else ""
        arguments = f" ({row['arguments']})" if "arguments" in row else ""
        told.setdefault((what, message), []).append(number + arguments)
    return [
        what + ",".join(calls[:MAX_NAMED]) + "…" * (len(calls) > MAX_NAMED) + f": {message}" * bool(message)
        for (what, message), calls in told.items()
    ]


def slow(rows: Sequence[dict[str, Json]]) -> list[str]:
    """The functions whose calls succeeded, the slowest after more than a second: `git.git_log took 2 s`."""
    told = [row for row in rows if _succeeded(row) and row["ms"] > SLOW_MS]
    slowest = {plain_name(row["function"]): row["ms"] for row in sorted(told, key=itemgetter("ms"))}
    return [
        f"{name} took {ms / 1000:.0f} s" for name, ms in slowest.items() if not name.startswith("portal.")
    ]


def _succeeded(row: dict[str, Json]) -> bool:
    return not row.get("error", {}).get("message") and (row["state"] == "done" or "answered_by" in row)


def plain_name(name: str) -> str:
    """The name of a function or an argument; `?` if a script passed something that is not a name."""
    return name[:200] if name == "…" or all(map(str.isidentifier, name.split("."))) else "?"
