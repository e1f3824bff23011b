"""A record: everything that decided what a run did, and enough of what it did to know it again.

Its body are events, one after the other. What comes in (clocks, answers) decides what a run does; what goes out (calls,
output) is how a repetition is known to be one. Contents that nobody has to read again are kept as digests.
"""

import hashlib
import os
import re
import time
from dataclasses import dataclass, field, replace
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import ConfigDict, FailFast, Field, TypeAdapter, ValidationError

from manifests.grants import Limits
from sandbox_runtime.errors import RecordError
from sandbox_runtime.frames import TrapCause
from sandbox_runtime.result import RunError
from sandbox_runtime.timeline import SEED_BYTES

FORMAT: Final = 3
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
_LAST_MOMENT_MS = 10**13
_Moment: TypeAlias = Annotated[int, Field(ge=0, le=_LAST_MOMENT_MS)]
_Count: TypeAlias = Annotated[int, Field(ge=0, le=2**64 - 1)]
_Name: TypeAlias = Annotated[str, Field(max_length=1000)]
_READS = re.compile(r"\+?[1-9][0-9]{0,12}( \+?[1-9][0-9]{0,12})*")


EventKind: TypeAlias = Literal[
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


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that a run learned or did. What is not said of a kind is empty.

    parsed    the script was parsed; `number` is 1 if it can run
    clock     looks at clocks; `text` is tokens of timeline.py: how often they showed the same, and how they moved
    sent      `text` is lines of "ID NAMESPACE.FUNCTION JSON", a call, or "ID", a cancellation
    answered  what a wait brought; `text` is a JSON array of answers, or empty when its time was up
    printed   `text` is what the script printed
    emitted   a content block for the client; `text` is its digest
    resumed   the run was taken up again; from here on its wall clock goes on from `number` (ms since 1970)
    finished  the script ended by itself; `text` is the digest of its value or error and its notices
    trapped   the engine ended the script; `text` names the `TrapCause`
    stopped   the run was ended from outside, with `error`: by its time, its caller, or with its worker

    Of the last three, the endings, `number` is the bytes of output that were dropped.
    """

    __pydantic_config__ = _CHECKED
    kind: EventKind
    text: str = ""
    number: _Count = 0
    error: RunError | None = None

    @property
    def is_ending(self) -> bool:
        return self.kind in ("finished", "trapped", "stopped")

    @property
    def is_from_outside(self) -> bool:
        """Whether chance decided that the run ended here, so that a repetition has to be ended here too."""
        return self.kind == "stopped" or (self.kind == "trapped" and self.text == TrapCause.CPU.name)

    def __str__(self) -> str:
        """For people, for example "sent: 1 git.git_log {}"."""
        told = (self.text, str(self.number) if self.number else "", self.error.code if self.error else "")
        text = " ".join(filter(None, told))
        cut = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}... ({len(text):,} characters)"
        return f"{self.kind}: {cut}"

    def fault(self) -> str:
        """What no run of ours would have recorded so; "" if one may have."""
        if self.kind == "clock" and not _READS.fullmatch(self.text):
            return "looks at clocks that cannot be"
        if self.kind == "resumed" and self.number > _LAST_MOMENT_MS:
            return "a moment that cannot be"
        if self.kind == "trapped" and self.text not in TrapCause.__members__:
            return "an unknown cause"
        return "no error" if self.kind == "stopped" and self.error is None else ""


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
    events: Annotated[tuple[Event, ...], FailFast(), Field(max_length=_MAX_EVENTS)] = field(repr=False)
    format: Literal[3] = FORMAT

    @property
    def ending(self) -> Event | None:
        return self.events[-1] if self.events and self.events[-1].is_ending else None

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
        record = _RECORD.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise RecordError(f"this is no record: {place or 'it'}: {first['msg']}") from None
    for index, event in enumerate(record.events):
        if fault := event.fault():
            raise RecordError(f"this is no record: events.{index}: {fault}")
    return record


def digest(content: bytes) -> str:
    """32 hexadecimal digits."""
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()
