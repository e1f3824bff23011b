"""A tool of an upstream, and what it answers to a call, as they were sent."""

import hashlib
import json
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Final

from manifests.json_value import Json


@dataclass(frozen=True)
class RecordedTool:
    """One tool as listed by its upstream: raw wire JSON, nothing interpreted.

    `input_schema` is always a dict, but it may be any dict: `{}`, without `type`, or with keywords that
    are no JSON Schema. `output_schema` is a dict or None. `name` is 1 to 200 characters of anything.
    """

    name: str
    description: str
    input_schema: Json
    output_schema: Json | None
    annotations: dict[str, Json]
    title: str | None
    examples: tuple[Json, ...] = ()
    """`inputExamples` of the tool itself: objects of arguments, as far as the upstream kept to that."""

    @cached_property
    def digest(self) -> str | None:
        """A hash of all that a function is made of; None if a schema nests too deep to be written."""
        parts = [
            self.name,
            self.description,
            self.title,
            self.input_schema,
            self.output_schema,
            self.annotations,
            self.examples,
        ]
        try:
            return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
        except (RecursionError, TypeError, ValueError):
            return None


class Missing(Enum):
    """The type of `MISSING`."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING
"""No structuredContent was sent; None would be a value."""


@dataclass(frozen=True)
class ToolResult:
    """One result of `tools/call`, as it was on the wire: unknown block types and `_meta` are kept.

    Never checked against the tool's outputSchema: one real result in thirteen violates its own.
    """

    content: list[dict[str, Json]]
    structured: Json | Missing
    is_error: bool


def read_result(raw: dict[str, Json], *, null_is_a_value: bool) -> ToolResult:
    """Read a raw result however sloppy it is; nothing that was sent is dropped.

    Before 2026-07-28 structuredContent was an object, and some servers send null for "none":
    `null_is_a_value` says which of the two a null means.
    """
    structured = raw.get("structuredContent", MISSING)
    if structured is None and not null_is_a_value:
        structured = MISSING
    content = _blocks(raw["content"]) if "content" in raw else []
    if not content and structured is MISSING:
        content = _stray_values(raw)
    return ToolResult(content=content, structured=structured, is_error=raw.get("isError") is True)


_ENVELOPE: Final = frozenset({"content", "structuredContent", "isError", "_meta", "resultType"})


def _blocks(content: Json) -> list[dict[str, Json]]:
    if content is None:
        return []
    blocks = content if isinstance(content, list) else [content]
    return [block if isinstance(block, dict) else _text_block(block) for block in blocks]


def _stray_values(raw: dict[str, Json]) -> list[dict[str, Json]]:
    """A server that answers with a bare object (or 2024's `toolResult`) still meant it as its result."""
    stray = {key: value for key, value in raw.items() if key not in _ENVELOPE}
    return [_text_block(stray)] if stray else []


def _text_block(value: Json) -> dict[str, Json]:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return {"type": "text", "text": text}
