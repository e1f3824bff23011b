"""Content blocks that a script handed to `portal.emit`, checked before they go to the client."""

from collections.abc import Sequence

from mcp_types import ContentBlock, EmbeddedResource, TextContent, TextResourceContents
from pydantic import TypeAdapter, ValidationError

from manifests.json_value import Json
from portal.budget.tokens import count_tokens

MAX_BLOCKS = 32
"""Blocks of one run; more are left out with a notice."""

_BLOCK: TypeAdapter[ContentBlock] = TypeAdapter(ContentBlock)


def content_blocks(
    emitted: Sequence[dict[str, Json]], max_text_tokens: int
) -> tuple[list[ContentBlock], list[str]]:
    """The blocks that are MCP content, and a notice for each one left out.

    Text blocks count against `max_text_tokens` (tokens of o200k_base) all together; images, audio and resources do
    not, their bytes were capped by `limits.result_bytes`.

    Source: MCP 2026-07-28, server/tools#tool-result.
    """
    blocks: list[ContentBlock] = []
    notices: list[str] = []
    for position, raw in enumerate(emitted[:MAX_BLOCKS]):
        try:
            block = _BLOCK.validate_python(raw)
        except ValidationError as error:
            fault = error.errors(include_url=False, include_input=False)[0]
            notices.append(
                f"portal.emit: block {position} is no MCP content block ({fault['msg']}) and was left out"
            )
            continue
        if text := _text(block):
            tokens = count_tokens(text)
            if tokens > max_text_tokens:
                notices.append(
                    f"portal.emit: text block {position} of {tokens:,} tokens does not fit and was left out"
                )
                continue
            max_text_tokens -= tokens
        blocks.append(block)
    if len(emitted) > MAX_BLOCKS:
        notices.append(
            f"portal.emit: {len(emitted) - MAX_BLOCKS} blocks beyond the first {MAX_BLOCKS} were left out"
        )
    return blocks, notices


def _text(block: ContentBlock) -> str:
    """What of the block a model reads as text."""
    if isinstance(block, TextContent):
        return block.text
    if isinstance(block, EmbeddedResource) and isinstance(block.resource, TextResourceContents):
        return block.resource.text
    return ""
