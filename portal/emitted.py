"""Content blocks that a script handed to `portal.emit`, checked before they go to the client."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
        if not _is_base64(block):
            notices.append(f"portal.emit: the data of block {position} is not base64, so it was left out")
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
        return _KINDS[kind].model_validate(raw)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        # Of two kinds of resources pydantic names the one it tried.
        place = ".".join(str(step) for step in fault["loc"] if not str(step).endswith("Contents"))
        raise BlockError(f"{kind}: {place[:80]}: {fault['msg'][:80]}") from error


def _is_base64(block: ContentBlock) -> bool:
    """Whether what says to be binary is: some clients refuse a whole answer for one image that is not."""
    if isinstance(block, (ImageContent, AudioContent)):
        data = block.data
    elif isinstance(block, EmbeddedResource) and isinstance(block.resource, BlobResourceContents):
        data = block.resource.blob
    else:
        return True
    try:
        base64.b64decode(data, validate=True)
    except ValueError:
        return False
    return True


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
