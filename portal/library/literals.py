"""JSON values as Python source: only what `repr` makes, so no text of an upstream is ever code."""

import math
import re

from manifests.json_value import Json
from portal.library.hidden_characters import is_hidden

LONGEST_STRING = 200
"""Characters of a string that may stand in a `Literal`."""

LONGEST_DEFAULT = 40
"""Characters of a default that a signature shows."""

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_MOST_BITS = 63  # mypy takes no larger ones


def is_literal(value: Json) -> bool:
    """Whether `typing.Literal` takes the value, and it is short enough to be read."""
    if isinstance(value, str):
        return len(value) <= LONGEST_STRING and not _LONE_SURROGATE.search(value)
    if isinstance(value, bool) or value is None:
        return True
    return isinstance(value, int) and value.bit_length() <= _MOST_BITS


def literal_text(value: Json) -> str:
    """The source of a literal; what cannot be seen (controls, bidi, zero-width characters) is escaped."""
    source = repr(value)
    if source.isascii():
        return source
    return "".join(f"\\U{ord(each):08x}" if is_hidden(each) else each for each in source)


def default_text(value: Json) -> str | None:
    """A declared default as a signature shows it, or None if it is not simple enough."""
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)
    if isinstance(value, list | dict):
        return repr(value) if not value else None
    if isinstance(value, float) or not is_literal(value):
        return None
    text = literal_text(value)
    return text if len(text) <= LONGEST_DEFAULT else None
