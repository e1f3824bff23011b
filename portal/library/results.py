"""What a script gets of a tool's result: its value as Python data, and its content blocks."""

import ast
import json
import warnings
from typing import Final

from manifests.json_value import Json
from portal.library.function import RESULT, is_wrapper
from upstreams.tools import MISSING, ToolResult

MAX_LITERAL_CHARACTERS: Final = 100_000
"""A longer text is not read as a Python literal, which takes 50 ms."""

_WAYS: Final[tuple[dict[str, Json], ...]] = ({"separators": [",", ":"]}, {}, {"indent": 2})
"""How servers write JSON: options of `json.dumps`."""

_MOST_SPELT: Final = 1 << 20
"""Characters. Longer text is not compared with what `json.dumps` writes."""

_MOST_WHOLE: Final = 4
_MOST_COMPARED: Final = 100
"""The first blocks that may repeat the whole value, and their item of it. Later texts count as beside the value."""


def script_value(result: ToolResult, output_schema: Json | None) -> Json:
    """A tool's result as Python data.

    It is structuredContent, without the wrapper, which stubs do not show either. Without structuredContent it is the
    text, parsed if it is data (see `parsed_text`). Several text blocks give a list. If there are other blocks, it is
    the list of all content blocks as dicts. An empty result is None. One real result in thirteen violates its own
    outputSchema.
    """
    if result.structured is not MISSING:
        value = result.structured
        is_wrapped = isinstance(value, dict) and list(value) == [RESULT] and is_wrapper(output_schema)
        return value[RESULT] if is_wrapped else value
    if not result.content:
        return None
    texts = [text for each in result.content if (text := _text_of(each)) is not None]
    if len(texts) < len(result.content):
        return result.content
    values = [parsed_text(each) for each in texts]
    return values[0] if len(values) == 1 else values


def parsed_text(text: str) -> Json:
    """The value of a text that is a JSON object or array, or a Python literal list or dict; else the text itself.

    So the results of one tool have one type: "12" and "true" stay text. NaN is a number, as in structuredContent.
    """
    if not text.lstrip().startswith(("[", "{")):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        with warnings.catch_warnings(action="ignore"):  # such as for "\d"
            value = ast.literal_eval(text.strip()) if len(text) <= MAX_LITERAL_CHARACTERS else None
        # Tuples become lists, and keys text; sets and bytes raise TypeError.
        return json.loads(json.dumps(value)) if isinstance(value, dict | list) else text
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return text


def content_of(result: ToolResult, value: Json) -> tuple[list[Json] | None, list[int]]:
    """The content blocks behind a script's value, and which have something beside it. None: the value has them all.

    Text that repeats the value, or its item at the same place, does not cross to the script twice: it becomes
    `[is_item, options]`, the options of `json.dumps` that write it (None: the value is that text).
    """
    texts = [_text_of(each) for each in result.content]
    is_plain = all(each.keys() == {"type", "text"} for each in result.content)
    if result.structured is MISSING and (value is result.content or (is_plain and texts in (value, [value]))):
        return None, []
    blocks: list[Json] = []
    beside: list[int] = []
    for at, (block, text) in enumerate(zip(result.content, texts, strict=True)):
        said = [(0, value)] if at < _MOST_WHOLE else []
        said += [(1, value[at])] if isinstance(value, list) and at < len(value) else []
        ways = [None, *_WAYS] if text and text[:1] in "[{" and len(text) <= _MOST_SPELT else [None]
        parsed = parsed_text(text) if len(ways) > 1 and text else None  # no dumps of what the text cannot be
        fitting = ((is_item, each, ways if parsed == each else [None]) for is_item, each in said)
        repeated = (
            [is_item, way] for is_item, each, some in fitting for way in some if _as(each, way) == text
        )
        repetition = None if text is None else next(repeated, None)
        if repetition is None and result.structured is not MISSING:
            whole = [result.structured] if at < _MOST_WHOLE else []
            if (
                text is None
                or at >= _MOST_COMPARED
                or not _repeats(text, [*whole, *(each for _, each in said)])
            ):
                beside.append(at)
        blocks.append(block if repetition is None else {**block, "text": repetition})
    return blocks, beside


def _text_of(block: dict[str, Json]) -> str | None:
    text = block.get("text") if block.get("type") == "text" else None
    return text if isinstance(text, str) else None


def _as(value: Json, way: dict[str, Json] | None) -> Json:
    try:
        return value if way is None else json.dumps(value, ensure_ascii=False, **way)
    except (ValueError, RecursionError):  # an integer of too many digits, or nested too deeply
        return None


def _repeats(text: str, values: list[Json]) -> bool:
    """Whether the text says nothing that one of the values does not say."""
    scalars = (
        form for each in values if not isinstance(each, dict | list) for form in (str(each), _as(each, {}))
    )
    return not text.strip() or parsed_text(text) in values or text.strip() in scalars
