"""What kinds of JSON values there are, and when two values are the same JSON."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from manifests.json_value import Json


def is_kind(value: Json, names: Iterable[str]) -> bool:
    """Whether the value is of one of the types that JSON Schema calls so."""
    return any(_TESTS[name](value) for name in names)


def kind_of(value: Json) -> str:
    """The narrowest type that JSON Schema has for the value."""
    return next(name for name in _NARROWEST if _TESTS[name](value))


def kind_words(names: Iterable[str]) -> str:
    """The same types in a Python reader's words."""
    return " or ".join(_WORDS[name] for name in names)


def is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_integer(value: Json) -> bool:
    return (isinstance(value, int) and not isinstance(value, bool)) or (
        isinstance(value, float) and value.is_integer()
    )


def is_same(one: Json, other: Json) -> bool:
    """Equal as JSON: 1 is 1.0, but True is not 1."""
    if isinstance(one, str) or isinstance(other, str):
        return bool(one == other)
    return bool(json_key(one) == json_key(other))


def json_key(value: Json) -> Any:
    """A hashable value that is equal for equal JSON and no other."""
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, list):
        return ("list", *map(json_key, value))
    if isinstance(value, dict):
        return frozenset((key, json_key(child)) for key, child in value.items())
    return value


_TESTS: Final[Mapping[str, Callable[[Json], bool]]] = MappingProxyType(
    {
        "null": lambda value: value is None,
        "boolean": lambda value: isinstance(value, bool),
        "object": lambda value: isinstance(value, dict),
        "array": lambda value: isinstance(value, list),
        "number": is_number,
        "string": lambda value: isinstance(value, str),
        "integer": is_integer,
    }
)
_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "null": "None",
        "boolean": "a bool",
        "object": "a dict",
        "array": "a list",
        "number": "a number",
        "string": "a str",
        "integer": "an int",
    }
)
_NARROWEST: Final = ("null", "boolean", "string", "integer", "number", "array", "object")
