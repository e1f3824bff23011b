"""The content of an answer: emitted blocks, binary content of upstreams, and excerpts of long values."""

import base64
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Final

import mcp_types as types
from pydantic import ValidationError

from manifests.json_value import Json
from manifests.kernels import JAVASCRIPT, PYTHON, KernelName
from portal.base.clean_json import is_larger
from portal.base.tokens import compact, count_tokens, is_within
from portal.library.notation import NOTATIONS
from portal.library.observed import shape_of
from portal.library.shape_text import shape_text
from portal.records.ledger import summarised

MAX_SENT_BLOCKS = 32
"""Blocks of one run that its client gets; more are dropped with a notice. The sandbox reads `frames.MAX_BLOCKS`."""

_USUAL_MIME_TYPE_CHARS = 100
_DATA_URL: Final = re.compile(r"\s*data:([\w.+-]+/[\w.+-]+)?(?:;[^;,]*)*;base64,", re.IGNORECASE)
_STANDARD: Final = str.maketrans("-_", "+/")

_KINDS: Mapping[str, type[types.ContentBlock]] = {
    "text": types.TextContent,
    "image": types.ImageContent,
    "audio": types.AudioContent,
    "resource": types.EmbeddedResource,
    "resource_link": types.ResourceLink,
}

ALLOWED = (
    "Allowed: text {text}, image and audio {data: base64, mimeType}, resource {resource: {uri, text or blob}}, "
    "resource_link {uri, name}."
)
"""Ends the notice for an invalid block."""


@dataclass(frozen=True)
class Emitted:
    """The valid blocks, and a notice for each dropped one. `tokens` counts the text of the blocks."""

    blocks: Sequence[types.ContentBlock]
    notices: Sequence[str]
    tokens: int


def content_blocks(emitted: Sequence[dict[str, Json]], max_text_tokens: int) -> Emitted:
    """Choose the blocks to send.

    The text of all blocks counts against `max_text_tokens` (o200k_base). Images, audio and binary resources do not
    count; `limits.result_bytes` limits them.

    Source: MCP 2026-07-28, server/tools#tool-result.
    """
    blocks: list[types.ContentBlock] = []
    notices: list[str] = []
    left_tokens = max_text_tokens
    for position, raw in enumerate(emitted[:MAX_SENT_BLOCKS]):
        try:
            block = _block(raw)
            text = _text(block)
            if not is_within(text, left_tokens):
                raise ValueError(f"its text exceeds the remaining {left_tokens:,} tokens")
        except ValueError as error:
            notices.append(f"portal.emit: block {position} was dropped: {error}")
        else:
            left_tokens -= count_tokens(text)
            blocks.append(block)
    if (more := len(emitted) - MAX_SENT_BLOCKS) > 0:
        notices.append(f"portal.emit: {more} blocks beyond the first {MAX_SENT_BLOCKS} were dropped")
    return Emitted(blocks, notices, max_text_tokens - left_tokens)


def _block(raw: dict[str, Json]) -> types.ContentBlock:
    """Raises ValueError: it is not an MCP content block. The message says why."""
    kind = raw.get("type")
    if not isinstance(kind, str) or kind not in _KINDS:
        shown = f"unknown: {kind[:40]!r}" if isinstance(kind, str) else "not a string"
        raise ValueError(f"its type is {shown}. {ALLOWED}")
    try:
        block = _KINDS[kind].model_validate(_mended(raw))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        # pydantic adds the class of the resource that it tried.
        place = ".".join(str(step) for step in first["loc"] if not str(step).endswith("Contents"))
        raise ValueError(f"{kind}: {place[:80]}: {first['msg'][:80]}. {ALLOWED}") from error
    binary = block.resource if isinstance(block, types.EmbeddedResource) else block
    try:
        base64.b64decode(getattr(binary, "data", getattr(binary, "blob", "")), validate=True)
    except ValueError:
        # Some clients reject a whole answer because of one invalid image.
        raise ValueError(f"{kind}: its data is not valid base64. {ALLOWED}") from None
    return block


def _mended(raw: dict[str, Json]) -> dict[str, Json]:
    """The block with standard base64 on one line: some servers wrap it, use URL-safe letters or send a data URL."""
    if isinstance(raw.get("resource"), dict):
        return {**raw, "resource": _mended(raw["resource"])}
    fixed = {**raw}
    for key in ("data", "blob"):
        if isinstance(raw.get(key), str):
            found = _DATA_URL.match(raw[key])
            text = "".join(raw[key][found.end() if found else 0 :].split())
            is_url_safe = "-" in text or "_" in text  # then the padding may be missing
            fixed[key] = text.translate(_STANDARD) + "=" * (-len(text) % 4 if is_url_safe else 0)
            if found and found[1]:
                fixed.setdefault("mimeType", found[1])
    return fixed


def _text(block: types.ContentBlock) -> str:
    """All text in the block that a model may read, which is everything except its binary data."""
    rest = block.model_dump(mode="json", by_alias=True, exclude_none=True)
    parts = [rest, rest["resource"]] if isinstance(block, types.EmbeddedResource) else [rest]
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

_LIST_AND_OBJECT: Final[Mapping[KernelName, tuple[str, str]]] = {
    PYTHON: ("list", "dict"),
    JAVASCRIPT: ("array", "object"),
}


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


MAX_DEPTH: Final = 64
"""Levels of nesting shown. JSON parsers, including that of the MCP SDK, fail between 100 and 1,000 levels."""

_SLACK_CHARS: Final = 32
"""A text that is too long by no more than this is not cut: the mark would be as long."""

_TOO_LONG: Final = 10**4_300
"""Python refuses to format larger integers."""

_VALUE_CHARS: Final = 12
"""The cost of a value besides its text, in characters."""

_PART_LEVELS: Final = 3
"""Levels that are always shown of each part except the result, such as of a ledger row."""

_UNTOUCHED: Final = ("status", "run_id", "run", "session", "kept")

_SIZES: Final = (0, 4, *(int(8 * 1.025**step) for step in range(590)))
_EVERYTHING: Final = 1 << 62


def truncate(answer: dict[str, Json], max_tokens: int) -> dict[str, Json]:
    """Truncate the answer to `max_tokens` tokens (o200k_base, compact JSON).

    The structure stays. Texts are shortened, the ends of lists and objects are dropped, and each cut is marked in
    place. The ledger is summarised. One of `notices` says what was cut. `status`, `run_id`, `session`, `kept` and the
    error's code do not change. A larger budget never shows less of the result. The budget holds from 200 tokens on;
    below, the answer is as small as possible.

    A large answer costs as much as the part that is shown.
    """

    def show(size: int) -> dict[str, Json]:
        excerpt = _Excerpt(size, max_tokens)
        shown: dict[str, Json] = {}
        for key, value in answer.items():
            is_ledger = key == "calls" and isinstance(value, list)
            rows = summarised(value, excerpt.items) if is_ledger else value
            depth = 0 if key == "result" else -_PART_LEVELS
            shown[key] = value if key in _UNTOUCHED else excerpt.value(rows, depth)
        cut = [key for key, value in answer.items() if shown[key] != value]
        if isinstance(answer.get("error"), dict):
            shown["error"]["code"] = answer["error"]["code"]
        if cut:
            # No commas in the number: a larger budget must not cost more tokens than it adds.
            told = f"Cut to fit {max_tokens} tokens and JSON: {', '.join(cut)}."
            advice = f"{told} To see more, filter in the script and return less."
            shown["notices"] = [*shown.get("notices", ()), advice]
        return shown

    def fitting(size: int) -> dict[str, Json] | None:
        with suppress(_TooLargeError):
            if is_within(compact(shown := show(size)), max_tokens):
                return shown
        return None

    # Most answers fit as they are. Each container is at most as deep as there are containers.
    with suppress(ValueError, RecursionError):
        text = "" if is_larger(answer, max_tokens) else compact(answer)
        containers = text.count("[") + text.count("{")
        if 0 < containers <= MAX_DEPTH and len(text) <= max_tokens and text.isascii():
            return answer
    if (whole := fitting(_EVERYTHING)) is not None:
        return whole
    # The sizes are fixed, so a larger budget never chooses a smaller size.
    too_large = bisect_left(_SIZES, True, key=lambda size: fitting(size) is None)
    return show(_SIZES[max(0, too_large - 1)])


def excerpt(value: Json, max_tokens: int) -> Json:
    """The value within `max_tokens`, cut like in `truncate`: each cut is marked in place."""
    return truncate({"result": value}, max_tokens)["result"]


def preview(value: Json, max_tokens: int, kernel: KernelName = PYTHON) -> dict[str, Json]:
    """A summary of a value that is too long to show: its size and shape, the first lines or items, and the last one."""
    if isinstance(value, str):
        lines = value.splitlines()
        size = f"{len(value):,} characters, {len(lines):,} lines"
        head = excerpt("\n".join(lines[:12]), max_tokens)
        return {"text": size, "head": head} | ({"tail": lines[-1][-100:]} if lines[1:] else {})
    shape, notation = shape_of(value), NOTATIONS[kernel]
    list_name, object_name = _LIST_AND_OBJECT[kernel]
    if isinstance(value, list):
        last = {"last": excerpt(value[-1], max_tokens // 3)} if value[8:] else {}
        size = f"{len(value):,} of {shape_text({**shape.get('items', {})}, notation)}"
        return {list_name: size, "first": excerpt(value[:8], max_tokens), **last}
    name = object_name if isinstance(value, dict) else type(value).__name__
    return {name: shape_text({**shape}, notation), "first": excerpt(value, max_tokens)}


class _TooLargeError(Exception):
    """The excerpt exceeds the budget."""


class _Excerpt:
    """Makes excerpts of one size: the characters per text.

    A list item counts as sixteen characters, an object key as one. So texts are cut first, then items, then keys. The
    cost depends on the budget, not on the size of the value.

    Raises:
        _TooLargeError: Any method raises it once it has read or written more than the budget can hold. Only lines of
            dashes and lists of empty lists have more values or characters per token.
    """

    def __init__(self, size: int, max_tokens: int) -> None:
        self.characters = size
        self.items = size // 16
        self._keys = max(8, size)
        self._depth = min(MAX_DEPTH, size // 4)
        self._left = 1_000 + max_tokens * 16

    def value(self, value: Json, depth: int = 0) -> Json:
        self._spend(_VALUE_CHARS)
        if isinstance(value, str):
            return self.text(value, self.characters)
        if isinstance(value, list | dict) and value:
            if depth >= self._depth:
                what = "items" if isinstance(value, list) else "keys"
                return self._mark(f"… [{len(value):,} {what}, too deep]")
            return self._list(value, depth) if isinstance(value, list) else self._object(value, depth)
        if isinstance(value, int):
            digits = value.bit_length() * 3 // 10
            if digits > max(self.characters, _SLACK_CHARS) or abs(value) >= _TOO_LONG:
                return self._mark(f"… [an integer of about {digits:,} digits]")
            self._spend(digits)
        return value

    def text(self, value: str, characters: int) -> str:
        """The first `characters` of a text, and the number of the others."""
        left = len(value) - characters
        if left <= min(characters, _SLACK_CHARS):
            self._spend(len(value))
            more = ""
        else:
            self._spend(characters)
            value, more = value[:characters], self._mark(f"… [{left:,} more character{'s' * (left > 1)}]")
        # Lone surrogates, which no Unicode encoding can represent, are replaced.
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace") + more

    def _mark(self, text: str) -> str:
        self._spend(_SLACK_CHARS)
        return text

    def _spend(self, characters: int) -> None:
        self._left -= characters
        if self._left < 0:
            raise _TooLargeError

    def _list(self, value: list[Json], depth: int) -> list[Json]:
        kept = len(value) if len(value) <= self.items + 1 else self.items
        items = [self.value(item, depth + 1) for item in islice(value, kept)]
        if kept < len(value):
            items.append(self._mark(f"… {len(value) - kept:,} more items left out"))
        return items

    def _object(self, value: dict[str, Json], depth: int) -> dict[str, Json]:
        kept = len(value) if len(value) <= self._keys + 1 else self._keys
        shown: dict[str, Json] = {}
        for key in islice(value, kept):
            name = self.text(key, max(2 * _SLACK_CHARS, self.characters))
            if name not in shown:  # two long keys may look equal when shortened
                shown[name] = self.value(value[key], depth + 1)
        if left := len(value) - len(shown):
            shown.setdefault(self._mark(f"… {left:,} more keys left out"), None)
        return shown
