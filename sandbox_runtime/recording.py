"""Records of runs: all inputs of a run, and enough of its outputs to verify a replay.

The body of a record is a sequence of events. Inputs (clocks, answers) determine what a run does. Outputs (calls,
printed text) verify that a replay does the same. Contents that a replay does not need are stored as digests.
"""

import hashlib
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal, Protocol, TypeAlias

from pydantic import ConfigDict, FailFast, Field

from manifests.grants import Limits
from manifests.json_value import Json
from sandbox_runtime.errors import RecordError
from sandbox_runtime.frames import END_HEADER, SEED_BYTES, TRAP_HEADER, FrameError, ToPortal, TrapCause
from sandbox_runtime.grants.files import FILE_PREFIX
from sandbox_runtime.guest_json import GuestJsonError, encode, parse
from sandbox_runtime.result import RunError
from sandbox_runtime.trace import ANSWERED, LATER, MAX_TRACE_BYTES, READS, RESUMED, tokens
from sandbox_runtime.worker_process import cpu_seconds

MAX_RECORD_BYTES = 32 << 20

_EVENT_BYTES = 100
_MAX_EVENTS = 1_000_000
_FIRST_MONOTONIC_MS = 1_000_000
_DIGEST_BYTES = 16
_SHOWN_CHARS = 200
_CHECKED = ConfigDict(
    extra="forbid", strict=True, hide_input_in_errors=True, ser_json_bytes="hex", val_json_bytes="hex"
)

_Hash: TypeAlias = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
_Moment: TypeAlias = Annotated[int, Field(ge=0, le=10**13)]
_Count: TypeAlias = Annotated[int, Field(ge=0, le=2**64 - 1)]
_Name: TypeAlias = Annotated[str, Field(max_length=1000)]


class Mask(Protocol):
    """Masks secrets in any text, and in JSON or lines that contain it, which stay JSON."""

    def __call__(self, text: str) -> str: ...

    def in_json_text(self, text: str) -> str: ...


@dataclass(frozen=True, slots=True)
class Event:
    """One input or output of a run. Fields that a kind does not mention are empty.

    parsed    the script was parsed; `number` is 1 if it can run
    clock     reads of clocks; `text` has the tokens of trace.py
    sent      `text` is lines of "ID NAMESPACE.FUNCTION JSON", a call, or "ID", a cancellation
    answered  the result of a wait; `text` is a JSON array of answers, or "" after a timeout
    printed   `text` is the printed text
    emitted   a content block for the client; `text` is its digest
    resumed   the run was resumed; from here on its wall clock continues from `number` (ms since 1970)
    finished  the script ended by itself; `text` is the digest of its value or error and its notices
    trapped   the engine ended the script; `text` names the `TrapCause`
    stopped   the run was ended from outside with `error`: by a time limit, its caller, or the loss of its worker

    For the last three, the endings, `number` is the number of dropped output bytes.
    """

    __pydantic_config__ = _CHECKED
    kind: Literal[
        "parsed",
        "clock",
        "sent",
        "answered",
        "printed",
        "emitted",
        "resumed",
        "finished",
        "trapped",
        "stopped",
    ]
    text: str = ""
    number: _Count = 0
    error: RunError | None = None

    @property
    def is_ending(self) -> bool:
        return self.kind in ("finished", "trapped", "stopped")

    def lines(self) -> Iterator[tuple[int, str]]:
        """The number and the call of each line that was sent; a cancellation has no call.

        A script can send any text: the number is 0 where no call can have it (admission.py).
        """
        for line in self.text.split("\n") if self.kind == "sent" else ():
            number, _, call = line.partition(" ")
            is_number = number.isascii() and number.isdigit() and len(number) <= 15
            yield int(number) if is_number else 0, call

    def masked(self, mask: Mask) -> "Event":
        """The event with `mask` applied to what the script sent, got or printed.

        `mask` must not change what it has masked. It sees one event at a time: a secret that is printed in two parts is
        not masked. `Repetition` continues from masked events with the same `mask`, so the resumed script gets masked
        values.
        """
        if self.kind not in ("sent", "answered", "printed"):
            return self
        text = mask(self.text) if self.kind == "printed" else mask.in_json_text(self.text)
        return self if text == self.text else replace(self, text=text)

    def __str__(self) -> str:
        """For people, for example "sent: 1 git.git_log {}"."""
        parts = (self.text, str(self.number) if self.number else "", self.error.code if self.error else "")
        text = " ".join(filter(None, parts))
        cut = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}... ({len(text):,} characters)"
        return f"{self.kind}: {cut}"


@dataclass(frozen=True, slots=True)
class Origin:
    """The initial state of a run, besides its script.

    `component` is the sha256 of the guest component, in hex. `seed` determines all random numbers, including secrets
    that the script generates. The clocks start at `wall_ms` (since 1970) and `monotonic_ms`. `position` counts the runs
    of a session from 1; it is 0 for a run outside of sessions.
    """

    __pydantic_config__ = _CHECKED
    component: _Hash
    seed: Annotated[bytes, Field(min_length=SEED_BYTES, max_length=SEED_BYTES)] = field(repr=False)
    wall_ms: _Moment
    monotonic_ms: _Moment
    position: Annotated[int, Field(ge=0, le=1_000_000)]

    @classmethod
    def now(cls, component: str, *, elapsed_ms: int = 0, position: int = 0) -> "Origin":
        """A random seed and the current time; `elapsed_ms` is the age of the session."""
        monotonic_ms = _FIRST_MONOTONIC_MS + elapsed_ms
        return cls(component, os.urandom(SEED_BYTES), time.time_ns() // 1_000_000, monotonic_ms, position)

    def at_ns(self) -> int:
        """This machine's monotonic time at the wall time `wall_ms`."""
        return time.monotonic_ns() - (time.time_ns() - self.wall_ms * 1_000_000)


@dataclass(frozen=True, slots=True)
class Record:
    """The record of one run. `replay` runs it again; one that was forged diverges, or runs without making any call.

    `settings` are the guest's settings for the script, None if it was only parsed. `longest_call` is the limit of a
    call's bytes; grants may raise it above the run's limits. Without an `ending` the run is unfinished. `format`
    increases with every incompatible change.

    A record contains the script's inputs and the results of its calls: protect it accordingly.
    """

    __pydantic_config__ = _CHECKED
    origin: Origin
    script: Annotated[str, Field(max_length=1 << 20)] = field(repr=False)
    namespaces: Annotated[tuple[_Name, ...], FailFast()]
    limits: Limits
    longest_call: Annotated[int, Field(ge=0, le=1 << 29)]
    settings: str | None = field(repr=False)
    events: Annotated[tuple[Event, ...], FailFast(), Field(max_length=_MAX_EVENTS)] = field(repr=False)
    format: Literal[4] = 4

    @property
    def ending(self) -> Event | None:
        return self.events[-1] if self.events and self.events[-1].is_ending else None

    @property
    def body(self) -> tuple[Event, ...]:
        """The events before the ending."""
        return self.events if self.ending is None else self.events[:-1]

    @property
    def calls_made(self) -> int:
        """How many calls the script made, without file operations."""
        return sum(1 for _ in self.call_ids())

    def call_ids(self) -> Iterator[int]:
        """The guest's numbers of the calls, without file operations, in the order of `seq`."""
        for event in self.events:
            yield from _calls_of(event)

    def cancelled_ids(self) -> Iterator[int]:
        """The guest's numbers of the calls that the script gave up."""
        return (number for event in self.events for number, call in event.lines() if not call)

    @property
    def file_operations(self) -> int:
        """How many operations on files the script began."""
        return sum(call.startswith(FILE_PREFIX) for event in self.events for _, call in event.lines())

    def index_of_call(self, seq: int) -> int | None:
        """The index of the event with which the script made call `seq`, counted from 1; None without such a call."""
        if seq < 1:
            return None
        for index, event in enumerate(self.events):
            seq -= sum(1 for _ in _calls_of(event))
            if seq <= 0:
                return index
        return None

    def answers(self) -> Iterator[list[Json]]:
        """The answers to calls, as the guest gets them: [ID, 1, value] or [ID, 0, code, message, hint]."""
        for event in self.events:
            if event.kind == "answered" and event.text:
                with suppress(GuestJsonError):
                    batch = parse(event.text.encode())
                    listed = batch if isinstance(batch, list) else []
                    yield from (answer for answer in listed if isinstance(answer, list) and len(answer) > 2)

    def until(self, index: int) -> "Record":
        """The record of the run before event `index`."""
        return replace(self, events=self.events[:index])

    def without_environment(self) -> "Record":
        """The record with the environment's names only, each with an empty value. Raises RecordError."""
        return self._with_environment(lambda names: dict.fromkeys(names, ""))

    def with_environment(self, values: Mapping[str, str]) -> "Record":
        """The record with the present values of the environment. Raises RecordError if its settings are not JSON.

        A name without a present value is removed. A name that the run did not have is not added.
        """
        return self._with_environment(lambda names: {name: values[name] for name in names if name in values})

    def _with_environment(self, valued: Callable[[Mapping[str, Json]], dict[str, Json]]) -> "Record":
        if self.settings is None or '"environment"' not in self.settings:
            return self
        try:
            settings = parse(self.settings.encode())
        except GuestJsonError as error:
            raise RecordError(f"the settings of the record cannot be read: {error}") from None
        names = settings.get("environment") if isinstance(settings, dict) else None
        if not (isinstance(settings, dict) and isinstance(names, dict)):
            return self
        return replace(self, settings=encode({**settings, "environment": valued(names)}).decode())


def _calls_of(event: Event) -> Iterator[int]:
    return (number for number, call in event.lines() if number and call and not call.startswith(FILE_PREFIX))


class Recording:
    """Records one run. Pass it to `Sandbox.run`; `events` grows during the run.

    An event is recorded before its consequences: before a call is made, all its causes are recorded. `MAX_RECORD_BYTES`
    (32 MiB) limits the record. A longer run continues unrecorded: `is_too_large` is true, and `record` is None.
    """

    replayed: Record | None = None
    """The record that this run replays, if any."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.is_live = True
        """Whether calls are made and answered; a replayed run takes the answers from its record instead."""
        self.worker_pid: int | None = None
        """The process id of the run's worker."""
        self.is_too_large = False
        self.bytes = 0
        """The size of the record, about."""
        self.value_bytes = 0
        """What the calls returned that were made, and not replayed: known once the script has stopped."""
        self.head: Record | None = None
        """The record without its events; None before the run was prepared. `execute` adds the settings."""
        self._answers: deque[bytes] = deque()
        self._reads: list[str] = []

    @property
    def record(self) -> Record | None:
        """The run so far; None before it was prepared, or if the record is too large."""
        if self.head is None or self.is_too_large:
            return None
        return replace(self.head, events=tuple(self.events))

    @property
    def cpu_seconds(self) -> float:
        """The CPU time of the run's worker so far; 0 where the system does not report it."""
        return cpu_seconds(self.worker_pid) or 0.0

    @property
    def has_ended(self) -> bool:
        return bool(self.events) and self.events[-1].is_ending

    def begin(self, head: Record) -> bytes:
        """Start recording; `head` has no events. Returns the replay log for the worker, b"" for a live run."""
        self.head = head
        self._clear()
        self.bytes = len(head.script)
        return b""

    def execute(self, settings: bytes) -> None:
        if self.head is not None:
            self.head = replace(self.head, settings=settings.decode())
        self._charge(len(settings))

    def answer(self, answers: bytes) -> None:
        """Record answers that were sent to the worker. The trace says when the script gets them."""
        if not self.is_too_large:
            self._answers.append(answers)

    def take(self, kind: int, payload: bytes) -> None:
        """Record a frame of the worker. Raises FrameError: an honest worker never sends it, or it diverges."""
        if kind == ToPortal.TRACE:
            if len(payload) > MAX_TRACE_BYTES:
                raise FrameError("a trace that is too long")
            for sign, number in tokens(payload):
                self._learn(sign, number)
        elif (event := _event(kind, payload)) is not None:
            self._add(event)

    def stop(self, error: RunError, dropped_bytes: int) -> tuple[RunError, int]:
        """Record that the run was ended from outside. Returns the error and the dropped bytes for the result."""
        if not self.has_ended:
            self._add(Event("stopped", number=dropped_bytes, error=error))
        return error, dropped_bytes

    def _learn(self, sign: str, number: int) -> None:
        if self.is_too_large:
            return
        if sign in (READS, LATER) and number:
            self._reads.append(f"{sign}{number}")
            self._charge(len(self._reads[-1]) + 1)
        elif sign == ANSWERED:
            self._add(Event("answered", self._answered(number)))
        elif sign == RESUMED:
            self._add(Event("resumed", number=number))
        else:
            raise FrameError("a malformed trace")

    def _answered(self, frames: int) -> str:
        """The text of the next `frames` frames of answers."""
        if not frames:
            return ""
        if frames > len(self._answers):
            raise FrameError("answers that were never sent")
        return f"[{b','.join(self._answers.popleft() for _ in range(frames)).decode()}]"

    def _add(self, event: Event) -> None:
        if self._reads:
            reads = " ".join(self._reads)
            self._reads.clear()
            self._note(Event("clock", reads))
        self._note(event)

    def _note(self, event: Event) -> None:
        if event.kind == "trapped" and event.text == TrapCause.UNRECORDED.name:
            raise FrameError("a live run reported an unrecorded event")
        self._charge(_EVENT_BYTES + len(event.text))
        if not self.is_too_large:
            self.events.append(event)

    def _charge(self, size: int) -> None:
        self.bytes += size
        if self.bytes > MAX_RECORD_BYTES and self.is_live:
            self.is_too_large = True
            self._clear()

    def _clear(self) -> None:
        self.events.clear()
        self._answers.clear()
        self._reads.clear()


def _event(kind: int, payload: bytes) -> Event | None:
    try:
        match kind:
            case ToPortal.PREPARED:
                return Event("parsed", number=int(not payload.startswith(b'{"error"')))
            case ToPortal.CALLS:
                return Event("sent", payload.decode())
            case ToPortal.OUTPUT:
                return Event("printed", payload.decode())
            case ToPortal.BLOCK:
                return Event("emitted", _digest(payload))
            case ToPortal.FINISHED if len(payload) >= END_HEADER.size:
                digest = _digest(payload[END_HEADER.size :])
                return Event("finished", digest, END_HEADER.unpack_from(payload)[1])
            case ToPortal.TRAPPED if len(payload) >= END_HEADER.size + TRAP_HEADER.size:
                cause = TrapCause(payload[END_HEADER.size])
                # When the CPU time ends is not deterministic, so `stop` records it.
                if cause != TrapCause.CPU:
                    return Event("trapped", cause.name, END_HEADER.unpack_from(payload)[1])
    except ValueError as error:  # invalid UTF-8, or an unknown cause
        raise FrameError("a malformed event") from error
    return None


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()
