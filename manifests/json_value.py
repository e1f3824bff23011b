"""The type of any JSON value, and validation against a JSON Schema.

`jsonschema` validates in bounded time, because the schema and the value may be untrusted. Slow keywords are not applied
(`pattern`, `patternProperties`, `format`, `uniqueItems`), nor is `multipleOf`, for which 19.99 is not a multiple of
0.01. Schemas have to be sound (`portal.library.schema`, `manifests.conditions`).

Source: JSON Schema 2020-12, validation.
"""

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from functools import cache, cached_property
from itertools import islice
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
_NOT_PLAIN: Final = {*_KEYWORDS, "$ref"} - {"type", "properties", "required", "additionalProperties"}
_NAMES: Final = ("null", "boolean", "string", "integer", "number", "array", "object")
KINDS: Final = dict(zip((type(None), bool, str, int, float, list, dict), _NAMES, strict=True))
"""The name in JSON Schema of each Python type that JSON becomes."""

_PARTS_A_STEP: Final = 64
_CHARACTERS_A_STEP: Final = 32
_MAX_DEPTH: Final = 200
"""Keywords inside each other, three frames each. At Python's limit a library below panics, which nothing can catch."""


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
    """Validates against one schema, which is prepared on first use."""

    root: SoundNode

    def validate(self, value: Json, max_steps: int, most: int = 5) -> Findings:
        """Validate a value: at most `most` errors in at most `max_steps`, each one keyword on one value (5 us)."""
        errors: list[SchemaError] = []
        if _fits_plainly(value, self.root):
            return Findings(errors)
        token = _steps_left.set([max_steps, _MAX_DEPTH])
        try:
            errors.extend(islice(self._validator.iter_errors(value), most))
        except (_TooManyStepsError, RecursionError):  # RecursionError: schema and value are nested too deeply
            return Findings(errors, is_complete=False)
        finally:
            _steps_left.reset(token)
        return Findings(errors)

    @cached_property
    def _validator(self) -> Any:
        return _validator_class()(self.root)


def _fits_plainly(value: Json, schema: SoundNode) -> bool:
    """Whether a value certainly fits a schema without other keywords, as most arguments do.

    It takes a sixth of the time of a walk. Lists are not looked into, so there is no need to count steps.
    """
    if not isinstance(schema, dict) or not schema.keys().isdisjoint(_NOT_PLAIN):
        return schema is True
    if "type" in schema and KINDS.get(type(value), "unknown") not in schema["type"]:
        return False
    if not isinstance(value, dict):
        return True
    known = schema.get("properties", {})
    if "additionalProperties" in schema and not value.keys() <= known.keys():
        return False
    if not all(key in value for key in schema.get("required", ())):
        return False
    return all(_fits_plainly(each, known[key]) for key, each in value.items() if key in known)


class _TooManyStepsError(Exception):
    """The validation exceeds its limit of steps or of depth."""


_steps_left: ContextVar[list[int]] = ContextVar("steps_left")

_Keyword: TypeAlias = Callable[[Any, Any, Any, Any], Iterator[Any]]
"""Called with the validator, the keyword's operand, the value, and the schema that has the keyword."""


@cache
def _validator_class() -> Any:
    from jsonschema import Draft202012Validator  # takes 40 ms
    from jsonschema.validators import create

    keywords = {word: _counted(Draft202012Validator.VALIDATORS[word]) for word in _KEYWORDS}
    keywords["$ref"] = _counted(lambda validator, to, value, _: validator.descend(value, to.schema))
    return create({}, keywords, type_checker=Draft202012Validator.TYPE_CHECKER)


def _counted(keyword: _Keyword) -> _Keyword:
    """Count the cost of a keyword: its use, the parts it compares, and the messages it makes."""

    def counted(validator: Any, operand: Any, value: Json, schema: Any) -> Iterator[Any]:
        if value is UNKNOWN:
            return
        sizes = [len(each) for each in (operand, value) if isinstance(each, list | dict)]
        left = _steps_left.get()
        _spend(1 + sum(sizes) // _PARTS_A_STEP)
        left[1] -= 1
        try:
            if left[1] < 0:
                raise _TooManyStepsError
            for error in keyword(validator, operand, value, schema) or ():
                _spend(len(error.message) // _CHARACTERS_A_STEP)
                yield error
        finally:
            left[1] += 1

    return counted


def _spend(steps: int) -> None:
    left = _steps_left.get()
    left[0] -= steps
    if left[0] < 0:
        raise _TooManyStepsError
