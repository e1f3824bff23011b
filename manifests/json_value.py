"""The one name for "any JSON value", reading long ones, and holding one against a JSON Schema.

`jsonschema` validates, in bounded time: of schema and value, each may be written by a stranger. Keywords that can take
long are not applied (`pattern`, `patternProperties`, `format`, `uniqueItems`), nor `multipleOf`, for which 19.99 is no
multiple of 0.01. Schemas have to be sound (`portal.library.schema`, `manifests.conditions`).

Source: JSON Schema 2020-12, validation.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from functools import cache, cached_property
from itertools import islice
from typing import Any, Final, TypeAlias

Json: TypeAlias = Any
"""None, bool, int, float, str, list of Json, or dict of str to Json."""


_FEW_BYTES: Final = 4 * 1024


@contextmanager
def no_collection(size: int) -> Iterator[None]:
    """Collect nothing while a text of so many bytes or characters is read."""
    if size < _FEW_BYTES or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


SoundNode: TypeAlias = dict[str, Any] | bool
"""A schema whose operands make sense; the operand of `$ref` is a `Reference`."""

_KEYWORDS: Final = (
    *("type", "enum", "const", "allOf", "anyOf", "oneOf", "not", "minimum", "maximum", "exclusiveMinimum"),
    *("exclusiveMaximum", "properties", "additionalProperties", "required", "minProperties", "maxProperties"),
    *("items", "prefixItems", "minItems", "maxItems", "minLength", "maxLength"),
)
_PARTS_A_STEP: Final = 64
_CHARACTERS_A_STEP: Final = 32


class Unknown(Enum):
    """The type of `UNKNOWN`."""

    UNKNOWN = "unknown"


UNKNOWN: Final = Unknown.UNKNOWN
"""Stands for a value, or a part of one, that nobody knows yet: it breaks no schema."""


@dataclass(eq=False, slots=True)
class Reference:
    """Where a `$ref` leads; `name` is its JSON pointer, `schema` is filled in when that place was read."""

    name: str
    schema: SoundNode = True


SchemaError: TypeAlias = Any
"""A `jsonschema.ValidationError`, whose stubs take every operand for one that may be missing. `validator` is a keyword,
`validator_value` its operand, `instance` the value that does not fit."""


@dataclass(frozen=True)
class Findings:
    """What is wrong with a value; `is_whole` is False if there was more of it than may be looked at."""

    errors: list[SchemaError]
    is_whole: bool = True


@dataclass(frozen=True, eq=False)
class SchemaValidator:
    """Validates against one schema; what that takes to prepare is done when it is first used."""

    root: SoundNode

    def look_at(self, value: Json, max_steps: int, most: int = 5) -> Findings:
        """Hold a value against the schema, for at most so many errors and in at most so many
        steps: uses of a keyword on a value, 5 us each.
        """
        errors: list[SchemaError] = []
        token = _steps_left.set([max_steps])
        try:
            errors.extend(islice(self._validator.iter_errors(value), most))
        except (_TooManyStepsError, RecursionError):  # the second one: schema and value are nested too deeply
            return Findings(errors, is_whole=False)
        finally:
            _steps_left.reset(token)
        return Findings(errors)

    @cached_property
    def _validator(self) -> Any:
        return _validator_class()(self.root)


class _TooManyStepsError(Exception):
    """There is more to look at than may be."""


_steps_left: ContextVar[list[int]] = ContextVar("steps_left")

_Keyword: TypeAlias = Callable[[Any, Any, Any, Any], Iterator[Any]]
"""Of a validator, the keyword's operand, a value, and the schema that has the keyword."""


@cache
def _validator_class() -> Any:
    from jsonschema import Draft202012Validator  # takes 40 ms
    from jsonschema.validators import create

    keywords = {word: _counted(Draft202012Validator.VALIDATORS[word]) for word in _KEYWORDS}
    keywords["$ref"] = _counted(lambda validator, to, value, _: validator.descend(value, to.schema))
    return create({}, keywords, type_checker=Draft202012Validator.TYPE_CHECKER)


def _counted(keyword: _Keyword) -> _Keyword:
    """The keyword, counting what it costs: its own use, the parts it compares, and the messages it makes."""

    def counted(validator: Any, operand: Any, value: Json, schema: Any) -> Iterator[Any]:
        if value is UNKNOWN:
            return
        sizes = [len(each) for each in (operand, value) if isinstance(each, list | dict)]
        _take(1 + sum(sizes) // _PARTS_A_STEP)
        for error in keyword(validator, operand, value, schema) or ():
            _take(len(error.message) // _CHARACTERS_A_STEP)
            yield error

    return counted


def _take(steps: int) -> None:
    left = _steps_left.get()
    left[0] -= steps
    if left[0] < 0:
        raise _TooManyStepsError
