"""JSON Schema as a condition on arguments: read strictly, because what is not understood would let calls through.

Only keywords that can be decided in time bounded by the value are read; `pattern`, `format` and `$ref` are refused when
the manifest is loaded. So is a schema that lets a property be left out, or be of any type: both fit it by the words of
JSON Schema, and neither is what an operator means by `maximum: 100`. So is a `not` of more than types, single values
and names of properties, because what the upstream takes for the same, like 1 for true, would fit it; and `oneOf`,
because each of its schemas is a `not` for the others.

Source: JSON Schema 2020-12, validation.
"""

import math
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Final

from manifests.json_value import Json

MAX_DEPTH: Final = 20

MAX_STEPS: Final = 25_000
"""Uses of a keyword on a part of the arguments of one call: about a tenth of a second."""

_NUMBERS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_SIZES: Final = tuple(f"{bound}{of}" for of in ("Length", "Items", "Properties") for bound in ("min", "max"))
_COMBINERS: Final = ("anyOf", "allOf")
_KEYWORDS: Final = (
    "type",
    "enum",
    "const",
    *_NUMBERS,
    *_SIZES,
    "required",
    *("additionalProperties", "items", "properties"),
    *_COMBINERS,
    "not",
)


class SchemaConditionError(Exception):
    """The schema cannot be a condition; `hint` says what to write."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def check_schema(schema: Json) -> None:
    """Look at a schema once, when it is loaded.

    Raises:
        SchemaConditionError: It has a keyword, or a keyword's value, that is not understood, or it leaves a way around.
    """
    if not isinstance(schema, dict) or not schema:
        raise SchemaConditionError(
            "says nothing", "Write it like {properties: {limit: {type: integer}}, required: [limit]}."
        )
    _check_keywords(schema, 0)
    _check_operands(schema)
    _check_gaps(schema)


def _check_keywords(schema: Json, depth: int) -> None:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        raise SchemaConditionError("has a schema in it that is none", "A schema is a mapping, true or false.")
    for keyword, operand in schema.items():
        if keyword not in _KEYWORDS:
            hint = f"Understood are {', '.join(_KEYWORDS)}."
            raise SchemaConditionError(f"has {keyword!r} in it, which would have no effect here", hint)
        is_infinite = keyword in _NUMBERS and isinstance(operand, float) and not math.isfinite(operand)
        if is_infinite or (keyword == "enum" and not operand):
            raise _senseless(keyword, operand)
        for nested in _nested(keyword, operand):
            _check_keywords(nested, depth + 1)


def _check_operands(schema: Json) -> None:
    from jsonschema import Draft202012Validator, SchemaError  # takes 40 ms

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        keyword = next((each for each in reversed(error.absolute_path) if each in _KEYWORDS), "schema")
        raise _senseless(str(keyword), error.instance) from error


def _senseless(keyword: str, operand: Json) -> SchemaConditionError:
    told = f"has a {keyword} in it that cannot be: {str(operand)[:60]!r}"
    return SchemaConditionError(told, "See JSON Schema 2020-12.")


def _check_gaps(schema: Json) -> None:
    """Refuse what leaves a way around the schema, here and in all that is nested."""
    if isinstance(schema, bool):
        return
    _check_not(schema.get("not", {}))
    for name, nested in schema.get("properties", {}).items():
        if name not in schema.get("required", ()):
            hint = "List it under required: whatever the upstream takes in its place is unknown."
            raise SchemaConditionError(f"lets {name!r} be left out", hint)
        _check_type(repr(name), nested)
    for keyword in ("items", "additionalProperties"):
        _check_type(keyword, schema.get(keyword, True))
    for nested in _all_nested(schema):
        _check_gaps(nested)


def _check_not(schema: Json) -> None:
    """Refuse `not: {properties: {force: {const: true}}}`, which `force: 1` fits."""
    said = {} if isinstance(schema, bool) else schema
    if said.keys() == {"anyOf"}:
        for each in said["anyOf"]:
            _check_not(each)
    elif not said.keys() <= {"type", "enum", "const", "required"} or any(
        isinstance(value, list | dict) for value in (*said.get("enum", ()), said.get("const"))
    ):
        told = "has a not in it that says more than type, enum and const of single values, and required, or anyOf these"
        hint = 'Say what may be there: what the upstream takes for the same, like 1 or "true" for true, would fit.'
        raise SchemaConditionError(told, hint)


def _check_type(name: str, schema: Json) -> None:
    # `true` is the way to say that anything may be there.
    if schema is not True and not _says_type(schema):
        hint = f"Give {name} a type, an enum or a const; where it has anyOf, each of these."
        raise SchemaConditionError(f"lets {name} be of any type", hint)


def _says_type(schema: Json) -> bool:
    """Whether what fits is of a type that the schema names: a bound alone says nothing of a text or a list."""
    if isinstance(schema, bool):
        return not schema
    return (
        not schema.keys().isdisjoint(("type", "enum", "const"))
        or ("anyOf" in schema and all(map(_says_type, schema["anyOf"])))
        or any(map(_says_type, schema.get("allOf", ())))
    )


def _all_nested(schema: Mapping[str, Json]) -> Iterator[Json]:
    return chain.from_iterable(_nested(keyword, operand) for keyword, operand in schema.items())


def _nested(keyword: str, operand: Json) -> list[Json]:
    if keyword in ("items", "additionalProperties", "not"):
        return [operand]
    if keyword in _COMBINERS and isinstance(operand, list):
        return operand
    return list(operand.values()) if keyword == "properties" and isinstance(operand, dict) else []
