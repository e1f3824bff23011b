"""Where a result is not what its tool declares. Told, and never a reason to reject it: one real result in thirteen."""

from collections.abc import Iterator
from typing import Final

from manifests.json_value import Json
from manifests.schema_validation import SchemaError
from portal.library.arguments import listing, nearest_error
from portal.library.function import Function
from portal.library.plain_text import one_line
from portal.library.schema import kind_of, kind_words
from portal.observed.field_names import is_field_name

LONGEST_MISMATCH: Final = 200
MAX_STEPS: Final = 500
"""Uses of a schema's keyword on one result, some milliseconds; what lies beyond counts as right."""

_MOST_PLACES: Final = 3


def mismatch(function: Function, value: Json) -> str:
    """Where and how a result does not fit, at three places at most and without any value of it; "" if it fits."""
    found = function.results.validator.look_at(value, MAX_STEPS).errors
    told = dict.fromkeys(_told(nearest_error(each)) for each in found)
    return one_line("; ".join([*told][:_MOST_PLACES]), LONGEST_MISMATCH)


def _told(error: SchemaError) -> str:
    place = "".join(_steps(error)) or "it"
    if error.validator == "required":
        return (
            f"{place} lacks {listing(each for each in error.validator_value if each not in error.instance)}"
        )
    return f"{place} is {kind_words([kind_of(error.instance)])} that the schema does not take"


def _steps(error: SchemaError) -> Iterator[str]:
    """Where in a result: indices are left out, and keys that the schema does not name, because they may be data."""
    for step in error.absolute_path:
        is_named = step in error.absolute_schema_path and is_field_name(str(step))
        yield "[]" if isinstance(step, int) else f"[{step!r}]" if is_named else "[...]"
