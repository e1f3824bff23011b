"""Content that scripts emit, and binary content of upstreams, as MCP content blocks."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

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


_FEW_CHARACTERS: Final = 200
"""So much of it does no harm."""
_MOST_VALUES: Final = 10_000
_MOST_DEPTH: Final = 20
"""No more of a value are looked at. What else there is is cut as any text is."""
_MOST_TOLD: Final = 3

_Path: TypeAlias = "tuple[_Path, int | str] | None"
"""Where a value stands, the innermost key or index last; None is the whole."""


def without_binaries(value: Json) -> tuple[Json, list[str]]:
    """The value without the data of its content blocks, and a notice that says what to do about it.

    Source: MCP 2026-07-28, server/tools#tool-result.
    """
    reading = _Reading()
    shown = reading.shown(value, None, 0)
    if not reading.left_out:
        return value, []
    more = ", ..." if len(reading.left_out) > _MOST_TOLD else ""
    notice = (
        f"base64 was left out, which tells a model nothing: {', '.join(reading.left_out[:_MOST_TOLD])}{more}. "
        "Hand such a block to `portal.emit(block)` in the script: then it is in the answer, to be seen."
    )
    return shown, [notice]


class _Reading:
    def __init__(self) -> None:
        self.left_out: list[str] = []
        """Where blocks stand, and what they are."""
        self._values = 0

    def shown(self, value: Json, path: _Path, depth: int) -> Json:
        """The value itself where nothing of it is left out: that is nearly always so, and some are large."""
        self._values += 1
        if not isinstance(value, list | dict) or depth > _MOST_DEPTH:
            return value
        if isinstance(value, dict) and (key := _binary(value)):
            self.left_out.append(f"{_written(path)} ({str(value['mimeType'])[:100]})")
            return {**value, key: f"[{len(str(value[key])):,} characters of base64]"}
        changed: dict[int | str, Json] = {}
        for name, item in enumerate(value) if isinstance(value, list) else value.items():
            if self._values >= _MOST_VALUES:
                break
            told = self.shown(item, (path, name), depth + 1)
            if told is not item:
                changed[name] = told
        if not changed:
            return value
        if isinstance(value, list):
            return [changed.get(index, item) for index, item in enumerate(value)]
        return {name: changed.get(name, item) for name, item in value.items()}


def _written(path: _Path) -> str:
    if path is None:
        return "result"
    outer, name = path
    shown = name[:40] if isinstance(name, str) else name
    return f"{_written(outer)}[{shown!r}]"


def _binary(value: dict[str, Json]) -> str:
    """The key under which a content block, or the contents of a resource, has much base64; "" if it is neither."""
    key = "data" if value.get("type") in ("image", "audio") else "blob" if "uri" in value else ""
    data = value.get(key)
    is_much = isinstance(data, str) and len(data) > _FEW_CHARACTERS
    return key if is_much and isinstance(value.get("mimeType"), str) else ""
