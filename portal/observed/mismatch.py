"""Where a result is not what its tool declares. Told, and never a reason to reject it: one real result in thirteen."""

from collections.abc import Iterator
from typing import Final

from manifests.json_value import Json
from portal.library.function import Function
from portal.library.plain_text import one_line
from portal.library.schema.inspection import Path, Violation
from portal.library.schema.json_kinds import kind_of, kind_words
from portal.library.schema.rules import LACKS
from portal.library.schema.violations import violations
from portal.observed.field_names import is_field_name

LONGEST_MISMATCH: Final = 200
MAX_STEPS: Final = 2_000
"""Subschemas that are held against one result, which takes a millisecond; what lies beyond counts as right."""

_MOST_PLACES: Final = 3


def mismatch(function: Function, value: Json) -> str:
    """Where and how a result does not fit, at three places at most and without any value of it; "" if it fits."""
    found = violations(function.results, value, max_steps=MAX_STEPS)
    told = dict.fromkeys(_told(each, value) for each in found)
    return one_line("; ".join([*told][:_MOST_PLACES]), LONGEST_MISMATCH)


def _told(violation: Violation, value: Json) -> str:
    place = "".join(_steps(violation.path)) or "it"
    if violation.message.startswith(LACKS):  # what it lacks are names of the schema
        return f"{place} {violation.message}"
    for step in violation.path:
        value = value[step]
    return f"{place} is {kind_words([kind_of(value)])} that the schema does not take"


def _steps(path: Path) -> Iterator[str]:
    """Where in a result: indices are left out, and keys that are data."""
    for step in path:
        yield "[]" if isinstance(step, int) else f"[{step!r}]" if is_field_name(step) else "[...]"
