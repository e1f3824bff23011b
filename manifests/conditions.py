"""Conditions on the arguments of a call: `where` compares single arguments, `schema` validates all of them.

Schemas are read strictly, because an ignored keyword would let calls through. Only keywords whose cost is bounded by
the value are supported. JSON Schema lets a property be absent or of any type; an operator who writes `maximum: 100`
means neither, so both are errors. So are `not` and `oneOf`: an upstream that reads 1 as true gets around them.

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

from pydantic import AfterValidator, Field, Strict, WrapValidator, model_validator

from manifests.constraints import Section, refusal
from manifests.json_value import Json, SchemaValidator

MAX_STEPS: Final = 25_000
"""Validation steps per call, each one keyword applied to one value: about 0.1 s."""

TOO_MUCH = (
    f"the arguments are too large to validate (the schemas of a tool share {MAX_STEPS:,} validation steps)"
)

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
# Whole numbers stay so: a float cannot tell large ones apart.
Number: TypeAlias = Annotated[
    float,
    Field(allow_inf_nan=False),
    WrapValidator(lambda value, check: value if type(value) is int else check(value)),
]


def _single(value: Json) -> Json:
    if isinstance(value, list | dict):
        raise refusal(
            "must be a string, a number, true, false or null", "For lists and mappings write a schema."
        )
    return value


Scalar: TypeAlias = Annotated[Json, AfterValidator(_single)]


class Comparison(Section):
    """Comparisons of one argument. All of them must hold. A missing argument satisfies none."""

    equals: Scalar = None
    """The argument equals this value."""
    one_of: Annotated[tuple[Scalar, ...], Strict(False), Field(min_length=1, max_length=1000)] | None = None
    """The argument equals one of these values."""
    prefix: Text | None = None
    """The string begins with this, also after decoding. A path traversal like reports/../x never matches. End the name
    of a folder with /."""
    suffix: Text | None = None
    """The string ends with this, also after decoding."""
    min: Number | None = None
    """The smallest number allowed."""
    max: Number | None = None
    """The largest number allowed."""

    @model_validator(mode="after")
    def _can_hold(self) -> Self:
        operands = self.operands
        if not operands or len(operands) < len(self.model_fields_set):
            raise refusal("has no comparison", "Use equals, one_of, prefix, suffix, min or max.")
        if not (decodings(f"{self.prefix or 'x'}x") and decodings(f"x{self.suffix or 'x'}")):
            raise refusal(
                "can never match: its text is a path traversal or not decodable",
                "To refuse every call, deny the tool.",
            )
        return self

    @property
    def operands(self) -> dict[str, Json]:
        """The values to compare with, by the name of the comparison."""
        values = {name: getattr(self, name) for name in _WORDS if name in self.model_fields_set}
        return {name: value for name, value in values.items() if value is not None or name == "equals"}


_NUMBERS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_SIZES: Final = tuple(f"{bound}{of}" for of in ("Length", "Items", "Properties") for bound in ("min", "max"))
_SUPPORTED: Final = (
    *("type", "enum", "const", "required", "additionalProperties", "items", "properties", "anyOf", "allOf"),
    *(*_NUMBERS, *_SIZES),
)


def _checked_schema(schema: Json) -> Json:
    from jsonschema import Draft202012Validator, SchemaError  # takes 40 ms

    if not schema:
        raise refusal("is empty", "Write it like {properties: {limit: {type: integer}}, required: [limit]}.")
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        where = ".".join(map(str, error.absolute_path)) or "schema"
        message = f"has an invalid {where}: {str(error.instance)[:60]!r}"
        raise refusal(message, "See JSON Schema 2020-12.") from error
    _check_schema(schema)
    return schema


ArgumentSchema: TypeAlias = Annotated[dict[str, Json], AfterValidator(_checked_schema)]


def _check_schema(schema: Json) -> None:
    """Refuse a schema with a keyword without effect, or with a way around it, at any depth."""
    if isinstance(schema, bool):
        return
    for keyword, operand in schema.items():
        if keyword not in _SUPPORTED:
            hint = f"Supported keywords: {', '.join(_SUPPORTED)}."
            raise refusal(f"has the keyword {keyword!r}, which has no effect here", hint)
        if (operand == [] and keyword == "enum") or (keyword in _NUMBERS and not math.isfinite(operand)):
            raise refusal(f"has an invalid {keyword}: {operand}", "See JSON Schema 2020-12.")
    properties = schema.get("properties", {})
    for name in properties.keys() - schema.get("required", ()):
        hint = "List it under required: the portal does not know the upstream's default."
        raise refusal(f"does not require {name!r}", hint)
    parts = {**properties, **{key: schema[key] for key in ("items", "additionalProperties") if key in schema}}
    for name, nested in parts.items():
        # `true` explicitly allows any value.
        if nested is not True and not _constrains_type(nested):
            hint = f"Give {name} a type, an enum or a const. With anyOf, give one to each alternative."
            raise refusal(f"allows any type for {name!r}", hint)
    for nested in (*parts.values(), *schema.get("anyOf", ()), *schema.get("allOf", ())):
        _check_schema(nested)


def _constrains_type(schema: Json) -> bool:
    """Whether the schema restricts the type: `maximum` alone accepts every string and list."""
    if isinstance(schema, bool):
        return not schema
    return (
        not schema.keys().isdisjoint(("type", "enum", "const"))
        or ("anyOf" in schema and all(map(_constrains_type, schema["anyOf"])))
        or any(map(_constrains_type, schema.get("allOf", ())))
    )


_MAX_CHARACTERS: Final = 4_096
_MAX_DECODINGS: Final = 5
_MAX_MARKS: Final = 30
"""At most this many combining marks in a row: the time to sort them grows with the square of their number.

Source: Unicode Standard Annex #15, Stream-Safe Text Format.
"""


def decodings(text: str) -> list[str]:
    """The text, and its forms after NFKC and percent-decoding, until neither changes it.

    Empty for a path traversal, for a text that systems decode differently, and where the order of the two matters:
    `%2f` before a combining mark may be a slash, or a letter.
    """
    found = [text]
    while len(found) <= _MAX_DECODINGS + 1 and not _is_traversal(found[-1]):
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


def _hides_another_end(start: str, suffix: str) -> bool:
    """Whether the text before a suffix may move the real end: by a line break, another address or a query."""
    return bool(
        _BREAKS.search(start)
        or ("@" in suffix and re.search("[@,;]", start))
        or (suffix.startswith(".") and re.search("[?#]", start))
    )


_BREAKS: Final = re.compile(r"[\t\n\u2028\u2029]")
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_AUTHORITY: Final = re.compile(r"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{0,40}://")
"""Bounded, because otherwise each letter of a long name is tried as a beginning."""
_ENCODED: Final = re.compile(r"%[uU][0-9A-Fa-f]{4}")
"""An encoding that only some systems decode."""
_SLASHES: Final = re.compile("[\\\\\u2044\u2215\u2216\u29f5\u29f8\u29f9]")
"""Characters that some systems read as a slash. NFKC turns the other ones into slashes."""


def _is_traversal(reading: str) -> bool:
    if len(reading) > _MAX_CHARACTERS or _CONTROLS.search(reading) or _ENCODED.search(reading):
        return True
    runs = groupby(reading, _is_mark) if not reading.isascii() else ()
    if any(is_mark and sum(1 for _ in run) > _MAX_MARKS for is_mark, run in runs):
        return True
    segments = [*map(_segment, _AUTHORITY.sub("", _SLASHES.sub("/", reading), count=1).split("/"))]
    return "." in segments or not all(segments[1:-1])


def _is_mark(character: str) -> bool:
    # NFKC splits each of these three into two marks.
    return unicodedata.combining(character) > 0 or character in "\u0f73\u0f75\u0f81"


def _segment(text: str) -> str:
    """ "." for dots only (also before `;`, `?` or `#`, or among blanks), "" for an empty segment, else "x"."""
    name, *rest = re.split("[;?#]", text, maxsplit=1)
    name = "".join(each for each in name if each.isprintable() and each != " ")
    return ("x" if name.strip(".") else ".") if name else "x" * bool(rest)


def _is_met(comparison: str, operand: Json, value: Json) -> bool:
    if comparison in _OF_TEXTS:
        read = decodings(value) if isinstance(value, str) else []
        if comparison == "prefix":
            return bool(read) and all(each.startswith(operand) for each in read)
        ends = (
            each.endswith(operand) and not _hides_another_end(each.removesuffix(operand), operand)
            for each in read
        )
        return bool(read) and all(ends)
    if comparison in ("min", "max"):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and (value >= operand if comparison == "min" else value <= operand)
    # As in JSON, 1 equals 1.0, and a boolean is not a number.
    operands = operand if comparison == "one_of" else [operand]
    return any(isinstance(value, bool) is isinstance(each, bool) and bool(value == each) for each in operands)


@dataclass(frozen=True)
class ArgumentCondition:
    """The `where` and the `schema` of one rule; false if it has neither."""

    where: Mapping[str, Comparison] = field(default_factory=dict)
    schema: Json = None

    def __bool__(self) -> bool:
        return bool(self.where) or self.schema is not None

    def __str__(self) -> str:
        parts = [f"{name[:_SHOWN]} must {_demand(comparison)}" for name, comparison in self.where.items()]
        return "; ".join(
            [*parts, "the arguments must match the schema"] if self.schema is not None else parts
        )

    def violation(self, arguments: Mapping[str, Json], max_steps: int) -> str:
        """How the arguments violate the condition, with the value and what is allowed; "" if they do not.

        `arguments` have the tool's own names, as they would be sent. The schema takes at most `max_steps`.
        """
        names = {name.casefold(): name for name in arguments}
        if other := next((each for each in arguments if names[each.casefold()] != each), ""):
            # Go reads JSON so, and takes the last one.
            last = names[other.casefold()]
            return f"{last[:_SHOWN]} may be taken for {other[:_SHOWN]} by a server that ignores case"
        for name, demanded in self.where.items():
            if name not in arguments:
                return f"{name[:_SHOWN]} is missing; it must {_demand(demanded)}"
            value = arguments[name]
            if unmet := next((each for each in demanded.operands.items() if not _is_met(*each, value)), None):
                is_text = unmet[0] in _OF_TEXTS and isinstance(value, str)
                plainly = ", also after decoding, and must contain no path traversal" if is_text else ""
                return f"{name[:_SHOWN]} is {_cut(value)}; it must {_demand(demanded)}{plainly}"
        if self.schema is None:
            return ""
        findings = self._validator.validate(arguments, max_steps, most=1)
        if findings.errors:
            return "the arguments do not match the schema"
        return "" if findings.is_complete else TOO_MUCH

    @cached_property
    def _validator(self) -> SchemaValidator:
        return SchemaValidator(self.schema)


def _demand(comparison: Comparison) -> str:
    return " and ".join(_WORDS[name].format(_cut(operand)) for name, operand in comparison.operands.items())


def _cut(value: Json) -> str:
    if isinstance(value, str):  # the repr of a long one would be expensive
        value = value[: _SHOWN + 1]
    if isinstance(value, list | dict):
        text = f"{'a list' if isinstance(value, list) else 'an object'} of {len(value):,}"
    elif isinstance(value, int) and value.bit_length() > 4 * _SHOWN:
        text = "an integer of many digits"
    else:
        text = ", ".join(map(repr, value)) if isinstance(value, tuple) else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
