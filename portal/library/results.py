"""Converts a tool's result for scripts: its value as Python data, and its content blocks."""

import ast
import json
import re
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from pydantic_core import from_json, to_json

from manifests.json_value import Json
from portal.base.clean_json import is_larger
from portal.library.function import RESULT, is_wrapper
from upstreams.tools import MISSING, ToolResult

MAX_LITERAL_CHARACTERS: Final = 500_000
"""If the texts of a result that are no JSON are longer, they are not read as Python literals, which takes 50 ms."""

MAX_ODD_CHARACTERS: Final = 100_000
"""The same of each text that Python would not write so, such as `[1_000]`. It takes four times as long: 50 ms."""

# Each part of a literal that JSON writes otherwise. One that is not closed reaches to the end: the time is linear.
_LITERAL_PART: Final = re.compile(
    r"""'([^'\\]*+(?:\\.[^'\\]*+)*+)'?|"([^"\\]*+(?:\\.[^"\\]*+)*+)"?|None|True|False|\(|,?\)""", re.DOTALL
)
_ESCAPE: Final = re.compile(r"\\x(..)|\\.|\"", re.DOTALL)
_ESCAPES: Final = {'"': '\\"', "\\'": "'", "\\/": "\\\\/"}
_TUPLE: Final = "\0("
"""The key of a tuple in that JSON: brackets of another kind, so that `[1, 10)` stays text, and `(1)` is no list."""
_WORDS: Final = {"None": "null", "True": "true", "False": "false"}
_AS_JSON: Final = {**_WORDS, "(": f"{{{json.dumps(_TUPLE)}:[", ")": "]}", ",)": '],",":0}'}

MAX_COMPARISONS: Final = 30_000_000
"""Characters of the texts, and 30 more for each, times parts of the data: at most 0.3 s. Texts are not compared with
later parts, and may then count as more than the data."""

MAX_COMPARED_CHARACTERS: Final = 1 << 20
"""Longer JSON text is taken for a copy of the data, without parsing it, and is not kept beside it."""


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
    values = _parsed_texts(texts)
    return values[0] if len(values) == 1 else values


def parsed_text(text: str) -> Json:
    """The value of a text that is a JSON object or array, or a Python literal list or dict; else the text itself.

    So the results of one tool have one type: "12" and "true" stay text. NaN is a number, as in structuredContent.
    """
    return _parsed_texts([text])[0]


def _parsed_texts(texts: Sequence[str]) -> list[Json]:
    """The same of all texts of a result. Those that are no JSON are all read as Python literals, or none is."""
    values = [_from_json(each) for each in texts]
    unread = [at for at, text in enumerate(texts) if values[at] is text and _may_be_data(text)]
    if sum(len(texts[at]) for at in unread) <= MAX_LITERAL_CHARACTERS:
        for at in unread:
            values[at] = _from_literal(texts[at])
    return values


def _from_json(text: str) -> Json:
    if _may_be_data(text):
        for parse in (from_json, json.loads):  # the first is faster, but takes no lone surrogates
            with suppress(ValueError, TypeError, RecursionError):
                return parse(text)
    if _may_be_encoded_twice(text):
        with suppress(ValueError):
            value = _from_json(inner := json.loads(text))
            return text if value is inner else value
    return text


def _from_literal(text: str) -> Json:
    with suppress(ValueError, RecursionError):
        return json.loads(_LITERAL_PART.sub(_part_as_json, text), object_hook=_without_tuple)
    if len(text) > MAX_ODD_CHARACTERS:
        return text
    try:
        with warnings.catch_warnings(action="ignore"):  # such as for "\d"
            value = ast.literal_eval(text.strip())
        # Tuples become lists, and keys text; sets and bytes raise TypeError.
        return json.loads(json.dumps(value)) if isinstance(value, dict | list) else text
    # SystemError: Python 3.11 may collect garbage while it parses, and what it ends may log a traceback, which parses.
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError, SystemError):
        return text


def _part_as_json(part: re.Match[str]) -> str:
    inside = part[1] if part[2] is None else part[2]
    return _AS_JSON[part[0]] if inside is None else f'"{_ESCAPE.sub(_escape_as_json, inside)}"'


def _without_tuple(data: dict[str, Json]) -> Json:
    items = data.get(_TUPLE, data)
    return items[0] if isinstance(items, list) and len(items) == 1 and len(data) == 1 else items


def _escape_as_json(escape: re.Match[str]) -> str:
    return f"\\u00{escape[1]}" if escape[1] else _ESCAPES.get(escape[0], escape[0])


def _may_be_data(text: str) -> bool:
    return text.lstrip().startswith(("[", "{"))


def _may_be_encoded_twice(text: str) -> bool:
    return text.lstrip().startswith(('"[', '"{'))  # some servers on .NET encode what is JSON already


def is_encoded_twice(result: ToolResult) -> bool:
    """Whether a text may be JSON that was encoded twice. Secrets that JSON escapes are not masked there."""
    return any(text is not None and _may_be_encoded_twice(text) for text in map(_text_of, result.content))


def content_of(result: ToolResult, value: Json) -> tuple[list[Json] | None, list[int]]:
    """Return the content blocks behind a script's value, and which add something to it. None: the value has them all.

    A text that is too long to be compared becomes None: the script's side writes the data in its place.
    """
    texts = [_text_of(each) for each in result.content]
    has_data = result.structured is not MISSING
    is_plain = all(each.keys() == {"type", "text"} for each in result.content)
    if not has_data and (value is result.content or (is_plain and texts in (value, [value]))):
        return None, []
    short = [each for each in texts if each is not None and len(each) <= MAX_COMPARED_CHARACTERS] * has_data
    structured, parsed = result.structured, _parsed_texts(short)
    has_nan = any("NaN" in each or "Infinity" in each for each in short)
    if has_nan and not is_larger([structured, value], MAX_COMPARED_CHARACTERS):  # which no such text can say
        # FastMCP writes NaN in the text and null in the data. NaN is not even equal to itself.
        with suppress(ValueError):  # a lone surrogate
            as_sent = to_json([structured, value, parsed], inf_nan_mode="null")
            structured, value, parsed = from_json(as_sent)
    data = dict(zip(short, parsed, strict=True))
    said = [*_ways_to_say(structured), *_ways_to_say(value)] if has_data else []
    said = said[: 1 + MAX_COMPARISONS // max(1, 30 * len(texts) + sum(map(len, short)))]
    items = [*value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
    beside: list[int] = []
    blocks: list[Json] = []
    for at, (block, text) in enumerate(zip(result.content, texts, strict=True)):
        is_long = text is not None and len(text) > MAX_COMPARED_CHARACTERS and _may_be_data(text)
        if has_data and not is_long:
            known = [*said, *(way for each in items[at : at + 1] for way in _ways_to_say(each))]
            bare = "" if text is None else text.strip()
            if text is None or (bare and bare not in known and data.get(text, text) not in known):
                beside.append(at)
        blocks.append({**block, "text": None} if is_long else block)
    return blocks, beside


def _text_of(block: dict[str, Json]) -> str | None:
    text = block.get("text") if block.get("type") == "text" else None
    return text if isinstance(text, str) else None


def _ways_to_say(value: Json) -> list[Json]:
    """An object or array itself, the fields of an object, and the texts of a scalar."""
    if isinstance(value, dict | list):
        return [value, *value.values()] if isinstance(value, dict) else [value]
    try:
        return [str(value), json.dumps(value, ensure_ascii=False)]
    except ValueError:  # an integer of too many digits
        return []
