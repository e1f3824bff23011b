"""A record: everything that decided what a run did, and enough of what it did to know it again.

Its body are events, one after the other. What comes in (clocks, answers) decides what a run does; what goes out (calls,
output) is how a repetition is known to be one. Contents that nobody has to read again are kept as digests.
"""

import hashlib
import os
import time
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import ConfigDict, Discriminator, FailFast, Field, TypeAdapter, ValidationError

from manifests.grants import Limits
from sandbox_runtime.errors import RecordError
from sandbox_runtime.frames import TrapCause
from sandbox_runtime.result import RunError
from sandbox_runtime.timeline import SEED_BYTES

FORMAT: Final = 2
"""Another number for every change that would make readers of today misread it."""

MAX_JSON_BYTES = 128 << 20

UNRECORDED = (TrapCause.UNRECORDED_READ, TrapCause.UNRECORDED_EXCHANGE)
"""How a run is ended that repeats another, where it would learn something that is not recorded."""

_MAX_EVENTS = 1_000_000
_FIRST_MONOTONIC_MS = 1_000_000
_DIGEST_BYTES = 16
_SHOWN_CHARS = 200
_CHECKED = ConfigDict(
    extra="forbid", strict=True, hide_input_in_errors=True, ser_json_bytes="hex", val_json_bytes="hex"
)

_Hash: TypeAlias = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
_Digest: TypeAlias = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
_Moment: TypeAlias = Annotated[int, Field(ge=0, le=10**13)]
_Count: TypeAlias = Annotated[int, Field(ge=0, le=2**64 - 1)]
_Name: TypeAlias = Annotated[str, Field(max_length=1000)]
_Reads: TypeAlias = Annotated[str, Field(pattern=r"^\+?[1-9][0-9]{0,12}( \+?[1-9][0-9]{0,12})*$")]


@dataclass(frozen=True, slots=True)
class Parsed:
    """The script was parsed; `is_valid` says whether it can run."""

    __pydantic_config__ = _CHECKED
    is_valid: bool
    kind: Literal["parsed"] = field(default="parsed", kw_only=True)


@dataclass(frozen=True, slots=True)
class ClocksRead:
    """Looks at clocks, as tokens of timeline.py: how often they showed the same, and by how much they moved."""

    __pydantic_config__ = _CHECKED
    tokens: _Reads
    kind: Literal["clock"] = field(default="clock", kw_only=True)


@dataclass(frozen=True, slots=True)
class Sent:
    """What the script handed out: lines of "ID NAMESPACE.FUNCTION JSON", a call, or "ID", a cancellation."""

    __pydantic_config__ = _CHECKED
    lines: str
    kind: Literal["sent"] = field(default="sent", kw_only=True)


@dataclass(frozen=True, slots=True)
class Answered:
    """What a wait brought: a JSON array of answers, or nothing when its time was up."""

    __pydantic_config__ = _CHECKED
    text: str
    kind: Literal["answered"] = field(default="answered", kw_only=True)


@dataclass(frozen=True, slots=True)
class Printed:
    """Text that the script printed."""

    __pydantic_config__ = _CHECKED
    text: str
    kind: Literal["printed"] = field(default="printed", kw_only=True)


@dataclass(frozen=True, slots=True)
class Emitted:
    """A content block for the answer to the client."""

    __pydantic_config__ = _CHECKED
    digest: _Digest
    kind: Literal["emitted"] = field(default="emitted", kw_only=True)


@dataclass(frozen=True, slots=True)
class Resumed:
    """Here the run was taken up again: from here on its wall clock goes on from `wall_ms`."""

    __pydantic_config__ = _CHECKED
    wall_ms: _Moment
    kind: Literal["resumed"] = field(default="resumed", kw_only=True)


@dataclass(frozen=True, slots=True)
class Finished:
    """The script ended by itself; `digest` is of its value or error and its notices."""

    __pydantic_config__ = _CHECKED
    digest: _Digest
    dropped_bytes: _Count
    kind: Literal["finished"] = field(default="finished", kw_only=True)


@dataclass(frozen=True, slots=True)
class Trapped:
    """The engine ended the script."""

    __pydantic_config__ = _CHECKED
    cause: TrapCause
    dropped_bytes: _Count
    kind: Literal["trapped"] = field(default="trapped", kw_only=True)


@dataclass(frozen=True, slots=True)
class Stopped:
    """The run was ended from outside: by its time, its caller, or with its worker."""

    __pydantic_config__ = _CHECKED
    error: RunError
    dropped_bytes: _Count
    kind: Literal["stopped"] = field(default="stopped", kw_only=True)


Ending: TypeAlias = Finished | Trapped | Stopped
Event: TypeAlias = Parsed | ClocksRead | Sent | Answered | Printed | Emitted | Resumed | Ending


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

    @property
    def is_first(self) -> bool:
        """Whether the interpreter is new."""
        return self.position <= 1


@dataclass(frozen=True, slots=True)
class Record:
    """One run. `replay` runs its script again from it; `dump_record` makes it text, `parse_record` reads that.

    `settings` is what the guest was told when the script began, None if it was only parsed. A call could have
    `longest_call` bytes, which what the run was granted may make more than its limits say. `places` is what
    `where` said of limits that came up. Without an `ending` the record is the beginning of a run.

    It holds what the script was given and what its calls returned: keep it as safe as these.
    """

    __pydantic_config__ = _CHECKED
    origin: Origin
    script: Annotated[str, Field(max_length=1 << 20)] = field(repr=False)
    namespaces: Annotated[tuple[_Name, ...], FailFast()]
    limits: Limits
    longest_call: Annotated[int, Field(ge=0, le=1 << 29)]
    places: dict[_Name, _Name]
    settings: str | None = field(repr=False)
    events: Annotated[
        tuple[Annotated[Event, Discriminator("kind")], ...], FailFast(), Field(max_length=_MAX_EVENTS)
    ] = field(repr=False)
    format: Literal[2] = FORMAT

    @property
    def ending(self) -> Ending | None:
        last = self.events[-1] if self.events else None
        return last if isinstance(last, Finished | Trapped | Stopped) else None

    @property
    def body(self) -> tuple[Event, ...]:
        """The events before the ending."""
        return self.events if self.ending is None else self.events[:-1]

    def place(self, limit: str) -> str:
        """Where a limit was set, as far as it came up."""
        return self.places.get(limit, "as recorded")

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

    Raises:
        RecordError: It is no record, one of another format, or larger than 128 MiB.
    """
    if len(text) > MAX_JSON_BYTES:
        raise RecordError(f"a record of {len(text):,} bytes; at most {MAX_JSON_BYTES:,} are read")
    try:
        return _RECORD.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise RecordError(f"this is no record: {place or 'it'}: {first['msg']}") from None


def digest(content: bytes) -> str:
    """32 hexadecimal digits."""
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()


def is_from_outside(ending: Ending | None) -> bool:
    """Whether chance decided where the run ended, so that a repetition has to be ended there too."""
    return isinstance(ending, Stopped) or (isinstance(ending, Trapped) and ending.cause == TrapCause.CPU)


def shown(event: Event) -> str:
    """An event for people, for example "sent: 1 git.git_log {}"."""
    if isinstance(event, Trapped):
        return f"trapped: {event.cause.name.lower()}"
    if isinstance(event, Stopped):
        return f"stopped: {event.error.code}"
    text = " ".join(str(getattr(event, held.name)) for held in fields(event) if held.name != "kind")
    cut = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}... ({len(text):,} characters)"
    return f"{event.kind}: {cut}"
