"""How large JSON is, measured without building anything of that size."""

from typing import Final

from manifests.json_value import Json
from upstreams.steps import STEP_BYTES, Steps

MAX_VALUES: Final = 4_000_000
"""Of the text of one message, a list or an object counting eight times, a key twice: building them takes up to a second
of the portal's time. Ten MiB of objects with ten short members have fewer."""

_MOST_OF_A_BYTE: Final = 8
_CLOSER_LOOK_BYTES: Final = STEP_BYTES // 4
"""Of one step of that: a text may be nothing but quotes."""

_NO_MARKS: Final = bytes(set(range(256)) - set(b'[{:,"'))


def is_larger(value: Json, characters: int, most_values: int | None = None) -> bool:
    """Whether it has more characters of text, and values, than that, or more values; it looks at no more of them."""
    todo = [value]
    left = characters if most_values is None else most_values
    while todo and characters >= 0 and left >= 0:
        each = todo.pop()
        characters -= 1
        left -= 1
        if isinstance(each, str):
            characters -= len(each)
        elif isinstance(each, list | dict):
            characters -= len(each)
            if characters < 0 or len(each) > left:
                return True
            todo += each if isinstance(each, list) else [*each, *each.values()]
    return characters < 0 or left < 0


def has_too_many_values(text: bytes) -> Steps[bool]:
    """Whether reading JSON text would build more than `MAX_VALUES`, counted as exactly as that matters.

    At most twice, because each look at 64 MiB takes time, too.
    """
    if len(text) * _MOST_OF_A_BYTE <= MAX_VALUES:
        return False
    most = 0
    for start in range(0, len(text), STEP_BYTES):
        most += _weighed(text[start : start + STEP_BYTES])
        if most > MAX_VALUES:
            return (yield from _has_too_many_outside_of_strings(text))
        yield
    return False


def _has_too_many_outside_of_strings(text: bytes) -> Steps[bool]:
    values, start, is_string = 0, 0, False
    while start < len(text):
        end = end_of_piece(text, start, _CLOSER_LOOK_BYTES)
        parts = without_escapes(text[start:end]).split(b'"')
        values += _weighed(b"".join(parts[is_string::2])) + len(parts) // 2
        if values > MAX_VALUES:
            return True
        is_string ^= len(parts) % 2 == 0
        start = end
        yield
    return False


def end_of_piece(text: bytes, start: int, most_bytes: int) -> int:
    """Where a piece of JSON ends that takes one step; what a backslash belongs to is in the same piece."""
    end = min(start + most_bytes, len(text))
    piece = text[start:end]
    return end + (len(piece) - len(piece.rstrip(b"\\"))) % 2


def without_escapes(piece: bytes) -> bytes:
    """The same, as long as before, in which each quote begins or ends a string."""
    return piece.replace(rb"\\", b"__").replace(rb"\"", b"__") if b"\\" in piece else piece


def _weighed(text: bytes) -> int:
    marks = text.translate(None, _NO_MARKS)
    opened = marks.count(b"[") + marks.count(b"{")
    return _MOST_OF_A_BYTE * opened + marks.count(b":") + marks.count(b",") + marks.count(b'"') // 2
