"""Records of runs: everything that decided what a run did, and enough of what it did to know it again.

The body of a record are events, one after the other. What comes in (clocks, answers) decides what a run does; what goes
out (calls, output) is how a repetition is known to be one. Contents that nobody has to read again are kept as digests.
"""

import hashlib
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal, TypeAlias

from pydantic import ConfigDict, FailFast, Field, TypeAdapter, ValidationError

from manifests.grants import Limits
from manifests.json_value import Json
from sandbox_runtime.errors import RecordError
from sandbox_runtime.frames import END_HEADER, SEED_BYTES, TRAP_HEADER, FrameError, ToPortal, TrapCause
from sandbox_runtime.grants.files import FILE_PREFIX
from sandbox_runtime.guest_json import GuestJsonError, parse
from sandbox_runtime.result import RunError
from sandbox_runtime.worker.run_host import ANSWERED, LATER, MAX_TRACE_BYTES, READS, RESUMED, tokens

MAX_JSON_BYTES = 128 << 20
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


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that a run learned or did. What is not said of a kind is empty.

    parsed    the script was parsed; `number` is 1 if it can run
    clock     looks at clocks; `text` is tokens of run_host.py: how often they showed the same, and how they moved
    sent      `text` is lines of "ID NAMESPACE.FUNCTION JSON", a call, or "ID", a cancellation
    answered  what a wait brought; `text` is a JSON array of answers, or empty when its time was up
    printed   `text` is what the script printed
    emitted   a content block for the client; `text` is its digest
    resumed   the run was taken up again; from here on its wall clock goes on from `number` (ms since 1970)
    finished  the script ended by itself; `text` is the digest of its value or error and its notices
    trapped   the engine ended the script; `text` names the `TrapCause`
    stopped   the run was ended from outside, with `error`: by a limit on its time, its caller, or with its worker

    Of the last three, the endings, `number` is the bytes of output that were dropped.
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

    def __str__(self) -> str:
        """For people, for example "sent: 1 git.git_log {}"."""
        parts = (self.text, str(self.number) if self.number else "", self.error.code if self.error else "")
        text = " ".join(filter(None, parts))
        cut = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}... ({len(text):,} characters)"
        return f"{self.kind}: {cut}"


@dataclass(frozen=True, slots=True)
class Origin:
    """What a run begins with besides its script.

    `component` is the sha256 of the guest component, in hex. `seed` decides every random number: who knows it knows
    also the secrets that the script drew. The clocks begin at `wall_ms` (since 1970) and `monotonic_ms`. `position`
    counts the runs of a session from 1; it is 0 where the run has an interpreter of its own.
    """

    __pydantic_config__ = _CHECKED
    component: _Hash
    seed: Annotated[bytes, Field(min_length=SEED_BYTES, max_length=SEED_BYTES)] = field(repr=False)
    wall_ms: _Moment
    monotonic_ms: _Moment
    position: Annotated[int, Field(ge=0, le=1_000_000)]

    @classmethod
    def now(cls, component: str, *, elapsed_ms: int = 0, position: int = 0) -> "Origin":
        """Chance and the present time; `elapsed_ms` is the age of the session."""
        monotonic_ms = _FIRST_MONOTONIC_MS + elapsed_ms
        return cls(component, os.urandom(SEED_BYTES), time.time_ns() // 1_000_000, monotonic_ms, position)

    def at_ns(self) -> int:
        """What this machine's monotonic clock showed when its wall clock showed `wall_ms`."""
        return time.monotonic_ns() - (time.time_ns() - self.wall_ms * 1_000_000)


@dataclass(frozen=True, slots=True)
class Record:
    """One run. `replay` runs its script again from it; `dump_record` makes it text, `parse_record` reads that.

    `settings` is what the guest was told when the script began, None if it was only parsed. A call could have
    `longest_call` bytes, which what the run was granted may make more than its limits say. Without an `ending` the
    record is the beginning of a run. `format` is another number after every change that readers would misread.

    It holds what the script was given and what its calls returned: keep it as safe as these.
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
        """How many calls the script made, those of file operations not counted."""
        lines = (line for event in self.events if event.kind == "sent" for line in event.text.split("\n"))
        return sum(" " in line and not line.partition(" ")[2].startswith(FILE_PREFIX) for line in lines)

    def answers(self) -> Iterator[list[Json]]:
        """The answers to calls, each as the guest gets it: [ID, 1, value] or [ID, 0, code, message, hint]."""
        for event in self.events:
            if event.kind == "answered" and event.text:
                with suppress(GuestJsonError):
                    batch = parse(event.text.encode())
                    listed = batch if isinstance(batch, list) else []
                    yield from (answer for answer in listed if isinstance(answer, list) and len(answer) > 2)

    def until(self, index: int) -> "Record":
        """The record of the same run as it was before event `index`."""
        return replace(self, events=self.events[:index])


_RECORD = TypeAdapter(Record)


def dump_record(record: Record) -> bytes:
    """The record as JSON, on one line."""
    return _RECORD.dump_json(record)


def parse_record(text: str | bytes) -> Record:
    """Read a record that was kept.

    It may have been written by anybody: what comes back is of the right types and sizes, and no more than that is
    known. A replay of a forged one diverges, or does what the script in it does without any call going out.
    Raises RecordError: it is no record, one of another format, or larger than 128 MiB.
    """
    if len(text) > MAX_JSON_BYTES:
        raise RecordError(f"a record of {len(text):,} bytes; at most {MAX_JSON_BYTES:,} are read")
    try:
        return _RECORD.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise RecordError(f"this is no record: {place or 'it'}: {first['msg']}") from None


class Recording:
    """Takes one run down. Given to `Sandbox.run`; `events` grows while the run goes on.

    An event is there before anything that follows from it happens: before a call is made, all that led the script
    to it is recorded. `max_bytes` (32 MiB) bounds what is kept; a run that needs more goes on, its result has a notice,
    and `record` is None.
    """

    replayed: Record | None = None
    """What the run repeats, if it does."""

    def __init__(self, max_bytes: int = MAX_RECORD_BYTES) -> None:
        self.events: list[Event] = []
        self.is_live = True
        """Whether calls are made, and answers given."""
        self.on_live: Callable[[], None] = lambda: None
        self.is_too_large = False
        self._max_bytes = max_bytes
        self._bytes = 0
        self._head: Record | None = None
        self._answers: deque[bytes] = deque()
        self._reads: list[str] = []

    @property
    def record(self) -> Record | None:
        """The run as far as it went; None before it was prepared, and when its record would be too large."""
        if self._head is None or self.is_too_large:
            return None
        return replace(self._head, events=tuple(self.events))

    @property
    def notices(self) -> tuple[str, ...]:
        """What the result of the run says about its recording."""
        if not self.is_too_large:
            return ()
        return (f"this run was not recorded: its record would have more than {self._max_bytes:,} bytes",)

    @property
    def has_ended(self) -> bool:
        return bool(self.events) and self.events[-1].is_ending

    def begin(self, head: Record) -> bytes:
        """A worker is about to get the run; `head` has no events. Returns what that worker is told of its past."""
        self._head = head
        self._clear()
        self._bytes = len(head.script)
        return b""

    def execute(self, settings: bytes) -> None:
        """The script is about to run."""
        if self._head is not None:
            self._head = replace(self._head, settings=settings.decode())
        self._charge(len(settings))

    def answer(self, answers: bytes) -> None:
        """Answers were sent to the worker; when the script gets them, the trace will tell."""
        if not self.is_too_large:
            self._answers.append(answers)

    def take(self, kind: int, payload: bytes) -> None:
        """A frame of the worker.

        Raises FrameError: it is none that an honest worker would send, or none of this run.
        """
        if kind == ToPortal.TRACE:
            if len(payload) > MAX_TRACE_BYTES:
                raise FrameError("a trace that is longer than a worker of ours would write")
            for sign, number in tokens(payload):
                self._learn(sign, number)
        elif (event := _event(kind, payload)) is not None:
            self._add(event)

    def stop(self, error: RunError, dropped_bytes: int) -> tuple[RunError, int]:
        """The run was ended from outside. Returns what its result says of that."""
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
            raise FrameError("a trace that no worker of ours would write")

    def _answered(self, frames: int) -> str:
        """The text that so many of the frames sent last came to."""
        if not frames:
            return ""
        if frames > len(self._answers):
            raise FrameError("answers that nobody gave")
        return f"[{b','.join(self._answers.popleft() for _ in range(frames)).decode()}]"

    def _add(self, event: Event) -> None:
        if self._reads:
            reads = " ".join(self._reads)
            self._reads.clear()
            self._note(Event("clock", reads))
        self._note(event)

    def _note(self, event: Event) -> None:
        if event.kind == "trapped" and event.text == TrapCause.UNRECORDED.name:
            raise FrameError("a run that is no repetition has done something unrecorded")
        self._charge(_EVENT_BYTES + len(event.text))
        if not self.is_too_large:
            self.events.append(event)

    def _charge(self, size: int) -> None:
        self._bytes += size
        if self._bytes > self._max_bytes and self.is_live:
            self.is_too_large = True
            self._clear()

    def _clear(self) -> None:
        self.events.clear()
        self._answers.clear()
        self._reads.clear()


def _event(kind: int, payload: bytes) -> Event | None:
    """What a frame of the worker tells, if it is an event."""
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
                # The moment at which CPU time is used up is chance: `stop` takes that down.
                if cause != TrapCause.CPU:
                    return Event("trapped", cause.name, END_HEADER.unpack_from(payload)[1])
    except ValueError as error:  # text that is no UTF-8, or a cause that does not exist
        raise FrameError("an event that no worker of ours would send") from error
    return None


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()
