"""Finds the JSON object at the end of a text that began as something else."""

import re
from itertools import accumulate
from typing import Final

from upstreams.json_size import MAX_VALUES, without_escapes
from upstreams.steps import STEP_BYTES, Steps
from upstreams.wire_text import END_BYTES

_PIECE_BYTES: Final = STEP_BYTES // 4
"""Of one step: a text may be nothing but quotes or brackets."""

_BRACKET: Final = re.compile(rb"[\[\]{}]")
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_LEVELS: Final = bytes.maketrans(b"[{]}", b"\xff\xff\x01\x01")
"""What each bracket adds to the levels when one goes back, as a signed byte."""


def last_object(text: bytes, piece_bytes: int = _PIECE_BYTES, *, before: int | None = None) -> Steps[int]:
    """Where it begins; -1 if the text ends with none, with more values than are read, or with endless backslashes.

    The text is what stands `before` a place, if one is given.

    It is the one whose last bracket the text ends with, so nothing else is tried: each byte is looked at once, from the
    end on, where no string is open. Quotes and brackets in front of the object do not matter.
    """
    end = len(text) if before is None else before
    tail = text[max(0, end - END_BYTES) : end]
    end += len(tail.rstrip()) - len(tail)
    if text[end - 1 : end] != b"}":
        return -1
    levels = looked_at = 0
    is_string = False
    while end > 0 and looked_at <= MAX_VALUES:
        start = max(0, end - piece_bytes)
        start -= _backslashes_before(text, start)
        parts = without_escapes(text[start:end]).split(b'"')
        outside = parts[(len(parts) + is_string + 1) % 2 :: 2]
        brackets = b"".join(outside).translate(_LEVELS, _NO_BRACKETS)
        depths = [*accumulate(memoryview(brackets[::-1]).cast("b"), initial=levels)][1:]
        if depths and min(depths) <= 0:
            return start + _bracket_from_end(parts, depths.index(0), is_string=is_string)
        levels = depths[-1] if depths else levels
        is_string ^= len(parts) % 2 == 0
        looked_at += len(brackets) + len(parts) // 2
        end = start
        if text[end - 1 : end] == b"\\":
            return -1
        if end:
            yield
    return -1


def _backslashes_before(text: bytes, place: int) -> int:
    """How many there are, or `STEP_BYTES`: what they belong to has to be in the same piece."""
    before = text[max(0, place - STEP_BYTES) : place]
    return len(before) - len(before.rstrip(b"\\"))


def _bracket_from_end(parts: list[bytes], number: int, *, is_string: bool) -> int:
    """Where in a piece a bracket outside of strings is, counted from the last one."""
    last = len(parts) - 1
    same_places = [
        b" " * len(part) if (last - index) % 2 != is_string else part for index, part in enumerate(parts)
    ]
    return [found.start() for found in _BRACKET.finditer(b" ".join(same_places))][-1 - number]
