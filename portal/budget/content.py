"""Content that scripts emit, and binary content of upstreams, as MCP content blocks."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)
from pydantic import ValidationError

from manifests.json_value import Json
from portal.budget.tokens import compact, count_tokens, is_within

MAX_BLOCKS = 32
"""Blocks of one run; more are dropped with a notice."""

_USUAL_MIME_TYPE_CHARS = 100

_KINDS: Mapping[str, type[ContentBlock]] = {
    "text": TextContent,
    "image": ImageContent,
    "audio": AudioContent,
    "resource": EmbeddedResource,
    "resource_link": ResourceLink,
}

ALLOWED = (
    "Allowed: text {text}, image and audio {data: base64, mimeType}, resource {resource: {uri, text or blob}}, "
    "resource_link {uri, name}."
)
"""Ends the notice for an invalid block."""


@dataclass(frozen=True)
class Emitted:
    """The valid blocks, and a notice for each dropped one. `tokens` counts the text of the blocks."""

    blocks: Sequence[ContentBlock]
    notices: Sequence[str]
    tokens: int


def content_blocks(emitted: Sequence[dict[str, Json]], max_text_tokens: int) -> Emitted:
    """Choose the blocks to send.

    The text of all blocks counts against `max_text_tokens` (o200k_base). Images, audio and binary resources do not
    count; `limits.result_bytes` limits them.

    Source: MCP 2026-07-28, server/tools#tool-result.
    """
    blocks: list[ContentBlock] = []
    notices: list[str] = []
    left_tokens = max_text_tokens
    for position, raw in enumerate(emitted[:MAX_BLOCKS]):
        try:
            block = _block(raw)
        except BlockError as error:
            notices.append(f"portal.emit: block {position} was dropped: {error}. {ALLOWED}")
            continue
        text = _text(block)
        if not is_within(text, left_tokens):
            notices.append(
                f"portal.emit: block {position} was dropped: its text exceeds the remaining {left_tokens:,} tokens"
            )
            continue
        left_tokens -= count_tokens(text)
        blocks.append(block)
    if len(emitted) > MAX_BLOCKS:
        notices.append(
            f"portal.emit: {len(emitted) - MAX_BLOCKS} blocks beyond the first {MAX_BLOCKS} were dropped"
        )
    return Emitted(blocks, notices, max_text_tokens - left_tokens)


class BlockError(Exception):
    """The value is not an MCP content block. The message says why."""


def _block(raw: dict[str, Json]) -> ContentBlock:
    kind = raw.get("type")
    if not isinstance(kind, str) or kind not in _KINDS:
        shown = f"unknown: {kind[:40]!r}" if isinstance(kind, str) else "not a string"
        raise BlockError(f"its type is {shown}")
    try:
        block = _KINDS[kind].model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        # pydantic adds the class of the resource that it tried.
        place = ".".join(str(step) for step in first["loc"] if not str(step).endswith("Contents"))
        raise BlockError(f"{kind}: {place[:80]}: {first['msg'][:80]}") from error
    binary = block.resource if isinstance(block, EmbeddedResource) else block
    try:
        match binary:
            case ImageContent(data=data) | AudioContent(data=data) | BlobResourceContents(blob=data):
                base64.b64decode(data, validate=True)
    except ValueError:
        # Some clients refuse a whole answer for one image.
        raise BlockError(f"{kind}: its data is not valid base64") from None
    return block


def _text(block: ContentBlock) -> str:
    """All text in the block that a model may read, which is everything except its binary data."""
    rest = block.model_dump(mode="json", by_alias=True, exclude_none=True)
    parts = [rest, rest["resource"]] if isinstance(block, EmbeddedResource) else [rest]
    for part in parts:
        for name in ("type", "data", "blob"):
            part.pop(name, None)
        if len(part.get("mimeType", "")) <= _USUAL_MIME_TYPE_CHARS:
            part.pop("mimeType", None)
    text = "".join(part.pop("text", "") for part in parts)
    return text + compact(rest) if rest else text


_FEW_CHARACTERS: Final = 200
"""Shorter base64 is kept."""
_MOST_DEPTH: Final = 20
"""Deeper base64 is not searched for. It is truncated like any text."""
_MAX_PLACES: Final = 3


def without_binaries(value: Json) -> tuple[Json, list[str]]:
    """Remove the base64 data of content blocks. Returns the rest and a notice that says how to return the data.

    Source: MCP 2026-07-28, server/tools#tool-result.
    """
    left_out: list[str] = []
    shown = _without(value, "result", left_out, _MOST_DEPTH)
    if not left_out:
        return value, []
    more = ", ..." if len(left_out) > _MAX_PLACES else ""
    notice = (
        f"Base64 data was removed from {', '.join(left_out[:_MAX_PLACES])}{more}. "
        "Call `portal.emit(block)` in the script to return the block."
    )
    return shown, [notice]


def _without(value: Json, place: str, left_out: list[str], depth: int) -> Json:
    if not isinstance(value, list | dict) or depth == 0:
        return value
    if isinstance(value, list):
        return [_without(item, f"{place}[{i}]", left_out, depth - 1) for i, item in enumerate(value)]
    if key := _binary(value):
        left_out.append(f"{place} ({str(value['mimeType'])[:100]})")
        return {**value, key: f"[{len(str(value[key])):,} characters of base64]"}
    return {
        name: _without(item, f"{place}[{name[:40]!r}]", left_out, depth - 1) for name, item in value.items()
    }


def _binary(value: dict[str, Json]) -> str:
    """The key of the base64 data in a content block or in a resource's contents; "" if there is none or little."""
    key = "data" if value.get("type") in ("image", "audio") else "blob" if "uri" in value else ""
    data = value.get(key)
    is_much = isinstance(data, str) and len(data) > _FEW_CHARACTERS
    return key if is_much and isinstance(value.get("mimeType"), str) else ""
