"""What a rule demands of the arguments of a call: `where` compares single arguments, `schema` all of them.

A schema is read strictly, because what is not understood would let calls through. Only keywords that are decided in
time bounded by the value are read. A property that may be left out, or be of any type, fits a schema by the words of
JSON Schema, and neither is what an operator means by `maximum: 100`. `not` and `oneOf` say what must not be, which what
the upstream takes for the same, like 1 for true, gets around.

Source: JSON Schema 2020-12, validation.
"""

import math
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Annotated, Final, Self, TypeAlias
from urllib.parse import unquote

from pydantic import AfterValidator, Field, Strict, model_validator

from manifests.constraints import Section, refusal
from manifests.json_value import Json, SchemaValidator

MAX_STEPS: Final = 25_000
"""Uses of a keyword on a part of the arguments of one call: about a tenth of a second."""

TOO_MUCH = f"the arguments have too many parts to be held against a schema: those of a tool share {MAX_STEPS:,} looks"

_SHOWN = 60
_WORDS = {
    "equals": "be {}",
    "one_of": "be one of {}",
    "prefix": "begin with {}",
    "suffix": "end with {}",
    "min": "be at least {}",
    "max": "be at most {}",
}
_OF_TEXTS: Final = frozenset(("prefix", "suffix"))

Text: TypeAlias = Annotated[str, Field(min_length=1, max_length=10_000)]
Number: TypeAlias = Annotated[float, Field(allow_inf_nan=False)]


def _single(value: Json) -> Json:
    if isinstance(value, list | dict):
        raise refusal(
            "must be a text, a number, true, false or null", "For lists and mappings write a schema."
        )
    return value


Scalar: TypeAlias = Annotated[Json, AfterValidator(_single)]


class Comparison(Section):
    """What one argument must be. All that is said here must hold; an argument that is missing never does."""

    equals: Scalar = None
    """The value itself."""
    one_of: Annotated[tuple[Scalar, ...], Strict(False), Field(min_length=1, max_length=1000)] | None = None
    """The values that it may have."""
    prefix: Text | None = None
    """What a text must begin with, also decoded, and without a way out like reports/../x. End a folder's name with
    /."""
    suffix: Text | None = None
    """What a text must end with, however it is decoded."""
    min: Number | None = None
    """The least number."""
    max: Number | None = None
    """The greatest number."""

    @model_validator(mode="after")
    def _can_hold(self) -> Self:
        said = self.said
        if not said or len(said) < len(self.model_fields_set):
            raise refusal("compares with nothing", "Say equals, one_of, prefix, suffix, min or max.")
        if not (readings(f"{self.prefix or 'x'}x") and readings(f"x{self.suffix or 'x'}")):
            raise refusal(
                "can never hold: it leads elsewhere as a path", "To refuse every call, deny the tool."
            )
        return self

    @property
    def said(self) -> dict[str, Json]:
        """What it compares with, by the name of the comparison."""
        values = {name: getattr(self, name) for name in _WORDS if name in self.model_fields_set}
        return {name: value for name, value in values.items() if value is not None or name == "equals"}


_NUMBERS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_SIZES: Final = tuple(f"{bound}{of}" for of in ("Length", "Items", "Properties") for bound in ("min", "max"))
_UNDERSTOOD: Final = (
    *("type", "enum", "const", "required", "additionalProperties", "items", "properties", "anyOf", "allOf"),
    *(*_NUMBERS, *_SIZES),
)


def _sound(schema: Json) -> Json:
    from jsonschema import Draft202012Validator, SchemaError  # takes 40 ms

    if not schema:
        raise refusal(
            "says nothing", "Write it like {properties: {limit: {type: integer}}, required: [limit]}."
        )
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        where = ".".join(map(str, error.absolute_path)) or "schema"
        told = f"has a {where} in it that cannot be: {str(error.instance)[:60]!r}"
        raise refusal(told, "See JSON Schema 2020-12.") from error
    _check_schema(schema)
    return schema


ArgumentSchema: TypeAlias = Annotated[dict[str, Json], AfterValidator(_sound)]


def _check_schema(schema: Json) -> None:
    """Refuse what would have no effect, and what leaves a way around the schema, here and in all that is nested."""
    if isinstance(schema, bool):
        return
    for keyword, operand in schema.items():
        if keyword not in _UNDERSTOOD:
            hint = f"Understood are {', '.join(_UNDERSTOOD)}."
            raise refusal(f"has {keyword!r} in it, which would have no effect here", hint)
        if (operand == [] and keyword == "enum") or (keyword in _NUMBERS and not math.isfinite(operand)):
            raise refusal(f"has a {keyword} in it that cannot be: {operand}", "See JSON Schema 2020-12.")
    properties = schema.get("properties", {})
    for name in properties.keys() - schema.get("required", ()):
        hint = "List it under required: whatever the upstream takes in its place is unknown."
        raise refusal(f"lets {name!r} be left out", hint)
    parts = {**properties, **{key: schema[key] for key in ("items", "additionalProperties") if key in schema}}
    for name, nested in parts.items():
        # `true` is the way to say that anything may be there.
        if nested is not True and not _says_type(nested):
            hint = f"Give {name} a type, an enum or a const; where it has anyOf, each of these."
            raise refusal(f"lets {name!r} be of any type", hint)
    for nested in (*parts.values(), *schema.get("anyOf", ()), *schema.get("allOf", ())):
        _check_schema(nested)


def _says_type(schema: Json) -> bool:
    """Whether what fits is of a type that the schema names: a bound alone says nothing of a text or a list."""
    if isinstance(schema, bool):
        return not schema
    return (
        not schema.keys().isdisjoint(("type", "enum", "const"))
        or ("anyOf" in schema and all(map(_says_type, schema["anyOf"])))
        or any(map(_says_type, schema.get("allOf", ())))
    )


_MAX_CHARACTERS: Final = 4_096
_MAX_DECODINGS: Final = 5
_MAX_MARKS: Final = 30
"""Combining marks in a row: the time that it takes to put them into order grows with the square of their number.

Source: Unicode Standard Annex #15, Stream-Safe Text Format.
"""


def readings(text: str) -> list[str]:
    """A text as it is, and as it is after NFKC and percent-decoding, until neither changes it.

    None of a text that leads elsewhere when it is read as a path, that not all decode alike, or in which it matters
    what is done first: `%2f` and a combining mark may be a slash, or a letter.
    """
    found = [text]
    while len(found) <= _MAX_DECODINGS + 1 and not _is_detour(found[-1]):
        last = found[-1]
        normal = unicodedata.normalize("NFKC", last)
        try:
            decoded = unquote(last, errors="strict")
        except UnicodeDecodeError:
            break
        if normal == last == decoded:
            return found
        if last not in (normal, decoded):
            break
        found.append(normal if decoded == last else decoded)
    return []


def _may_end_otherwise(start: str, suffix: str) -> bool:
    """Whether what stands before a suffix may make the end another one than it seems: a break, an address, a query."""
    return bool(
        _BREAKS.search(start)
        or ("@" in suffix and re.search("[@,;]", start))
        or (suffix.startswith(".") and re.search("[?#]", start))
    )


_BREAKS: Final = re.compile(r"[\t\n\u2028\u2029]")
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_AUTHORITY: Final = re.compile(r"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{0,40}://")
"""Bounded, or each letter of a long name would be tried as a beginning."""
_ENCODED: Final = re.compile(r"%[uU][0-9A-Fa-f]{4}")
"""What only some systems decode."""
_SLASHES: Final = re.compile("[\\\\\u2044\u2215\u2216\u29f5\u29f8\u29f9]")
"""What some systems take for a slash; NFKC makes slashes of the others."""


def _is_detour(reading: str) -> bool:
    if len(reading) > _MAX_CHARACTERS or _CONTROLS.search(reading) or _ENCODED.search(reading):
        return True
    runs = groupby(reading, _is_mark) if not reading.isascii() else ()
    if any(is_mark and sum(1 for _ in run) > _MAX_MARKS for is_mark, run in runs):
        return True
    segments = [*map(_segment, _AUTHORITY.sub("", _SLASHES.sub("/", reading), count=1).split("/"))]
    return "." in segments or not all(segments[1:-1])


def _is_mark(character: str) -> bool:
    return (
        unicodedata.combining(character) > 0 or character in "\u0f73\u0f75\u0f81"
    )  # which are two marks each


def _segment(text: str) -> str:
    """ "." for one of dots alone, also before a `;`, `?` or `#` or among blanks; "" for an empty one; else "x"."""
    name, *rest = re.split("[;?#]", text, maxsplit=1)
    name = "".join(each for each in name if each.isprintable() and each != " ")
    return ("x" if name.strip(".") else ".") if name else "x" * bool(rest)


def _is_met(comparison: str, operand: Json, value: Json) -> bool:
    if comparison in _OF_TEXTS:
        read = readings(value) if isinstance(value, str) else []
        if comparison == "prefix":
            return bool(read) and all(each.startswith(operand) for each in read)
        ends = (
            each.endswith(operand) and not _may_end_otherwise(each.removesuffix(operand), operand)
            for each in read
        )
        return bool(read) and all(ends)
    if comparison in ("min", "max"):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and (value >= operand if comparison == "min" else value <= operand)
    # As in JSON, 1 is 1.0 and no boolean is a number.
    operands = operand if comparison == "one_of" else [operand]
    return any(isinstance(value, bool) is isinstance(each, bool) and bool(value == each) for each in operands)


@dataclass(frozen=True)
class ArgumentCondition:
    """The `where` and the `schema` of one rule; false if it demands nothing."""

    where: Mapping[str, Comparison] = field(default_factory=dict)
    schema: Json = None

    def __bool__(self) -> bool:
        return bool(self.where) or self.schema is not None

    def __str__(self) -> str:
        told = [f"{name[:_SHOWN]} must {_demand(comparison)}" for name, comparison in self.where.items()]
        return "; ".join([*told, "the arguments must fit the schema"] if self.schema is not None else told)

    def fault(self, arguments: Mapping[str, Json], max_steps: int) -> str:
        """How the arguments of a call do not meet it, with the value and what may be; "" if they do.

        Arguments are by the tool's own names, as they would be sent. The schema takes at most so many steps.
        """
        for name, demanded in self.where.items():
            if name not in arguments:
                return f"{name[:_SHOWN]} is not given, and must {_demand(demanded)}"
            value = arguments[name]
            if unmet := next((each for each in demanded.said.items() if not _is_met(*each, value)), None):
                is_text = unmet[0] in _OF_TEXTS and isinstance(value, str)
                plainly = ", and lead nowhere else when it is decoded or read as a path" if is_text else ""
                return f"{name[:_SHOWN]} is {_cut(value)}; it must {_demand(demanded)}{plainly}"
        if self.schema is None:
            return ""
        findings = self._validator.look_at(arguments, max_steps, most=1)
        if findings.errors:
            return "the arguments do not fit the schema"
        return "" if findings.is_whole else TOO_MUCH

    @cached_property
    def _validator(self) -> SchemaValidator:
        return SchemaValidator(self.schema)


def _demand(comparison: Comparison) -> str:
    return " and ".join(_WORDS[name].format(_cut(operand)) for name, operand in comparison.said.items())


def _cut(value: Json) -> str:
    if isinstance(value, str):  # of a long one no more is looked at
        value = value[: _SHOWN + 1]
    if isinstance(value, list | dict):
        text = f"{'a list' if isinstance(value, list) else 'an object'} of {len(value):,}"
    elif isinstance(value, int) and value.bit_length() > 4 * _SHOWN:
        text = "an integer of many digits"
    else:
        text = ", ".join(map(repr, value)) if isinstance(value, tuple) else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
