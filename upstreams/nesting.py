"""Tools nested so deep that no reader of JSON takes the listing they are in: cut where it is too deep to matter.

The SDK's parser gives up a whole message of which one part is nested 200 levels deep. A tool definition that is costs
what lies deepest in it, not its neighbours. What tools answer is never cut.
"""

import re
from typing import Final

from pydantic_core import from_json

from upstreams.steps import STEP_ITEMS, Steps, last_place

MAX_LEVELS: Final = 128
"""Lists and objects within one another that are kept of a message with tools; the library reads fewer still."""

MAX_TOKENS: Final = 2_000_000
"""Texts, brackets and what is between them of a message that is looked at: a second's work. One with more stays."""

MAX_BYTES: Final = 8 * 1024 * 1024
"""Of the same, because a text of some megabytes takes a step by itself."""

_TOOLS: Final = b'"tools"'
_PLACE: Final = [b'"result"', _TOOLS]
_TOKEN: Final = re.compile(rb'("(?:[^"\\]++|\\.)*+"?+)\s*+(:?)|[\[\]{}]|[^"\[\]{}]{1,65536}+', re.DOTALL)


def shallow(message: bytes) -> Steps[bytes]:
    """The same JSON-RPC message; in the tools of a listing, what is nested too deep is an empty object or list."""
    if _TOOLS not in message or not _is_too_deep(message):
        return message
    return (yield from without_deep_tools(message))


def _is_too_deep(message: bytes) -> bool:
    try:
        from_json(message)
    except ValueError as error:
        return says_too_deep(error)
    return False


def says_too_deep(error: ValueError) -> bool:
    """Whether a text was not read because it is nested too deep."""
    return "recursion" in str(error)


def without_deep_tools(message: bytes) -> Steps[bytes]:
    """The same of a message that is known to be nested too deep; itself where that is elsewhere."""
    if len(message) > MAX_BYTES or (yield from last_place(message, _TOOLS)) < 0:
        return message
    pieces = yield from _pieces(message)
    return message if pieces is None else b"".join(pieces)


def _pieces(message: bytes) -> Steps[list[bytes] | None]:
    """What is left of a message; None if it is too long."""
    pieces: list[bytes] = []
    keys: list[bytes] = []
    depth, kept_to, cut_from = 0, 0, 0
    for number, token in enumerate(_TOKEN.finditer(message)):
        if number > MAX_TOKENS:
            return None
        if number % STEP_ITEMS == STEP_ITEMS - 1:
            yield
        text = token[0]
        if text in (b"{", b"["):
            depth += 1
            if depth == MAX_LEVELS + 1 and keys == _PLACE:
                cut_from = token.end()
        elif text in (b"}", b"]"):
            if cut_from and depth == MAX_LEVELS + 1:
                pieces.append(message[kept_to:cut_from])
                kept_to, cut_from = token.start(), 0
            depth -= 1
        elif token[2] and depth <= len(_PLACE):
            keys[max(0, depth - 1) :] = [token[1]]
    return [*pieces, message[kept_to:]]
