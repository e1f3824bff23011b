"""Everything that a page shows of one run: what its journal says, or, without one, its row in the trail.

Times are in seconds since 1970. Texts are as stored: masked, but not escaped.
"""

import ast
import json
import warnings
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from typing import Final, Literal, NamedTuple, TypeAlias

from manifests.json_value import Json
from manifests.kernels import PYTHON, KernelName
from portal.records.ledger import CallState
from portal.records.store.records import ASKING, OPEN, CallKind, CallRow, LogRow
from portal.records.store.run_tables import RunTables
from portal.records.store.trail import HistoryRow
from portal.runs.decisions import answer_of, unknown_run
from portal.runs.past import EntryRow, Past
from sandbox_runtime.guest_json import GuestJsonError, parse
from sandbox_runtime.recording import Record

Interval: TypeAlias = tuple[float, float]
Tone: TypeAlias = Literal[CallState, "running", "person", "time"]
"""What a call did for a while. running: it is under way; person, time: it waited for a person, or for anything else."""

MAX_LOG_ROWS: Final = 20_000

MAX_NAMING_CHARACTERS: Final = 20_000
"""Of a longer script no line is said to name a call: a page shows its beginning only."""


class Stretch(NamedTuple):
    """A part of a call's time."""

    tone: Tone
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class CallView:
    """One call of a run, from `began` to `ended`; one that is not over ends now, or with its run."""

    seq: int
    function: str
    state: CallState | Literal["running"]
    began: float
    ended: float
    code: str = ""
    """That of its error; "" without one."""
    message: str = ""
    kind: CallKind = "call"
    wait: Interval | None = None
    """When it waited for a person, a time or an event."""
    is_open: bool = False
    """Whether it still waits."""
    decided_by: str = ""
    decision: Mapping[str, Json] = field(default_factory=dict)
    line: int = 0
    """The only line of the script that names its function; 0 without one. Another line can have made the call."""

    @property
    def asks(self) -> bool:
        """Whether it waits for a person."""
        return self.is_open and self.kind in ASKING

    @property
    def waited(self) -> float:
        """In seconds."""
        return self.wait[1] - self.wait[0] if self.wait else 0.0

    @property
    def took(self) -> float:
        """In seconds, without the wait for a person."""
        return self.ended - self.began - (self.waited if self.kind in ASKING else 0.0)

    @property
    def stretches(self) -> list[Stretch]:
        if self.wait is None:
            return [Stretch(self.state, self.began, self.ended)]
        goes_on = self.wait[1]
        waits = Stretch("person" if self.kind in ASKING else "time", self.began, goes_on)
        did_more = self.kind in ("call", "ask") and self.state not in ("refused", "not_started")
        return [waits, Stretch(self.state, goes_on, self.ended)] if did_more and not self.is_open else [waits]


@dataclass(frozen=True, slots=True)
class Exchange:
    """What a call was sent and what it answered; None if that is not kept, or there is none yet."""

    arguments: Json = None
    value: Json = None
    shown: Mapping[str, Json] = field(default_factory=dict)
    """What the person who decides is shown."""


@dataclass(frozen=True, slots=True)
class RunPage:
    """One run. `ended` is now while it is open. Of a run without a journal only the first three are known."""

    row: HistoryRow
    ended: float
    calls: Sequence[CallView]
    selected: CallView | None = None
    exchange: Exchange = Exchange()
    """That of the selected call."""
    script: str = ""
    parent: str = ""
    pauses: Sequence[Interval] = ()
    """When it only waited, or no portal ran it."""
    outages: Sequence[Interval] = ()
    """When no portal ran it, because its portal had ended: until another one took it up."""
    log: Sequence[LogRow] = ()
    answer: Mapping[str, Json] = field(default_factory=dict)
    """As in `Answer.structured`."""
    kernel: KernelName = PYTHON


def run_page(tables: RunTables, run: str, seq: int | None = None) -> RunPage:
    """The run with this id. Call `seq` is selected; without one, the first that asks a person, or else is bad.

    Raises RunsError: there is no such run. Reads its whole journal, so it is no work for the event loop.
    """
    row, stored = tables.history_row(run), tables.load(run)
    if row is None:
        raise unknown_run(run)
    if stored is None:
        ended = row.began + row.ms / 1000
        calls = calls_in_list(row, ended)
        return RunPage(row, ended, calls, _selected(calls, seq))
    head, past = Past.of(stored)
    log = tables.log_after(0, run, MAX_LOG_ROWS)
    times = _Times.of(log, max(row.began, tables.now() if row.ended is None else row.ended))
    if row.state == "running" and row.told == "waiting" and log:  # no portal runs it now
        times = times._replace(outages=[*times.outages, (log[-1].at, times.ended)])
    calls = _calls(row, only_lines(head.request.code, head.kernel), past, times)
    # A call that runs beside one that waits is work, so that time is no pause.
    busy = [each[1:] for call in calls for each in call.stretches if each.tone in ("done", "failed")]
    waits = [*(call.wait for call in calls if call.wait), *times.parked]
    selected = _selected(calls, seq)
    return RunPage(
        row,
        times.ended,
        calls,
        selected,
        _exchange(selected.seq, past) if selected else Exchange(),
        head.request.code,
        stored.row.parent or "",
        sorted([*without(waits, [*busy, *times.outages]), *times.outages]),
        times.outages,
        log,
        answer_of(stored).structured(),
        head.kernel,
    )


def calls_in_list(row: HistoryRow, ended: float) -> list[CallView]:
    """The calls of a run as lists have them: those that waited did so for all of their time. `ended` is now while the
    run is open.
    """
    calls = []
    for seq, function, state, at_ms, ms, code in row.listed:
        began, over = row.began + at_ms / 1000, row.began + (at_ms + ms) / 1000
        kind, wait = row.waited.get(seq, "call"), None
        if kind != "call":  # its time has not its wait in it, which lasts until the script goes on
            later = (row.began + call[3] / 1000 for call in row.listed if call[3] > at_ms + ms)
            wait = began, (over := min(later, default=ended))
        calls.append(CallView(seq, function, state, began, over, code, kind=kind, wait=wait))
    return calls


def title_of(written: str) -> str:
    """The first line of a script for people: without the mark of a comment."""
    return written.lstrip("#/ ") or "(no script)"


def state_words(state: str, waits_for: Collection[str]) -> tuple[str, str]:
    """The class of a run's state, which decides how it looks, and its words. `waits_for` has kinds of calls."""
    if state != "waiting":
        return state, {"ok": "done", "error": "failed"}.get(state, state)
    if not {*ASKING}.isdisjoint(waits_for):
        return "person", "waits for a person"
    named = [word for kind, word in (("event", "an event"), ("sleep", "a time")) if kind in waits_for]
    return state, f"waits for {named[0]}" if named else "waits for a portal"


def without(spans: Iterable[Interval], others: Iterable[Interval]) -> list[Interval]:
    """The times, in order, that some of `spans` cover and none of `others` does."""
    edges = [(at, step, 0) for span in spans for at, step in zip(span, (1, -1), strict=True)]
    edges += [(at, 0, step) for span in others for at, step in zip(span, (1, -1), strict=True)]
    found, covering, hiding = list[Interval](), 0, 0
    for (at, more, other), (until, *_) in pairwise(sorted(edges)):
        covering, hiding = covering + more, hiding + other
        if covering and not hiding and at < until:
            began = found.pop()[0] if found and found[-1][1] == at else at
            found.append((began, until))
    return found


class _Times(NamedTuple):
    """What the log of a run tells of its times. The first three are by the `seq` of a call."""

    asked: Mapping[int, float]
    decided: Mapping[int, float]
    done: Mapping[int, float]
    """When its outcome was written."""
    parked: Sequence[Interval]
    outages: Sequence[Interval]
    ended: float
    """Now while the run is open."""

    @classmethod
    def of(cls, log: Sequence[LogRow], ended: float) -> "_Times":
        asked = {row.seq: row.at for row in log if row.seq and row.kind == "waiting"}
        # The first entry about a call after the question: backwards, since the last one counts.
        decided = {row.seq: row.at for row in log[::-1] if row.seq in asked and row.kind != "waiting"}
        done = {row.seq: row.at for row in log if row.kind == "done"}
        phases = [
            (row.at, row.kind) for row in log if not row.seq and row.kind not in ("taken_up", "delivered")
        ]
        after = pairwise([*phases, (ended, "")])
        parked = [(began, until) for (began, kind), (until, _) in after if kind == "waiting"]
        outages = [(before.at, row.at) for before, row in pairwise(log) if row.kind == "taken_up"]
        return cls(asked, decided, done, parked, outages, ended)

    def wait(self, seq: int) -> Interval | None:
        """When a call waited: also, after the decision, for a portal that goes on with the run."""
        if (asked := self.asked.get(seq)) is None:
            return None
        decided = self.decided.get(seq, self.ended)
        n = bisect_right(self.parked, (decided, self.ended))
        return asked, max([decided, *(ended for _, ended in self.parked[max(n - 1, 0) : n])])


def _calls(row: HistoryRow, lines: Mapping[str, int], past: Past, times: _Times) -> list[CallView]:
    entries = sorted(past.entries.items())
    found = ((entry, past.calls.get(seq), lines.get(entry.function, 0)) for seq, entry in entries)
    return [_call(row, entry, known, times, line) for entry, known, line in found]


def _call(row: HistoryRow, entry: EntryRow, known: CallRow | None, times: _Times, line: int) -> CallView:
    wait, error = times.wait(entry.seq), entry.error
    state: CallState | Literal["running"] = entry.state
    began = min(entry.at, wait[0]) if wait else entry.at
    ended = times.done.get(entry.seq, began) if wait else began + entry.ms / 1000
    if error is None and state in ("unknown", "not_started"):
        if row.told == "running":
            state, ended = "running", times.ended
        elif row.state == "running":  # its portal ended, perhaps after it had sent the call
            state = "unknown"
    if state == "unknown":  # its portal ended meanwhile, and no one saw when
        ended = next((until for _, until in times.outages if until > began), times.ended)
    return CallView(
        entry.seq,
        entry.function,
        state,
        began,
        max(began, ended, wait[1] if wait else began),
        error.code if error else "",
        error.message if error else "",
        known.kind if known else "call",
        wait,
        is_open=known is not None and known.state == "waiting" and row.state in OPEN,
        decided_by=known.decided_by if known else "",
        decision=json.loads(known.decision) if known and known.decision else {},
        line=line,
    )


def _selected(calls: Sequence[CallView], seq: int | None) -> CallView | None:
    named, asking = [call for call in calls if call.seq == seq], [call for call in calls if call.asks]
    bad = [call for call in calls if call.state in ("failed", "refused", "unknown")]
    return next(iter([*named, *asking, *bad]), None)


def _exchange(seq: int, past: Past) -> Exchange:
    row = past.calls.get(seq)
    shown = json.loads(row.shown) if row and row.shown else {}
    arguments, value = _recorded(past.record, seq) if past.record else (None, None)
    return Exchange(shown.get("arguments") if arguments is None else arguments, value, shown)


def _recorded(record: Record, seq: int) -> tuple[Json, Json]:
    """The arguments of a call and the value of its answer, as the record has them."""
    try:
        number = next(islice(record.call_ids(), seq - 1, None))
    except StopIteration:  # the script did not say that it made the call
        return None, None
    arguments: Json = None
    for event in record.events:
        for line in event.text.split("\n") if event.kind == "sent" else ():
            if line.startswith(f"{number} "):
                with suppress(ValueError, IndexError, GuestJsonError):
                    arguments = parse(line.split(" ", 2)[2].encode())
    # Others are not parsed: there may be megabytes of them.
    answered = [each for each in record.events if each.kind == "answered" and f"[{number}," in each.text]
    answers = replace(record, events=tuple(answered)).answers()
    return arguments, next((answer[2] for answer in answers if answer[:2] == [number, 1]), None)


def only_lines(script: str, kernel: KernelName) -> dict[str, int]:
    """By function: the only line that names it, comments and texts aside; 0 if several do. Only of Python is it known.

    It need not be the line that calls it: a script can also reach a function without its name.
    """
    lines = dict[str, int]()
    # Python begins a line after \r, too; those who count lines here do not.
    if kernel != PYTHON or len(script) > MAX_NAMING_CHARACTERS or "\r" in script.replace("\r\n", "\n"):
        return lines
    # SystemError: see `parsed_text`.
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError, SystemError):
        with warnings.catch_warnings(action="ignore"):  # such as for "\d"
            tree = ast.parse(script)
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                # `time` may stand for the upstream `time_`, as in `sandbox_runtime/guest/analysis/names.py`.
                for name in (f"{node.value.id}.{node.attr}", f"{node.value.id}_.{node.attr}"):
                    lines[name] = node.lineno if lines.get(name, node.lineno) == node.lineno else 0
    return lines
