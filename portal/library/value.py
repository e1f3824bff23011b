"""What a call returns to the script."""

import json
import math
import re
from typing import Any, Final, NoReturn

from manifests.json_value import Json
from portal.library.function import Function
from portal.library.result_wrapper import unwrapped
from upstreams.json_pieces import read_json, without_collection
from upstreams.steps import STEP_BYTES, STEP_ITEMS, Steps
from upstreams.tool_result import MISSING, ToolResult

MAX_DIGITS: Final = 4_300
"""Of an integer: Python's time to read one grows with the square of its digits, and MCP's own readers take no more."""

# Every 100th character of 4,301 digits makes 43 digits in a row: a look at those takes no time.
_STRIDE: Final = 100
_SAMPLED_DIGITS: Final = re.compile(r"[0-9]{43}")
_START: Final = re.compile(r"\s*+(\S)")
_SCALAR_STARTS: Final = frozenset('-0123456789tfn"')


def script_value(function: Function, result: ToolResult) -> Steps[Json]:
    """A tool's result as Python data.

    structuredContent as it is, without the wrapper that the stub does not show either; else the text, parsed
    if it is JSON (see `parsed_text`); several text blocks are a list; with any other block among them it is
    a list of MCP content blocks as dicts. Nothing at all is None. The declared outputSchema is not consulted:
    one real result in thirteen violates its own.
    """
    if result.structured is not MISSING:
        return unwrapped(result.structured) if function.wraps_result else result.structured
    if not result.content:
        return None
    if not all(_is_text(block) for block in result.content):
        return result.content
    values: list[Json] = []
    for number, block in enumerate(result.content, 1):
        value = yield from parsed_text(block["text"])
        values.append(value)
        if number % STEP_ITEMS == 0:
            yield
    return values[0] if len(values) == 1 else values


def parsed_text(text: str) -> Steps[Json]:
    """The text's JSON value if it is an object or array, or a scalar that dumps back to the same text.

    So "12" is 12 and "true" is True, but "007", "1.50" and "1e3" stay text, as does what is not JSON (NaN,
    numbers beyond a double, nesting beyond what Python's parser takes). Integers of more than 4,300 digits, which
    readers of JSON refuse, are the text of their digits.
    """
    found = _START.match(text)
    start = found[1] if found else ""
    if start not in ("{", "[") and (start not in _SCALAR_STARTS or not start):
        return text
    try:
        if len(text) <= STEP_BYTES:
            value = _loaded(text)
        else:
            value = yield from read_json(text.encode("utf-8", "surrogatepass"), _piece)
    except (ValueError, RecursionError):
        return text
    if isinstance(value, dict | list) or _dumps_back(value, text):
        return value
    return text


def _piece(text: bytes) -> Steps[Json]:
    yield from ()  # it is one step
    return without_collection(_loaded, text.decode("utf-8", "surrogatepass"))


def _loaded(text: str) -> Json:
    return json.loads(text, parse_constant=_refuse, parse_float=_finite, **_long_integers(text))


def _long_integers(text: str) -> dict[str, Any]:
    """How integers are read; only where some are long by our own function, which is slow."""
    return {"parse_int": _integer_or_digits} if _SAMPLED_DIGITS.search(text[::_STRIDE]) else {}


def _integer_or_digits(text: str) -> int | str:
    return int(text) if len(text.lstrip("-")) <= MAX_DIGITS else text


def _dumps_back(value: Json, text: str) -> bool:
    return text in (json.dumps(value), json.dumps(value, ensure_ascii=False))


def _is_text(block: dict[str, Json]) -> bool:
    return block.get("type") == "text" and isinstance(block.get("text"), str)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number beyond a double")
    return number
