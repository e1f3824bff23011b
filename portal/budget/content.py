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
"""Blocks of one run; more are left out with a notice."""

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
"""What a notice says of a block that is none."""


@dataclass(frozen=True)
class Emitted:
    """The blocks that are MCP content, and a notice for each one left out; `tokens` is what the blocks' text costs."""

    blocks: Sequence[ContentBlock]
    notices: Sequence[str]
    tokens: int


def content_blocks(emitted: Sequence[dict[str, Json]], max_text_tokens: int) -> Emitted:
    """Choose the blocks to send.

    What a model reads of them as text counts against `max_text_tokens` (o200k_base) all together; images, audio and
    binary resources do not, their bytes were capped by `limits.result_bytes`.

    Source: MCP 2026-07-28, server/tools#tool-result.
    """
    blocks: list[ContentBlock] = []
    notices: list[str] = []
    left_tokens = max_text_tokens
    for position, raw in enumerate(emitted[:MAX_BLOCKS]):
        try:
            block = _block(raw)
        except BlockError as error:
            notices.append(f"portal.emit: block {position} was left out: {error}. {ALLOWED}")
            continue
        text = _text(block)
        if not is_within(text, left_tokens):
            notices.append(
                f"portal.emit: the text of block {position} does not fit {left_tokens:,} tokens and was left out"
            )
            continue
        left_tokens -= count_tokens(text)
        blocks.append(block)
    if len(emitted) > MAX_BLOCKS:
        notices.append(
            f"portal.emit: {len(emitted) - MAX_BLOCKS} blocks beyond the first {MAX_BLOCKS} were left out"
        )
    return Emitted(blocks, notices, max_text_tokens - left_tokens)


class BlockError(Exception):
    """It is no MCP content block; the message says what is wrong with it."""


def _block(raw: dict[str, Json]) -> ContentBlock:
    kind = raw.get("type")
    if not isinstance(kind, str) or kind not in _KINDS:
        shown = repr(kind[:40]) if isinstance(kind, str) else "no text"
        raise BlockError(f"its type is {shown}")
    try:
        block = _KINDS[kind].model_validate(raw)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        # Of two kinds of resources pydantic names the one it tried.
        place = ".".join(str(step) for step in fault["loc"] if not str(step).endswith("Contents"))
        raise BlockError(f"{kind}: {place[:80]}: {fault['msg'][:80]}") from error
    binary = block.resource if isinstance(block, EmbeddedResource) else block
    try:
        match binary:
            case ImageContent(data=data) | AudioContent(data=data) | BlobResourceContents(blob=data):
                base64.b64decode(data, validate=True)
    except ValueError:
        # Some clients refuse a whole answer for one image.
        raise BlockError(f"{kind}: its data is not base64") from None
    return block


def _text(block: ContentBlock) -> str:
    """What of the block a model may read as text: all but its binary data, wherever a script puts it."""
    told = block.model_dump(mode="json", by_alias=True, exclude_none=True)
    parts = [told, told["resource"]] if isinstance(block, EmbeddedResource) else [told]
    for part in parts:
        for name in ("type", "data", "blob"):
            part.pop(name, None)
        if len(part.get("mimeType", "")) <= _USUAL_MIME_TYPE_CHARS:
            part.pop("mimeType", None)
    text = "".join(part.pop("text", "") for part in parts)
    return text + compact(told) if told else text


_FEW_CHARACTERS: Final = 200
"""So much of it does no harm."""
_MOST_DEPTH: Final = 20
"""Binary data that nests deeper is not looked for. It is cut as any text is."""
_MOST_TOLD: Final = 3


def without_binaries(value: Json) -> tuple[Json, list[str]]:
    """The value without the data of its content blocks, and a notice that says what to do about it.

    Source: MCP 2026-07-28, server/tools#tool-result.
    """
    left_out: list[str] = []
    shown = _without(value, "result", left_out, _MOST_DEPTH)
    if not left_out:
        return value, []
    more = ", ..." if len(left_out) > _MOST_TOLD else ""
    notice = (
        f"base64 was left out, which tells a model nothing: {', '.join(left_out[:_MOST_TOLD])}{more}. "
        "Hand such a block to `portal.emit(block)` in the script: then it is in the answer, to be seen."
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
    """The key under which a content block, or the contents of a resource, has much base64; "" if it is neither."""
    key = "data" if value.get("type") in ("image", "audio") else "blob" if "uri" in value else ""
    data = value.get(key)
    is_much = isinstance(data, str) and len(data) > _FEW_CHARACTERS
    return key if is_much and isinstance(value.get("mimeType"), str) else ""
