"""Whether a value that stands where a list is wanted is one item of it for certain, and no list in itself."""

import re
from typing import Final

from manifests.json_value import Json

# The second and the third line are the commas, semicolons and bullets of other scripts.
_SEPARATORS: Final = re.compile(
    r"[,;|\n\r\t\[\]{}]|%2c|"
    r"[\u00b7\u055d\u060c\u061b\u06d4\u07f8\u0964\u1363\u1802\u2022\u2023\u2219\u25cf\u3001\u30fb]|"
    r"[\ufe10\ufe11\ufe14\ufe50\ufe51\ufe54\uff0c\uff1b\uff5c\uff64\uff65]|"
    r"\s(?:[&+/]|and|or|und|oder|et|ou|y|o|e|и|или|と|や)\s|[和与或與및]",
    re.IGNORECASE,
)
_WORD: Final = re.compile(r"[^\W\d_]+(?:['’.-][^\W\d_]+)*[.!?]?")
_ENUMERATED: Final = re.compile(r"(?:[-*+]|\d+[.)])\s")
_ENCLOSED: Final = re.compile(r"([\"'`]).*\1|\(.*\)|“.*”|«.*»|„.*", re.DOTALL)
_NOTHING: Final = frozenset({"", "-", "--", "n/a", "na", "nil", "none", "null", "undefined"})


def is_single(value: Json, items: Json) -> bool:
    """Whether it is; `items` is the subschema of the list's items, whose own values are never taken apart."""
    if isinstance(value, dict):
        return not all(isinstance(each, dict) for each in value.values())  # items by their names, or none
    if isinstance(value, str) and not (isinstance(items, dict) and value in items.get("enum", ())):
        return not _may_be_several(value.strip())
    return value is not None


def _may_be_several(text: str) -> bool:
    """Whether a text may be a list, written in one way or another, or stand for an empty one.

    Of the words of a phrase, `needs review`, none is an item; of `#bug #ui` or `A-1 A-2` each may be.
    """
    parts = text.split()
    if text.casefold() in _NOTHING or _SEPARATORS.search(text) or _ENUMERATED.match(text):
        return True
    return _ENCLOSED.fullmatch(text) is not None or (
        len(parts) > 1 and not any(_WORD.fullmatch(part) for part in parts)
    )
