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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
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
        for detour in (ReadText(f"{self.prefix or 'x'}x").detour, ReadText(f"x{self.suffix or 'x'}").detour):
            if detour:
                raise refusal(
                    f"can never hold: it has {detour} in it", "To refuse every call, deny the tool."
                )
        return self

    @property
    def said(self) -> dict[str, Json]:
        """What it compares with, by the name of the comparison."""
        values = {name: getattr(self, name) for name in _WORDS if name in self.model_fields_set}
        return {name: value for name, value in values.items() if value is not None or name == "equals"}


_NUMBERS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_SIZES: Final = tuple(f"{bound}{of}" for of in ("Length", "Items", "Properties") for bound in ("min", "max"))
_OTHERS: Final = (
    *("type", "enum", "const", "required"),
    *("additionalProperties", "items", "properties", "anyOf", "allOf"),
)
_UNDERSTOOD: Final = (*_OTHERS, *_NUMBERS, *_SIZES)


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
        if nested is not True and not _says_type(
            nested
        ):  # `true` is the way to say that anything may be there
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


class ReadText:
    """A text as it is, and as it is after NFKC and percent-decoding, until neither changes it.

    A prefix or a suffix must hold for each of these, and none may lead elsewhere when it is read as a path.
    """

    MAX_CHARACTERS: Final = 4_096
    MAX_DECODINGS: Final = 5

    def __init__(self, text: str) -> None:
        self._readings = [text]
        self.detour = self._read()
        """What makes it lead elsewhere, or keeps it from being read; "" if nothing does."""

    def begins(self, prefix: str) -> bool:
        return not self.detour and all(each.startswith(prefix) for each in self._readings)

    def ends(self, suffix: str) -> bool:
        return not self.other_end(suffix) and all(each.endswith(suffix) for each in self._readings)

    def other_end(self, suffix: str) -> str:
        """What may make its end another one than it seems, beside this suffix; "" if nothing does."""
        if self.detour:
            return self.detour
        for start in (each.removesuffix(suffix) for each in self._readings):
            if _BREAKS.search(start):
                return "a line break or a tab"
            if "@" in suffix and re.search("[@,;]", start):
                return "more than one address"
            if suffix.startswith(".") and re.search("[?#]", start):
                return "a `?` or `#`"
        return ""

    def _read(self) -> str:
        for _ in range(self.MAX_DECODINGS + 1):
            reading = self._readings[-1]
            if found := _detour(reading):
                return found
            try:
                decoded = unquote(unicodedata.normalize("NFKC", reading), errors="strict")
            except UnicodeDecodeError:
                break
            if decoded == reading:
                return ""
            self._readings.append(decoded)
        return "an encoding that not all read alike"


_BREAKS: Final = re.compile(r"[\t\n\u2028\u2029]")
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_AUTHORITY: Final = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]*://")
_ENCODED: Final = re.compile(r"%[uU][0-9A-Fa-f]{4}")
"""What only some systems decode."""
_SLASHES: Final = re.compile("[\\\\\u2044\u2215\u2216\u29f5\u29f8\u29f9]")
"""What some systems take for a slash; NFKC makes slashes of the others."""


def _detour(reading: str) -> str:
    if len(reading) > ReadText.MAX_CHARACTERS:
        return f"more than {ReadText.MAX_CHARACTERS:,} characters"
    if _CONTROLS.search(reading):
        return "a control character"
    if _ENCODED.search(reading):
        return "an encoding that not all read alike"
    segments = [*map(_segment, _AUTHORITY.sub("", _SLASHES.sub("/", reading), count=1).split("/"))]
    if "." in segments:
        return "a `.` or `..` between slashes"
    return "" if all(segments[1:-1]) else "two slashes in a row"


def _segment(text: str) -> str:
    """ "." for one of dots alone, also before a `;`, `?` or `#` or among blanks; "" for an empty one; else "x"."""
    name, *rest = re.split("[;?#]", text, maxsplit=1)
    name = "".join(each for each in name if each.isprintable() and each != " ")
    return ("x" if name.strip(".") else ".") if name else "x" * bool(rest)


def _unmet(demanded: Comparison, value: Json, text: ReadText | None) -> str:
    """The first comparison that a value does not meet, "" if it meets all; `text` is what was read of it."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    for name, operand in demanded.said.items():
        if name in _OF_TEXTS:
            is_met = text is not None and (text.begins if name == "prefix" else text.ends)(operand)
        elif name in ("min", "max"):
            is_met = is_number and (value >= operand if name == "min" else value <= operand)
        else:
            is_met = any(_is_equal(value, each) for each in (operand if name == "one_of" else [operand]))
        if not is_met:
            return name
    return ""


def _is_equal(one: Json, other: Json) -> bool:
    """As in JSON, 1 is 1.0 and no boolean is a number."""
    return isinstance(one, bool) is isinstance(other, bool) and bool(one == other)


@dataclass(frozen=True)
class ArgumentCondition:
    """The `where` and the `schema` of one rule."""

    where: Mapping[str, Comparison]
    schema: Json | None

    @cached_property
    def validator(self) -> SchemaValidator:
        return SchemaValidator(True if self.schema is None else self.schema)

    def __str__(self) -> str:
        told = [f"{name[:_SHOWN]} must {_demand(comparison)}" for name, comparison in self.where.items()]
        return "; ".join([*told, "the arguments must fit the schema"] if self.schema is not None else told)


class CallArguments:
    """The arguments of one call, by the tool's own names, as they would be sent. Each text is read once.

    The schemas of `conditions` share what may be looked at equally, so it is the same whichever stands first.
    """

    def __init__(self, values: Mapping[str, Json], conditions: Iterable[ArgumentCondition]) -> None:
        self._values = values
        demanding = [*conditions]
        named = {name for each in demanding for name in each.where}
        texts = {name: value for name, value in values.items() if name in named and isinstance(value, str)}
        self._read = {name: ReadText(text) for name, text in texts.items()}
        self._steps = MAX_STEPS // max(1, sum(each.schema is not None for each in demanding))

    def fault(self, condition: ArgumentCondition) -> str:
        """How they do not meet a condition, with the value and what may be; "" if they do."""
        for name, demanded in condition.where.items():
            if name not in self._values:
                return f"{name[:_SHOWN]} is not given, and must {_demand(demanded)}"
            value, text = self._values[name], self._read.get(name)
            if comparison := _unmet(demanded, value, text):
                found = ""
                if text is not None and comparison in _OF_TEXTS:
                    found = text.detour if comparison == "prefix" else text.other_end(demanded.suffix or "")
                shown = f"{_cut(value)}{f' with {found} in it' * bool(found)}"
                return f"{name[:_SHOWN]} is {shown}; it must {_demand(demanded)}"
        if condition.schema is None:
            return ""
        findings = condition.validator.look_at(self._values, self._steps, most=1)
        if findings.errors:
            return "the arguments do not fit the schema"
        return "" if findings.is_whole else TOO_MUCH


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
