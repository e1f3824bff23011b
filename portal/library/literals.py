"""JSON values as Python source: only what `repr` makes, so no text of an upstream is ever code."""

import math

from manifests.json_value import Json

LONGEST_STRING = 200
"""Characters of a string that may stand in a `Literal`."""

LONGEST_DEFAULT = 40
"""Characters of a default that a signature shows."""

_MOST_BITS = 1_024
_VARIATION_SELECTORS = {code: f"\\u{code:04x}" for code in range(0xFE00, 0xFE10)}


def is_literal(value: Json) -> bool:
    """Whether `typing.Literal` takes the value, and it is short enough to be read."""
    if isinstance(value, str):
        return len(value) <= LONGEST_STRING
    if isinstance(value, bool) or value is None:
        return True
    return isinstance(value, int) and value.bit_length() <= _MOST_BITS


def literal_text(value: Json) -> str:
    """The source of a literal; `repr` escapes controls, bidi, zero-width characters and lone surrogates."""
    return repr(value).translate(_VARIATION_SELECTORS) if isinstance(value, str) else repr(value)


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
