"""How large JSON is, measured without building anything of that size."""

import re
from typing import Final

from manifests.json_value import Json

MAX_VALUES: Final = 4_000_000
"""Of the text of one message, a list or an object counting eight times, a key twice: building them takes the portal up
to a second, in which nobody else is served. Ten MiB of objects with ten short members have fewer."""

_MOST_OF_A_BYTE: Final = 8
_PIECE_BYTES: Final = 256 * 1024
_NO_MARKS: Final = bytes(set(range(256)) - set(b'[{:,"'))
_BACKSLASHES: Final = re.compile(rb"\\*+")


def is_larger(value: Json, characters: int) -> bool:
    """Whether it has more characters of text, and values, than that; it looks at no more of them."""
    todo = [value]
    while todo and characters >= 0:
        each = todo.pop()
        if isinstance(each, str | list | dict):
            characters -= len(each)
        characters -= 1
        if isinstance(each, list | dict) and characters >= 0:
            todo += each if isinstance(each, list) else [*each, *each.values()]
    return characters < 0


def has_too_many_values(text: bytes) -> bool:
    """Whether reading JSON text would build more than `MAX_VALUES`."""
    return len(text) * _MOST_OF_A_BYTE > MAX_VALUES and values_in(text) > MAX_VALUES


def values_in(text: bytes) -> int:
    """About how many values JSON text has, weighed as for `MAX_VALUES`, and exact enough where that matters.

    At most twice, and in pieces, because each look at 64 MiB takes time, too.
    """
    most = 0
    for start in range(0, len(text), _PIECE_BYTES):
        most += _weighed(text[start : start + _PIECE_BYTES])
        if most > MAX_VALUES:
            return _values_outside_of_strings(text)
    return most


def _values_outside_of_strings(text: bytes) -> int:
    values, start, is_string = 0, 0, False
    while start < len(text) and values <= MAX_VALUES:
        backslashes = _BACKSLASHES.match(text, start + _PIECE_BYTES)
        assert backslashes
        end = backslashes.end() + 1  # so that what a backslash belongs to is in the same piece
        piece = text[start:end]
        parts = piece.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        values += _weighed(b"".join(parts[is_string::2])) + len(parts) // 2
        is_string ^= len(parts) % 2 == 0
        start = end
    return values


def _weighed(text: bytes) -> int:
    marks = text.translate(None, _NO_MARKS)
    opened = marks.count(b"[") + marks.count(b"{")
    return _MOST_OF_A_BYTE * opened + marks.count(b":") + marks.count(b",") + marks.count(b'"') // 2
