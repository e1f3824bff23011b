"""Values as messages show them: enough to recognise, never whole."""

from collections.abc import Iterable
from itertools import islice

from manifests.json_value import Json
from portal.library.plain_text import cut, visible

LONGEST_VALUE = 80
"""Characters of one value."""

_MOST_LISTED = 12


def value_text(value: Json) -> str:
    """A value in Python's notation: scalars cut, containers by what they hold."""
    if isinstance(value, str):
        return cut(visible(repr(value[: 2 * LONGEST_VALUE])), LONGEST_VALUE)
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return f"a dict with {listing(value)}" if value else "an empty dict"
    if isinstance(value, int) and value.bit_length() > 250:
        return "a very large int"
    return repr(value)


def listing(values: Iterable[Json]) -> str:
    """The first dozen values, and whether there are more."""
    shown = [value_text(value) for value in islice(values, _MOST_LISTED + 1)]
    more = ", …" if len(shown) > _MOST_LISTED else ""
    return ", ".join(shown[:_MOST_LISTED]) + more
