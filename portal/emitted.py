"""Content blocks that a script handed to `portal.emit`, checked before they go to the client."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from pydantic import TypeAdapter, ValidationError

from manifests.json_value import Json
from portal.budget.tokens import count_tokens

MAX_BLOCKS = 32
"""Blocks of one run; more are left out with a notice."""

_BLOCK: TypeAdapter[ContentBlock] = TypeAdapter(ContentBlock)


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
            block = _BLOCK.validate_python(raw)
        except ValidationError as error:
            fault = error.errors(include_url=False, include_input=False)[0]
            notices.append(
                f"portal.emit: block {position} is no MCP content block ({fault['msg']}) and was left out"
            )
            continue
        if not _is_base64(block):
            notices.append(f"portal.emit: the data of block {position} is not base64, so it was left out")
            continue
        if text := _text(block):
            tokens = count_tokens(text)
            if tokens > left_tokens:
                notices.append(
                    f"portal.emit: text block {position} of {tokens:,} tokens does not fit and was left out"
                )
                continue
            left_tokens -= tokens
        blocks.append(block)
    if len(emitted) > MAX_BLOCKS:
        notices.append(
            f"portal.emit: {len(emitted) - MAX_BLOCKS} blocks beyond the first {MAX_BLOCKS} were left out"
        )
    return Emitted(blocks, notices, max_text_tokens - left_tokens)


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
    """What of the block a model reads as text."""
    if isinstance(block, TextContent):
        return block.text
    if isinstance(block, EmbeddedResource) and isinstance(block.resource, TextResourceContents):
        return block.resource.text
    if isinstance(block, ResourceLink):
        return " ".join(filter(None, (block.name, block.title, block.uri, block.description)))
    return ""
