"""JSON Schema as a condition on arguments: read strictly, because what is not understood would let calls through.

Only keywords that can be decided in time bounded by the value are read; `pattern`, `format` and `$ref` are refused when
the manifest is loaded. So is a schema that says something of a property that may be left out, or may be of another
type: both fit it by the words of JSON Schema, and neither is what an operator means by `maximum: 100`. And so is a
`not` of more than types, single values and names of properties: what the upstream takes for the same would fit it. And
a `oneOf` of schemas of properties, because each is a `not` for the others.

Source: JSON Schema 2020-12, validation.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Final

from manifests.json_value import Json

MAX_DEPTH: Final = 20

_NEGATED: Final = frozenset(("type", "enum", "const", "required"))
"""What `not` may say."""

_PARTS: Final = frozenset(("properties", "items", "additionalProperties"))
"""What `oneOf` may not say: as with `not`, who says of a part what the upstream takes for the same fits less."""

_BOUNDS: Final = (
    ("minimum", "maximum"),
    ("minLength", "maxLength"),
    ("minItems", "maxItems"),
    ("minProperties", "maxProperties"),
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
    _check(schema, 0)


def fits(value: Json, schema: Json) -> bool:
    """Whether a value fits a schema that was checked."""
    if schema is True or schema is False:
        return bool(schema)
    return all(_KEYWORDS[keyword](value, operand, schema) for keyword, operand in schema.items())


def equal(one: Json, other: Json) -> bool:
    """Equality of JSON: 1 is 1.0, and no boolean is a number."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(value, other[key]) for key, value in one.items())
    return bool(one == other)


def _check(schema: Json, depth: int) -> None:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        raise SchemaConditionError("has a schema in it that is none", "A schema is a mapping, true or false.")
    for keyword, operand in schema.items():
        if keyword not in _KEYWORDS:
            hint = f"Understood are {', '.join(_KEYWORDS)}."
            raise SchemaConditionError(f"has {keyword!r} in it, which would have no effect here", hint)
        if not _is_operand(keyword, operand):
            raise SchemaConditionError(
                f"has a {keyword} in it that cannot be: {str(operand)[:60]!r}", "See JSON Schema 2020-12."
            )
        for nested in _nested(keyword, operand):
            _check(nested, depth + 1)
    _check_not(schema.get("not", {}))
    _check_one_of(schema.get("oneOf", ()))
    for least, most in _BOUNDS:
        if least in schema and most in schema and schema[least] > schema[most]:
            raise SchemaConditionError(f"can never hold: {least} is greater than {most}", "Swap them.")
    _check_properties(schema)


def _check_not(schema: Json) -> None:
    """Refuse `not: {properties: {force: {const: true}}}`, which `force: 1` fits."""
    said = {} if isinstance(schema, bool) else schema
    if said.keys() == {"anyOf"}:
        for each in said["anyOf"]:
            _check_not(each)
        return
    if not said.keys() <= _NEGATED or _names_parts(said):
        hint = (
            'Say what may be there: what the upstream takes for the same, like 1 or "true" for true, would fit. None '
            "of several things is let through by {not: {anyOf: [...]}}, or by several nots under allOf."
        )
        told = "has a not in it that says more than type, enum and const of single values, and required, or anyOf these"
        raise SchemaConditionError(told, hint)


def _check_one_of(schemas: Sequence[Json]) -> None:
    """Refuse `oneOf: [{required: [path]}, {properties: {force: {const: true}}, required: [force]}]`: with a path, it is
    met by `force: 1`.
    """
    if len(schemas) > 1 and any(map(_speaks_of_parts, schemas)):
        hint = 'Write anyOf: what the upstream takes for the same, like 1 or "true" for true, would fit one less.'
        raise SchemaConditionError(f"has a oneOf in it with {', '.join(sorted(_PARTS))}", hint)


def _speaks_of_parts(schema: Json) -> bool:
    if isinstance(schema, bool):
        return False
    nested = chain.from_iterable(_nested(keyword, operand) for keyword, operand in schema.items())
    return not schema.keys().isdisjoint(_PARTS) or _names_parts(schema) or any(map(_speaks_of_parts, nested))


def _names_parts(schema: Mapping[str, Json]) -> bool:
    """Whether one of the values that it names has parts."""
    return any(isinstance(value, dict | list) for value in (*schema.get("enum", ()), schema.get("const")))


def _check_properties(schema: Mapping[str, Json]) -> None:
    required = schema.get("required", [])
    for name, nested in schema.get("properties", {}).items():
        if name not in required:
            hint = "List it under required: whatever the upstream takes in its place is unknown."
            raise SchemaConditionError(f"lets {name!r} be left out", hint)
        _check_type(repr(name), nested)
    for keyword in ("items", "additionalProperties"):
        _check_type(keyword, schema.get(keyword, True))


def _check_type(name: str, schema: Json) -> None:
    # `true` is the way to say that anything may be there.
    if schema is not True and not _says_type(schema):
        hint = f"Give {name} a type, an enum or a const; where it has anyOf or oneOf, each of these."
        raise SchemaConditionError(f"lets {name} be of any type", hint)


def _says_type(schema: Json) -> bool:
    """Whether what fits is of a type that the schema names: a bound alone says nothing of a text or a list."""
    if isinstance(schema, bool):
        return not schema
    return (
        not schema.keys().isdisjoint(("type", "enum", "const"))
        or any(all(map(_says_type, schema[keyword])) for keyword in ("anyOf", "oneOf") if keyword in schema)
        or any(map(_says_type, schema.get("allOf", ())))
    )


def _nested(keyword: str, operand: Json) -> list[Json]:
    if keyword in ("items", "additionalProperties", "not"):
        return [operand]
    if keyword in ("anyOf", "allOf", "oneOf"):
        return list(operand)
    return list(operand.values()) if keyword == "properties" else []


def _is_operand(keyword: str, operand: Json) -> bool:
    if keyword == "type":
        names = operand if _is_list(operand) else [operand]
        return all(isinstance(each, str) and each in _TYPES for each in names)
    if keyword in ("enum", "anyOf", "allOf", "oneOf"):
        return _is_list(operand)
    if keyword == "required":
        return isinstance(operand, list) and all(isinstance(each, str) for each in operand)
    if keyword == "properties":
        return isinstance(operand, dict)
    if keyword in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
        return _is_number(operand)
    if keyword.startswith(("min", "max")):
        return isinstance(operand, int) and not isinstance(operand, bool) and operand >= 0
    return True


def _is_list(operand: Json) -> bool:
    return isinstance(operand, list) and bool(operand)


def _is_number(value: Json) -> bool:
    if isinstance(value, float):  # an integer is finite, and may be too large to be made one
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def _is_integer(value: Json) -> bool:
    return _is_number(value) and value == int(value)


_TYPES: Final[Mapping[str, Callable[[Json], bool]]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": _is_integer,
    "number": _is_number,
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


def _has_type(value: Json, operand: Json, _: Json) -> bool:
    return any(_TYPES[name](value) for name in ([operand] if isinstance(operand, str) else operand))


def _properties_fit(value: Json, operand: Json, _: Json) -> bool:
    return not isinstance(value, dict) or all(
        fits(value[n], each) for n, each in operand.items() if n in value
    )


def _others_fit(value: Json, operand: Json, schema: Json) -> bool:
    known = schema.get("properties", {})
    return not isinstance(value, dict) or all(
        fits(each, operand) for n, each in value.items() if n not in known
    )


_Rule = Callable[[Json, Json, Json], bool]


def _of_numbers(holds: Callable[[Json, Json], bool]) -> _Rule:
    return lambda value, operand, _: not _is_number(value) or holds(value, operand)


def _of_sizes(
    kind: type[str] | type[list[Json]] | type[dict[str, Json]], holds: Callable[[int, int], bool]
) -> _Rule:
    return lambda value, operand, _: not isinstance(value, kind) or holds(len(value), operand)


_KEYWORDS: Final[Mapping[str, _Rule]] = {
    "type": _has_type,
    "enum": lambda value, operand, _: any(equal(value, each) for each in operand),
    "const": lambda value, operand, _: equal(value, operand),
    "minimum": _of_numbers(lambda value, bound: value >= bound),
    "maximum": _of_numbers(lambda value, bound: value <= bound),
    "exclusiveMinimum": _of_numbers(lambda value, bound: value > bound),
    "exclusiveMaximum": _of_numbers(lambda value, bound: value < bound),
    "minLength": _of_sizes(str, lambda size, bound: size >= bound),
    "maxLength": _of_sizes(str, lambda size, bound: size <= bound),
    "minItems": _of_sizes(list, lambda size, bound: size >= bound),
    "maxItems": _of_sizes(list, lambda size, bound: size <= bound),
    "minProperties": _of_sizes(dict, lambda size, bound: size >= bound),
    "maxProperties": _of_sizes(dict, lambda size, bound: size <= bound),
    "items": lambda value, operand, _: (
        not isinstance(value, list) or all(fits(each, operand) for each in value)
    ),
    "required": lambda value, operand, _: (
        not isinstance(value, dict) or all(name in value for name in operand)
    ),
    "properties": _properties_fit,
    "additionalProperties": _others_fit,
    "anyOf": lambda value, operand, _: any(fits(value, each) for each in operand),
    "allOf": lambda value, operand, _: all(fits(value, each) for each in operand),
    "oneOf": lambda value, operand, _: sum(fits(value, each) for each in operand) == 1,
    "not": lambda value, operand, _: not fits(value, operand),
}
