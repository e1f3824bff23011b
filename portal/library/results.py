"""What a call returns to the script, and what its tool declares about that."""

import json
import math
from typing import Final

from manifests.json_value import Json
from manifests.schema_validation import SoundNode
from portal.library.schema import sound_schema
from upstreams.tools import MISSING, ToolResult

_WRAPPED: Final = "result"


def is_wrapper(output_schema: Json) -> bool:
    """Whether a declared result is the `{"result": X}` that FastMCP and its like put around what is no object."""
    if not isinstance(output_schema, dict) or output_schema.get("type", "object") != "object":
        return False
    properties = output_schema.get("properties")
    if not isinstance(properties, dict) or list(properties) != [_WRAPPED]:
        return False
    return output_schema.get("x-fastmcp-wrap-result") is True or output_schema.get("required") == [_WRAPPED]


def declared_result(output_schema: Json | None) -> SoundNode:
    """What a tool declares about the value that scripts get."""
    root = sound_schema(True if output_schema is None else output_schema)
    if not is_wrapper(output_schema) or not isinstance(root, dict):
        return root
    wrapped: SoundNode = root["properties"][_WRAPPED]
    return wrapped


def script_value(result: ToolResult, output_schema: Json | None) -> Json:
    """A tool's result as Python data.

    structuredContent as it is, without the wrapper that the stub does not show either; else the text, parsed if it is
    JSON (see `parsed_text`); several text blocks are a list; with any other block among them it is a list of MCP
    content blocks as dicts. Nothing at all is None. One real result in thirteen violates its own outputSchema.
    """
    if result.structured is not MISSING:
        value = result.structured
        is_wrapped = isinstance(value, dict) and list(value) == [_WRAPPED] and is_wrapper(output_schema)
        return value[_WRAPPED] if is_wrapped else value
    if not result.content:
        return None
    blocks = (each["text"] for each in result.content if each.get("type") == "text" and "text" in each)
    texts = [each for each in blocks if isinstance(each, str)]
    if len(texts) < len(result.content):
        return result.content
    values = [parsed_text(each) for each in texts]
    return values[0] if len(values) == 1 else values


def parsed_text(text: str) -> Json:
    """The text's JSON value if it is an object or array, or a scalar that dumps back to the same text.

    So "12" is 12 and "true" is True, but "007", "1.50" and "1e3" stay text, as does what is not JSON.
    """
    value = data_in(text)
    is_data = isinstance(value, dict | list)
    return value if is_data or text in (json.dumps(value), json.dumps(value, ensure_ascii=False)) else text


def data_in(text: str) -> Json:
    """What a text is the JSON of; None if it is none (NaN, numbers beyond a double, nesting beyond the parser's)."""
    try:
        return json.loads(text, parse_constant=_finite, parse_float=_finite)
    except (ValueError, RecursionError):
        return None


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number beyond a double")
    return number
