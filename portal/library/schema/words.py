"""The keywords of JSON Schema that carry a plain value, and which values make sense in them."""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from manifests.json_value import Json

TYPE_NAMES: Final = frozenset({"null", "boolean", "object", "array", "number", "string", "integer"})

MAX_VALUES: Final = 10_000
"""JSON values within one `enum`, `const`, `default` or `examples`; with more the keyword is left out."""

_MAX_VALUE_DEPTH: Final = 12
_EXAMPLES: Final = ("examples", "inputExamples", "x-examples", "example", "x-example")


def type_names(value: Json) -> list[str] | None:
    """The types that `type` names, or None if it names anything else."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not names:
        return None
    if not all(isinstance(name, str) and name in TYPE_NAMES for name in names):
        return None
    return list(dict.fromkeys(names))


def is_small_json(value: Json) -> bool:
    """Whether a value is JSON, shallow, and of at most `MAX_VALUES` parts."""
    left = MAX_VALUES
    level = [value]
    for _ in range(_MAX_VALUE_DEPTH):
        left -= len(level)
        if left < 0 or not all(_is_json_part(part) for part in level):
            return False
        level = [child for part in level for child in _children(part)]
        if not level:
            return True
    return False


def examples_of(raw: Mapping[str, Json]) -> list[Json]:
    """The examples that a schema shows, by whatever word; older words of OpenAPI hold a single one."""
    for word in _EXAMPLES:
        if word in raw:
            several = isinstance(raw[word], list) and not word.endswith("example")
            examples = raw[word] if several else [raw[word]]
            if _is_values(examples):
                return [*examples]
    return []


def bounds_of_draft_4(raw: Mapping[str, Json], sound: dict[str, Any]) -> None:
    """Draft 4 wrote `exclusiveMinimum: true` beside `minimum`; later drafts give the bound itself."""
    for plain, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if raw.get(exclusive) is True and plain in sound:
            sound[exclusive] = sound.pop(plain)


def _is_json_part(value: Json) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, str | bool | int | list | dict)


def _children(value: Json) -> list[Json]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _is_text(value: Json) -> bool:
    return isinstance(value, str)


def _is_bool(value: Json) -> bool:
    return isinstance(value, bool)


def _is_number(value: Json) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def _is_positive(value: Json) -> bool:
    return _is_number(value) and value > 0


def _is_count(value: Json) -> bool:
    return _is_number(value) and value >= 0 and value == int(value)


def _is_names(value: Json) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _is_values(value: Json) -> bool:
    return isinstance(value, list) and bool(value) and is_small_json(value)


WORDS: Final[Mapping[str, Callable[[Json], bool]]] = MappingProxyType(
    {
        "title": _is_text,
        "description": _is_text,
        "format": _is_text,
        "pattern": _is_text,
        "deprecated": _is_bool,
        "default": is_small_json,
        "enum": _is_values,
        "required": _is_names,
        "minimum": _is_number,
        "maximum": _is_number,
        "exclusiveMinimum": _is_number,
        "exclusiveMaximum": _is_number,
        "multipleOf": _is_positive,
        "minLength": _is_count,
        "maxLength": _is_count,
        "minItems": _is_count,
        "maxItems": _is_count,
        "uniqueItems": _is_bool,
        "minContains": _is_count,
        "minProperties": _is_count,
        "maxProperties": _is_count,
    }
)
"""Keyword -> whether this value makes sense in it. Keywords that hold subschemas are not here."""
