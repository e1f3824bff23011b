"""Records as JSON text, to be kept, and read again as if a stranger had written them."""

import json
from dataclasses import fields
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Discriminator, FailFast, Field, Tag, ValidationError

from manifests.grants import Limits
from manifests.json_value import Json
from sandbox_runtime.errors import RecordError
from sandbox_runtime.events import (
    Answered,
    ClocksRead,
    Emitted,
    Event,
    Finished,
    Parsed,
    Printed,
    Resumed,
    Sent,
    Stopped,
    Trapped,
)
from sandbox_runtime.frames import TrapCause
from sandbox_runtime.record import Origin, Record
from sandbox_runtime.result import RunError

FORMAT = 1
"""Another number for every change that would make readers of today misread it."""
MAX_JSON_BYTES = 128 << 20
_MAX_EVENTS = 1_000_000

_Hash: TypeAlias = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
_Digest: TypeAlias = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
_Moment: TypeAlias = Annotated[int, Field(ge=0, le=10**13)]
_Count: TypeAlias = Annotated[int, Field(ge=0, le=2**64 - 1)]
_Name: TypeAlias = Annotated[str, Field(max_length=1000)]
_Reads: TypeAlias = Annotated[str, Field(pattern=r"^\+?[1-9][0-9]{0,12}( \+?[1-9][0-9]{0,12})*$")]
_Cause: TypeAlias = Literal[
    "GUEST", "CPU", "MEMORY", "STACK", "EXIT", "CLEAN_EXIT", "RESULT", "OUTBOX", "WAIT"
]
_Error: TypeAlias = tuple[str, str, Annotated[int, Field(ge=1, le=1 << 21)] | None, str, str]

_Event: TypeAlias = Annotated[
    Annotated[tuple[Literal["parsed"], bool], Tag("parsed")]
    | Annotated[tuple[Literal["clock"], _Reads], Tag("clock")]
    | Annotated[tuple[Literal["sent"], str], Tag("sent")]
    | Annotated[tuple[Literal["answered"], str], Tag("answered")]
    | Annotated[tuple[Literal["printed"], str], Tag("printed")]
    | Annotated[tuple[Literal["emitted"], _Digest], Tag("emitted")]
    | Annotated[tuple[Literal["resumed"], _Moment], Tag("resumed")]
    | Annotated[tuple[Literal["finished"], _Digest, _Count], Tag("finished")]
    | Annotated[tuple[Literal["trapped"], _Cause, _Count], Tag("trapped")]
    | Annotated[tuple[Literal["stopped"], _Error, _Count], Tag("stopped")],
    Discriminator(lambda event: event[0] if isinstance(event, list | tuple) and event else None),
]

_PLAIN: dict[str, Any] = {
    "parsed": Parsed,
    "clock": ClocksRead,
    "sent": Sent,
    "answered": Answered,
    "printed": Printed,
    "emitted": Emitted,
    "resumed": Resumed,
    "finished": Finished,
}
_KINDS = {plain: kind for kind, plain in _PLAIN.items()}


class _Stored(BaseModel):
    """The form on disk. An event is an array: its kind, then what the class of that kind holds."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    format: Literal[1]
    component: _Hash
    seed: _Hash
    wall_ms: _Moment
    monotonic_ms: _Moment
    position: Annotated[int, Field(ge=0, le=1_000_000)]
    script: Annotated[str, Field(max_length=1 << 20)]
    namespaces: Annotated[tuple[_Name, ...], FailFast()]
    limits: Limits
    longest_call: Annotated[int, Field(ge=0, le=1 << 29)]
    places: dict[_Name, _Name]
    settings: str | None
    events: Annotated[tuple[_Event, ...], FailFast(), Field(max_length=_MAX_EVENTS)]


def dump_record(record: Record) -> str:
    """The record as JSON, on one line."""
    origin = record.origin
    stored = {
        "format": FORMAT,
        "component": origin.component,
        "seed": origin.seed.hex(),
        "wall_ms": origin.wall_ms,
        "monotonic_ms": origin.monotonic_ms,
        "position": origin.position,
        "script": record.script,
        "namespaces": record.namespaces,
        "limits": record.limits.model_dump(mode="json"),
        "longest_call": record.longest_call,
        "places": dict(record.places),
        "settings": record.settings,
        "events": [dump_event(event) for event in record.events],
    }
    return json.dumps(stored, ensure_ascii=False, separators=(",", ":"))


def dump_event(event: Event) -> list[Json]:
    """One event as it stands in a record's JSON; whoever keeps a journal can append them one by one."""
    if isinstance(event, Trapped):
        return ["trapped", event.cause.name, event.dropped_bytes]
    if isinstance(event, Stopped):
        error = event.error
        told = [error.code, error.message, error.line, error.hint, error.traceback]
        return ["stopped", told, event.dropped_bytes]
    return [_KINDS[type(event)], *(getattr(event, field.name) for field in fields(event))]


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
        stored = _Stored.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise RecordError(f"this is no record: {place or 'it'}: {first['msg']}") from None
    seed = bytes.fromhex(stored.seed)
    return Record(
        Origin(stored.component, seed, stored.wall_ms, stored.monotonic_ms, stored.position),
        stored.script,
        stored.namespaces,
        stored.limits,
        stored.longest_call,
        stored.places,
        stored.settings,
        tuple(_event(*event) for event in stored.events),
    )


def _event(kind: str, *held: Any) -> Event:
    match kind:
        case "trapped":
            return Trapped(TrapCause[held[0]], held[1])
        case "stopped":
            return Stopped(RunError(*held[0]), held[1])
    event: Event = _PLAIN[kind](*held)
    return event
