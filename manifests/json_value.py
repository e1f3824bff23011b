"""The type of any JSON value, and validation against a JSON Schema.

`jsonschema` validates in bounded time, because the schema and the value may be untrusted. Slow keywords are not applied
(`pattern`, `patternProperties`, `format`, `uniqueItems`), nor is `multipleOf`, for which 19.99 is not a multiple of
0.01. Schemas have to be sound (`portal.library.schema`, `manifests.conditions`).

Source: JSON Schema 2020-12, validation.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from itertools import islice
from types import SimpleNamespace
from typing import Any, Final, TypeAlias

Json: TypeAlias = Any
"""None, bool, int, float, str, list of Json, or dict of str to Json."""

SoundNode: TypeAlias = dict[str, Any] | bool
"""A schema with valid operands; the operand of `$ref` is a `Reference`."""

_KEYWORDS: Final = (
    *("type", "enum", "const", "allOf", "anyOf", "oneOf", "not", "minimum", "maximum", "exclusiveMinimum"),
    *("exclusiveMaximum", "properties", "additionalProperties", "required", "minProperties", "maxProperties"),
    *("items", "prefixItems", "minItems", "maxItems", "minLength", "maxLength"),
)
_TYPES: Final = {
    str: frozenset({"string"}),
    bool: frozenset({"boolean"}),
    int: frozenset({"integer", "number"}),
    float: frozenset({"number"}),
    dict: frozenset({"object"}),
    list: frozenset({"array"}),
}
"""The types of JSON Schema that a value of a Python type certainly has."""

_PARTS_A_STEP: Final = 64
_CHARACTERS_A_STEP: Final = 32
_MAX_DEPTH: Final = 200
"""Keywords inside each other, two frames each. At Python's limit a library below panics, which nothing can catch."""


class Unknown(Enum):
    """The type of `UNKNOWN`."""

    UNKNOWN = "unknown"


UNKNOWN: Final = Unknown.UNKNOWN
"""A value, or a part of one, that is not known yet. It matches every schema."""


@dataclass(eq=False, slots=True)
class Reference:
    """The target of a `$ref`; `name` is its JSON pointer, `schema` is set once the target was read.

    Several schemas may refer to a shared one.
    """

    name: str
    schema: SoundNode = True
    is_shared: bool = False


SchemaError: TypeAlias = Any
"""A `jsonschema.ValidationError`, whose stubs make every operand optional. `validator` is the keyword,
`validator_value` its operand, `instance` the invalid value."""


@dataclass(frozen=True)
class Findings:
    """The errors of a value; `is_complete` is False if the step limit ended the validation."""

    errors: list[SchemaError]
    is_complete: bool = True


@dataclass(frozen=True, eq=False)
class SchemaValidator:
    """Validates against one schema."""

    root: SoundNode

    def validate(self, value: Json, max_steps: int, most: int = 5) -> Findings:
        """Validate a value: at most `most` errors in at most `max_steps`, each one keyword on one value (2 us)."""
        errors: list[SchemaError] = []
        if _fits_plainly(value, self.root):
            return Findings(errors)
        try:
            errors.extend(islice(_Descent(max_steps).descend(value, self.root), most))
        except (_TooManyStepsError, RecursionError):  # RecursionError: schema and value are nested too deeply
            return Findings(errors, is_complete=False)
        return Findings(errors)


def _fits_plainly(value: Json, schema: SoundNode) -> bool:
    """Whether a value certainly fits a schema of nothing but these keywords, as most arguments do."""
    if isinstance(schema, bool):
        return schema
    for word, operand in schema.items():
        match word:
            case "type":
                fits = not _TYPES.get(type(value), frozenset()).isdisjoint(operand)
            case "required":
                fits = isinstance(value, dict) and all(each in value for each in operand)
            case "properties":
                fits = isinstance(value, dict) and all(
                    _fits_plainly(each, operand[key]) for key, each in value.items() if key in operand
                )
            case "additionalProperties":
                fits = isinstance(value, dict) and value.keys() <= schema.get("properties", {}).keys()
            case _:
                fits = word not in _KEYWORDS and word != "$ref"
        if not fits:
            return False
    return True


class _TooManyStepsError(Exception):
    """The validation exceeds its limit of steps or of depth."""


_Keyword: TypeAlias = Callable[[Any, Any, Any, Any], Iterator[Any] | None]
"""Called with the validator, the keyword's operand, the value, and the schema that has the keyword."""


class _Descent:
    """One validation within limits. To the keywords of `jsonschema` it is the validator.

    The library's own creates another validator, and a resolver of ids, for each part of a value. Sound schemas have no
    ids.
    """

    def __init__(self, max_steps: int) -> None:
        self._keywords, self._error, self.is_type = _vocabulary()
        self._steps_left, self._levels_left = max_steps, _MAX_DEPTH

    def descend(
        self, instance: Json, schema: SoundNode, path: Any = None, schema_path: Any = None
    ) -> Iterator[SchemaError]:
        """The errors of a value, or of the part of one that is at `path`."""
        if isinstance(schema, bool):
            if not schema:
                message = f"False schema does not allow {instance!r}"
                yield self._error(message, None, validator_value=None, instance=instance, schema=schema)
            return
        for word, operand in schema.items():
            if word not in self._keywords or instance is UNKNOWN:
                continue
            # A keyword costs its use, the parts that it compares, and the messages that it makes.
            sizes = [len(each) for each in (operand, instance) if isinstance(each, list | dict)]
            self._spend(1 + sum(sizes) // _PARTS_A_STEP)
            if not self._levels_left:
                raise _TooManyStepsError
            self._levels_left -= 1
            try:
                for error in self._keywords[word](self, operand, instance, schema) or ():
                    self._spend(len(error.message) // _CHARACTERS_A_STEP)
                    error._set(validator=word, validator_value=operand, instance=instance, schema=schema)
                    error.path.extendleft([] if path is None else [path])
                    where = [] if word == "$ref" else [word]
                    error.schema_path.extendleft(where if schema_path is None else [*where, schema_path])
                    yield error
            finally:
                self._levels_left += 1

    def evolve(self, schema: SoundNode) -> Any:
        """A validator for an alternative."""
        return SimpleNamespace(is_valid=lambda value: next(self.descend(value, schema), None) is None)

    def _spend(self, steps: int) -> None:
        self._steps_left -= steps
        if self._steps_left < 0:
            raise _TooManyStepsError


@cache
def _vocabulary() -> tuple[Mapping[str, _Keyword], Any, Callable[[Any, str], bool]]:
    """The keywords that are applied, the class of their errors, and the test of types."""
    from jsonschema import Draft202012Validator, ValidationError  # takes 40 ms

    keywords = {word: Draft202012Validator.VALIDATORS[word] for word in _KEYWORDS}
    keywords["$ref"] = lambda validator, to, value, _: validator.descend(value, to.schema)
    return keywords, ValidationError, Draft202012Validator.TYPE_CHECKER.is_type
