"""Which keys of an object name its fields, and which are data: ids, addresses, names of people.

A shape is kept on disk and shown to models, and no value of a result may get there as a key. Where in doubt, keys
are data, and the object is a map: that costs a stub some detail, the other mistake gives something away.
"""

import re
from collections import Counter
from collections.abc import Collection
from functools import lru_cache
from typing import Final

LONGEST_NAME: Final = 40

_NAME: Final = re.compile(r"[$@#_]{0,2}[A-Za-z][A-Za-z0-9_-]*\Z")
_DIGITS: Final = re.compile(r"[0-9]+")
_HEX: Final = re.compile(r"[0-9A-Fa-f]{6,}\Z")
_CONSONANTS: Final = re.compile(r"[b-df-hj-np-tv-xzB-DF-HJ-NP-TV-XZ]{7}")
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_MOST_DIGITS: Final = 3
_LONGEST_WORD: Final = 24
_SHORT_WORD: Final = 2.5
_MANY_WORDS: Final = 4
_MANY_ALIKE: Final = 3


@lru_cache(maxsize=4096)
def are_field_names(keys: tuple[str, ...]) -> bool:
    """Whether all keys of an object are names, and not one name with different numbers."""
    return all(map(is_field_name, keys)) and not are_numbered(keys)


def is_field_name(key: str) -> bool:
    """Whether a key reads like a name that a programmer gave: words, at most one short number, no id or token."""
    if len(key) > LONGEST_NAME or not _NAME.match(key):
        return False
    numbers = _DIGITS.findall(key)
    if len(numbers) > 1 or any(len(number) > _MOST_DIGITS for number in numbers):
        return False
    if _HEX.match(key) and (numbers or len(key) > 7):  # `3fa85f`, `deadbeef`; but `facade` is a word
        return False
    words = _WORDS.findall(key)
    if any(len(word) > _LONGEST_WORD or _CONSONANTS.search(word) for word in words):
        return False
    return len(words) < _MANY_WORDS or sum(map(len, words)) / len(words) >= _SHORT_WORD  # not `xKqZbWtRpL`


def known_name(key: str) -> str:
    """The key itself.

    Raises:
        ValueError: It may be data.
    """
    if not is_field_name(key):
        raise ValueError("the key is no name of a field")
    return key


def are_numbered(keys: Collection[str]) -> bool:
    """Whether keys differ only in their numbers: all of them, or three of them."""
    alike = Counter(_DIGITS.sub("0", key) for key in keys if _DIGITS.search(key))
    most = max(alike.values(), default=0)
    return most >= _MANY_ALIKE or (most > 1 and most == len(keys))
