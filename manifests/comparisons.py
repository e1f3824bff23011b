"""What a comparison with one argument means, and whether anything at all can meet it."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

from manifests.argument_schema import OneOf
from manifests.json_value import Json
from manifests.text_readings import ReadText

_OF_TEXTS: Final = ("prefix", "suffix")
_OF_NUMBERS: Final = ("min", "max")

Test: TypeAlias = Callable[[Json, ReadText | None], bool]
"""Whether a value meets a comparison; beside it what was read of it, if it is a text."""


def test_of(name: str, operand: Json) -> Test:
    """What a comparison asks of a value: `name` is equals, one_of, prefix, suffix, min or max."""
    return _TESTS[name](operand)


def holds(name: str, value: Json, operand: Json) -> bool:
    """Whether a value compares so."""
    return test_of(name, operand)(value, ReadText(value) if isinstance(value, str) else None)


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
            why = ReadText(part).other_end(part) or "an encoding"
            return f"the {name} has {why} in it, and a text with that meets none"
    values = [said["equals"]] if "equals" in said else said.get("one_of", ())
    if values and not any(all(holds(name, each, said[name]) for name in said) for each in values):
        return "what it may equal does not meet the rest"
    return ""


def _texts_with(name: str, part: str) -> Iterator[str]:
    """One of these meets it, if any text does."""
    yield part
    yield f"{part}x" if name == "prefix" else f"x{part}"


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _one_of(allowed: Json) -> Test:
    values = OneOf(allowed)
    return lambda value, _: value in values


_TESTS: Final[Mapping[str, Callable[[Json], Test]]] = {
    "equals": lambda operand: _one_of([operand]),
    "one_of": _one_of,
    "prefix": lambda prefix: lambda _, text: text is not None and text.begins(prefix),
    "suffix": lambda suffix: lambda _, text: text is not None and text.ends(suffix),
    "min": lambda bound: lambda value, _: _is_number(value) and value >= bound,
    "max": lambda bound: lambda value, _: _is_number(value) and value <= bound,
}
