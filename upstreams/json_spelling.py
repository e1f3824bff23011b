"""What the strings of JSON text say, however their characters are spelled, and where it stands in the text."""

import re
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from upstreams.steps import STEP_ITEMS, Steps

QUOTE: Final = b"\xff"
"""Stands for a quotation mark within a string; one that begins or ends a string stays. It is in no UTF-8."""

MOST_ESCAPES: Final = 2_000_000
"""Of one text that are looked at: some seconds' work. A text with more stays unread; see `upstreams.passages` for what
need not be looked at.
"""

SHORT_ESCAPES: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "/": "/", "\\": "\\", '"': '"'}
"""What may stand behind a backslash, and the character that it stands for."""

SHORTS: Final = {meant: short for short, meant in SHORT_ESCAPES.items()}

_MEANINGS: Final = {short.encode(): meant.encode() for short, meant in SHORT_ESCAPES.items()} | {
    b'"': QUOTE,
    QUOTE: QUOTE,  # of a text within, whose backslashes and quotation marks were escaped
}
_HEX: Final = rb"[0-9a-fA-F]"
_HIGH: Final = rb"[dD][89abAB]%b{2}" % _HEX
_LOW: Final = rb"[dD][c-fC-F]%b{2}" % _HEX
_ESCAPE: Final = re.compile(rb'\\(?:u(%b)\\u(%b)|u(%b{4})|([bfnrt/\\"\xff]))' % (_HIGH, _LOW, _HEX))

_Escape: TypeAlias = tuple[int, int, bytes]
"""Where it begins and ends, and what it stands for."""


def any_case(digits: str) -> str:
    """A pattern of these hexadecimal digits in upper and lower case."""
    return re.sub("[a-fA-F]", lambda found: f"[{found[0].lower()}{found[0].upper()}]", digits)


def unescaped(text: bytes) -> Steps[bytes]:
    """The text with each escape replaced by what it stands for; to be looked at, and no JSON any more.

    Raises:
        ValueError: It has more than `MOST_ESCAPES`.
    """
    plain = bytearray()
    kept_to = 0
    for number, (start, end, meaning) in enumerate(_escapes(text), 1):
        plain += text[kept_to:start]
        plain += meaning
        kept_to = end
        if number % STEP_ITEMS == 0:
            yield
        if number > MOST_ESCAPES:
            raise ValueError("more escapes than the portal looks at")
    return bytes(plain) + text[kept_to:]


def places(text: bytes, wanted: Iterable[int]) -> Steps[list[int]]:
    """Where in the text stands what stands there in the unescaped one; `wanted` are in order."""
    found: list[int] = []
    waiting = iter(wanted)
    place = next(waiting, None)
    longer_by = 0
    for number, (start, end, meaning) in enumerate(_escapes(text), 1):
        while place is not None and place + longer_by <= start:
            found.append(place + longer_by)
            place = next(waiting, None)
        if place is None:
            break
        longer_by += end - start - len(meaning)
        if number % STEP_ITEMS == 0:
            yield
    while place is not None:
        found.append(place + longer_by)
        place = next(waiting, None)
    return found


def _escapes(text: bytes) -> Iterator[_Escape]:
    for found in _ESCAPE.finditer(text):
        yield found.start(), found.end(), _meaning(*found.groups())


def _meaning(high: bytes | None, low: bytes | None, unit: bytes | None, short: bytes | None) -> bytes:
    if short is not None:
        return _MEANINGS[short]
    if high is not None and low is not None:
        return bytes.fromhex((high + low).decode()).decode("utf-16-be").encode()
    assert unit is not None
    character = chr(int(unit, 16))
    return QUOTE if character == '"' else character.encode("utf-8", "surrogatepass")
