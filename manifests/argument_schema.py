"""JSON Schema as a condition on arguments: read strictly, because what is not understood would let calls through.

Only keywords that can be decided in time bounded by the value are read; `pattern`, `format` and `$ref` are refused when
the manifest is loaded. So is a schema that says something of a property that may be left out, or may be of another
type: both fit it by the words of JSON Schema, and neither is what an operator means by `maximum: 100`. And so is a
`not` of more than types, single values and names of properties: what the upstream takes for the same would fit it. And
a `oneOf` of schemas of properties, because each is a `not` for the others.

Source: JSON Schema 2020-12, validation.
"""

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, TypeAlias

from manifests.json_value import Json

MAX_DEPTH: Final = 20

MAX_STEPS: Final = 25_000
"""Looks at one part of the arguments of one call by a part of a schema: some ten milliseconds."""

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


class TooMuchError(Exception):
    """The arguments have more parts than are looked at."""


class Work:
    """What is looked at for one rule: everybody else waits meanwhile."""

    def __init__(self, steps: int = MAX_STEPS) -> None:
        self._left = steps

    def take(self, steps: int = 1) -> None:
        """Count so many looks at one part.

        Raises:
            TooMuchError: There were more than there may be.
        """
        self._left -= steps
        if self._left < 0:
            raise TooMuchError


Fit: TypeAlias = Callable[[Json, Work], bool]


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


def compiled(schema: Json) -> Fit:
    """What says whether a value fits a schema that was checked."""
    if isinstance(schema, bool):
        return lambda value, work: schema
    keywords = [_KEYWORDS[keyword](operand, schema) for keyword, operand in schema.items()]

    def fit(value: Json, work: Work) -> bool:
        work.take()
        for keyword in keywords:  # noqa: SIM110 - twice as fast as all()
            if not keyword(value, work):
                return False
        return True

    return fit


def fits(value: Json, schema: Json) -> bool:
    """Whether a value fits a schema that was checked."""
    return compiled(schema)(value, Work())


def equal(one: Json, other: Json) -> bool:
    """Equality of JSON: 1 is 1.0, and no boolean is a number."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(value, other[key]) for key, value in one.items())
    return bool(one == other)


class OneOf:
    """Some values, among which another one is found whatever number they are."""

    def __init__(self, values: Iterable[Json]) -> None:
        listed = list(values)
        self._single = frozenset(map(_key, (each for each in listed if not _has_parts(each))))
        self._with_parts = [each for each in listed if _has_parts(each)]

    def __contains__(self, value: Json) -> bool:
        return self.has(value, Work())

    def has(self, value: Json, work: Work) -> bool:
        """Whether one of them is equal to the value."""
        if not _has_parts(value):
            return value == value and _key(value) in self._single  # what is no number equals nothing
        work.take(len(self._with_parts))
        return any(equal(value, each) for each in self._with_parts)


def _has_parts(value: Json) -> bool:
    return isinstance(value, list | dict)


def _key(value: Json) -> tuple[bool, Json]:
    return isinstance(value, bool), value


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


def _of_types(operand: Json, _: Json) -> Fit:
    tests = [_TYPES[name] for name in ([operand] if isinstance(operand, str) else operand)]
    [first, *others] = tests
    if not others:
        return lambda value, work: first(value)
    return lambda value, work: any(test(value) for test in tests)


def _properties(operand: Json, _: Json) -> Fit:
    nested = [(name, compiled(each)) for name, each in operand.items()]

    def fit(value: Json, work: Work) -> bool:
        if isinstance(value, dict):
            for name, each in nested:
                if name in value and not each(value[name], work):
                    return False
        return True

    return fit


def _other_properties(operand: Json, schema: Json) -> Fit:
    known, nested = schema.get("properties", {}), compiled(operand)
    return lambda value, work: (
        operand is True
        or not isinstance(value, dict)
        or all(nested(each, work) for name, each in value.items() if name not in known)
    )


def _items(operand: Json, _: Json) -> Fit:
    nested = compiled(operand)
    return lambda value, work: (
        operand is True or not isinstance(value, list) or all(nested(each, work) for each in value)
    )


def _values(operand: Json) -> Fit:
    return OneOf(operand).has


def _not(operand: Json, _: Json) -> Fit:
    fit = compiled(operand)
    return lambda value, work: not fit(value, work)


def _of_schemas(holds: Callable[[Iterable[bool]], bool]) -> "_Keyword":
    def keyword(operand: Json, _: Json) -> Fit:
        nested = list(map(compiled, operand))
        return lambda value, work: holds(fit(value, work) for fit in nested)

    return keyword


def _of_numbers(holds: Callable[[Json, Json], bool]) -> "_Keyword":
    return lambda bound, _: lambda value, work: not _is_number(value) or holds(value, bound)


def _of_sizes(
    kind: type[str] | type[list[Json]] | type[dict[str, Json]], holds: Callable[[int, int], bool]
) -> "_Keyword":
    return lambda bound, _: lambda value, work: not isinstance(value, kind) or holds(len(value), bound)


_Keyword: TypeAlias = Callable[[Json, Json], Fit]
"""Compiles the operand of a keyword, beside which stands the schema that has it."""

_KEYWORDS: Final[Mapping[str, _Keyword]] = {
    "type": _of_types,
    "enum": lambda operand, _: _values(operand),
    "const": lambda operand, _: _values([operand]),
    "minimum": _of_numbers(operator.ge),
    "maximum": _of_numbers(operator.le),
    "exclusiveMinimum": _of_numbers(operator.gt),
    "exclusiveMaximum": _of_numbers(operator.lt),
    "minLength": _of_sizes(str, operator.ge),
    "maxLength": _of_sizes(str, operator.le),
    "minItems": _of_sizes(list, operator.ge),
    "maxItems": _of_sizes(list, operator.le),
    "minProperties": _of_sizes(dict, operator.ge),
    "maxProperties": _of_sizes(dict, operator.le),
    "items": _items,
    "required": lambda names, _: (
        lambda value, work: not isinstance(value, dict) or all(name in value for name in names)
    ),
    "properties": _properties,
    "additionalProperties": _other_properties,
    "anyOf": _of_schemas(any),
    "allOf": _of_schemas(all),
    "oneOf": _of_schemas(lambda fitting: sum(fitting) == 1),
    "not": _not,
}
