"""Whether a value that stands where a list is wanted is one item of it for certain, and no list in itself."""

import re
from collections.abc import Set
from typing import Final

from manifests.json_value import Json

# The second and the third line are the commas, semicolons and bullets of other scripts.
_SEPARATORS: Final = re.compile(
    r"[,;|\[\]{}]|%2c|"
    r"[\u00b7\u055d\u060c\u061b\u06d4\u07f8\u0964\u1363\u1802\u2022\u2023\u2219\u25cf\u3001\u30fb]|"
    r"[\ufe10\ufe11\ufe14\ufe50\ufe51\ufe54\uff0c\uff1b\uff5c\uff64\uff65]|"
    r"\s|[和与或與및]",
    re.IGNORECASE,
)
_ENCLOSED: Final = re.compile(r"([\"'`]).*\1|\w*\(.*\)|“.*”|«.*»|„.*", re.DOTALL)
_NOTHING: Final = frozenset(
    {"", "-", "--", "empty", "false", "n/a", "na", "nil", "none", "nothing", "null", "undefined"}
)


def is_single(value: Json, items: Json, declared: Set[str]) -> bool:
    """Whether it is; `items` is the subschema of the list's items, whose own values are never taken apart.

    An object is one if all of its keys are `declared` for items; else they may be the names of several.
    """
    if isinstance(value, dict):
        return bool(value) and value.keys() <= declared
    if isinstance(value, str) and not (isinstance(items, dict) and value in items.get("enum", ())):
        return not _may_be_several(value.strip())
    return value is not None


def _may_be_several(text: str) -> bool:
    """Whether a text may be a list, written in one way or another, or stand for an empty one.

    `needs review` is one label, `AAPL MSFT` are two symbols, and `npm install` is a command in two parts.
    """
    is_list = _SEPARATORS.search(text) or _ENCLOSED.fullmatch(text)
    return is_list is not None or text.casefold() in _NOTHING
