"""The history of a run's earlier segments, read from its journal: its head, events, ledger and calls."""

import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from pydantic import TypeAdapter

from manifests.errors import KeyPath
from manifests.grants import FETCH
from manifests.json_value import Json
from manifests.kernels import PYTHON, KernelName
from portal.base.caller import Caller
from portal.base.errors import RunsError
from portal.base.requests import ExecuteCode
from portal.records.ledger import CallState, Entry
from portal.records.store.records import CallRow, RunRow, StoredRun
from portal.records.store.tables import DAY_SECONDS
from sandbox_runtime.call_port import CallError, Outcome
from sandbox_runtime.guest_json import encode
from sandbox_runtime.recording import Event, Record
from sandbox_runtime.run import MAX_SCRIPT_BYTES, too_long
from upstreams.redaction import Redaction

MAX_TITLE: Final = 200


@dataclass(frozen=True)
class RunHead:
    """What a run was started with. `record` is without events, and None until the script is parsed."""

    request: ExecuteCode
    caller: Caller
    profile: str | None
    record: Record | None = None
    notices: tuple[str, ...] = ()
    call_notices: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """`CallNotices` until it was parked last."""
    is_background: bool = False
    trace: str = ""
    """The `traceparent` of the request that started it; "" without telemetry."""
    sources: tuple[str, ...] = ()
    """The sources of the data that it read from shared files."""
    began: float = 0.0
    """In seconds since 1970."""

    @property
    def kernel(self) -> KernelName:
        return self.request.kernel or PYTHON

    @property
    def kernel_told(self) -> dict[str, KernelName]:
        """The kernel for logs and views, which do not tell the default."""
        return {} if self.kernel == PYTHON else {"kernel": self.kernel}

    def title(self, mask: Redaction | None = None) -> str:
        """The first line of its script, at most 200 characters. Masked before it is cut: half a secret is one, too."""
        line = next(iter(self.request.code.lstrip().partition("\n")[0].splitlines()), "").rstrip()
        shown = mask.start(line, MAX_TITLE) if mask else line[:MAX_TITLE]
        return shown if self.kernel == PYTHON else f"{self.kernel}: {shown}"


@dataclass(frozen=True, slots=True)
class EntryRow:
    """A ledger entry in the journal, with what it counted. `at` is its first time since 1970, `source` has lines."""

    seq: int
    function: str
    state: CallState
    request: str
    ms: float
    at: float
    error: CallError | None
    budgets: tuple[KeyPath, ...]
    source: str
    answered_by: str = ""
    arguments: str = ""

    @classmethod
    def of(cls, entry: Entry, budgets: tuple[KeyPath, ...], state: CallState | None = None) -> "EntryRow":
        """The row of an entry, in another `state` if that is given, and of the budgets that its call spent."""
        source = "\n".join(sorted(entry.sources))
        ms = ((entry.ended or time.monotonic()) - entry.began) * 1000
        made = entry.function, state or entry.state, entry.request, round(ms, 1), entry.at, entry.error
        return cls(entry.seq, *made, budgets, source, entry.answered_by, entry.arguments)

    def restore(self, entry: Entry) -> None:
        """Restore a ledger entry in this process from the journal."""
        entry.ended = time.monotonic()
        entry.began, entry.at = entry.ended - self.ms / 1000, self.at
        entry.state, entry.error, entry.request = self.state, self.error, self.request
        entry.sources, entry.answered_by = {*filter(None, self.source.split("\n"))}, self.answered_by
        entry.arguments = self.arguments


@dataclass(frozen=True)
class Chunk:
    """The part of the journal that one transaction appends."""

    events: tuple[Event, ...]
    entries: tuple[EntryRow, ...]


HEAD: Final = TypeAdapter(RunHead)
_CHUNK: Final = TypeAdapter(Chunk)


@dataclass(frozen=True)
class Past:
    """The history of a run's earlier segments."""

    record: Record | None = None
    entries: Mapping[int, EntryRow] = field(default_factory=dict)
    calls: Mapping[int, CallRow] = field(default_factory=dict)
    chunks: int = 0

    @cached_property
    def settled(self) -> frozenset[int]:
        """The calls that will not be made again: they have an answer or an outcome, it is unknown, or the script gave
        them up.
        """
        over: set[int] = set()
        if self.record is not None:
            seqs = {identity: seq for seq, identity in enumerate(self.record.call_ids(), 1)}
            ids = {*(answer[0] for answer in self.record.answers()), *self.record.cancelled_ids()}
            over = {seqs[each] for each in ids if each in seqs}
        known = {n for n, call in self.calls.items() if call.state == "intended" or call.outcome is not None}
        return frozenset(over | known)

    @property
    def fetches(self) -> int:
        """How many requests `portal.fetch` made, without redirects."""
        fetched = (entry for entry in self.entries.values() if entry.function == FETCH)
        return sum(entry.state not in ("not_started", "refused") for entry in fetched)

    @property
    def file_operations(self) -> int:
        return 0 if self.record is None else self.record.file_operations

    @classmethod
    def of(cls, stored: StoredRun) -> "tuple[RunHead, Past]":
        """Parse the journal; returns the run's head, too. Raises ValueError: the journal is damaged."""
        head = HEAD.validate_json(stored.head)
        chunks = [_CHUNK.validate_json(chunk) for chunk in stored.chunks]
        events = tuple(event for chunk in chunks for event in chunk.events)
        record = None if head.record is None else replace(head.record, events=events)
        entries = {entry.seq: entry for chunk in chunks for entry in chunk.entries}
        calls = {call.seq: call for call in stored.calls}
        return head, cls(record, entries, calls, len(chunks))


def new_run_id() -> str:
    """An id that cannot be guessed."""
    return f"run_{secrets.token_hex(16)}"


def new_row(run: str, owner: str, head: RunHead, parent: str | None, max_age_days: float) -> RunRow:
    """The row of a run, which may have begun before it is journaled. Raises RunsError: its script is too long."""
    if (size := len(head.request.code.encode("utf-8", "surrogatepass"))) > MAX_SCRIPT_BYTES:
        error = too_long(size)
        raise RunsError(error.code, error.message, error.hint)
    now = time.time()
    return RunRow(
        id=run,
        owner=owner,
        state="running",
        epoch=1,
        began=head.began if head.began and parent is None else now,  # a fork has the head of another run
        updated=now,
        expires=now + max_age_days * DAY_SECONDS,
        parent=parent,
        title=head.title(),
        component=head.record.origin.component if head.record else "",
        profile=head.profile,
    )


def dump_chunk(events: tuple[Event, ...], entries: tuple[EntryRow, ...]) -> bytes:
    """One chunk of a journal as JSON."""
    return _CHUNK.dump_json(Chunk(events, entries))


def dump_outcome(state: CallState, outcome: Outcome) -> bytes:
    """The outcome of a call as JSON: `{state, value}` or `{state, error, data?}`, and `content` if there is any."""
    error, fields = outcome.error, dict[str, Json](state=state)
    if outcome.content is not None:
        fields |= {"content": outcome.content, "beside": outcome.beside}
    if error is not None:
        shown = {"code": error.code, "message": error.message, "hint": error.hint}
        return encode({**fields, "error": shown, "data": outcome.data})
    value = encode(outcome.value) if outcome.text is None else outcome.text
    return encode(fields)[:-1] + b',"value":%b}' % value


def load_outcome(text: bytes) -> tuple[CallState, Outcome]:
    """The outcome that `dump_outcome` wrote, and its state."""
    data = json.loads(text)
    told = {name: data[name] for name in ("value", "content", "beside", "data") if name in data}
    error = data.get("error")
    return data["state"], Outcome(error=None if error is None else CallError(**error), **told)


@dataclass(frozen=True)
class Piece:
    """A segment of a run: from start or resume until it ends or is suspended.

    `epoch` is 0 if a client waits for the run; otherwise the portal itself started or resumed it.
    """

    run_id: str
    head: RunHead
    past: Past = field(default_factory=Past)
    epoch: int = 0
    began: float = 0.0
    """When the run began, in seconds since 1970, if that is not in its head: a fork has the head of another run."""
