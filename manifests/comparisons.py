"""What a comparison with one argument means, and whether anything at all can meet it."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from manifests.argument_schema import equal
from manifests.json_value import Json
from manifests.text_readings import detour, other_end, readings

_OF_TEXTS: Final = ("prefix", "suffix")
_OF_NUMBERS: Final = ("min", "max")


def holds(name: str, value: Json, operand: Json) -> bool:
    """Whether a value compares so: `name` is equals, one_of, prefix, suffix, min or max."""
    return _HOLDS[name](value, operand)


def contradiction(said: Mapping[str, Json]) -> str:
    """Why no value can meet all of these comparisons; "" if one may."""
    if "one_of" in said and not said["one_of"]:
        return "one_of has no value in it"
    if "min" in said and "max" in said and said["min"] > said["max"]:
        return "min is greater than max"
    texts, numbers = said.keys() & _OF_TEXTS, said.keys() & _OF_NUMBERS
    if texts and numbers:
        return f"{min(texts)} is of texts and {min(numbers)} of numbers"
    for name in sorted(texts):
        if not any(holds(name, each, said[name]) for each in _texts_with(name, said[name])):
            part = said[name]
            why = other_end(part, part) or "an encoding"
            return f"the {name} has {why} in it, and a text with that meets none"
    values = [said["equals"]] if "equals" in said else said.get("one_of", ())
    if values and not any(all(holds(name, each, said[name]) for name in said) for each in values):
        return "what it may equal does not meet the rest"
    return ""


def _texts_with(name: str, part: str) -> Iterator[str]:
    """One of these meets it, if any text does."""
    yield part
    yield f"{part}x" if name == "prefix" else f"x{part}"


def _begins(value: Json, prefix: str) -> bool:
    return (
        isinstance(value, str)
        and not detour(value)
        and all(each.startswith(prefix) for each in readings(value))
    )


def _ends(value: Json, suffix: str) -> bool:
    return (
        isinstance(value, str)
        and not other_end(value, suffix)
        and all(each.endswith(suffix) for each in readings(value))
    )


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_HOLDS: Final[Mapping[str, Callable[[Json, Json], bool]]] = {
    "equals": equal,
    "one_of": lambda value, allowed: any(equal(value, each) for each in allowed),
    "prefix": _begins,
    "suffix": _ends,
    "min": lambda value, bound: _is_number(value) and value >= bound,
    "max": lambda value, bound: _is_number(value) and value <= bound,
}
