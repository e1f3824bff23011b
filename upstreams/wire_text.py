"""JSON text from strangers, made fit for a strict parser; and what can be saved of text that is not."""

import re
from codecs import getincrementaldecoder
from collections.abc import Iterator
from typing import Final

from upstreams.steps import STEP_BYTES, STEP_ITEMS, Steps

MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
"""One message of an upstream (a line on stdio, a body or an event on HTTP). A longer one is skipped and its
call gets an error; the connection goes on."""

END_BYTES: Final = 4096
"""Of the beginning and the end of a message that cannot be read, which say what it answers."""

# JavaScript servers that cut a text inside an emoji send half a surrogate pair; strict parsers refuse it and
# UTF-8 cannot carry it. Behind a doubled backslash an escaped "\\ud800" stays text.
_HALF: Final = rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
_PAIR: Final = rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_WHOLE: Final = rb"[^\\]{1,64}+|(?!%b)\\[^\\]|\\\\|%b" % (_HALF, _PAIR)
_WHOLE_AND_HALF: Final = re.compile(rb"(?:%b){0,%d}+((?!%b)%b)?+" % (_WHOLE, STEP_ITEMS, _PAIR, _HALF))
"""No more of it than can be looked at in one step."""

_ESCAPES_BYTES: Final = STEP_BYTES // 4
"""Of escapes, in one step."""

MAX_HALVES: Final = 1_000_000
"""Of the half surrogates of one message that are mended; with more it stays unreadable, for that takes time, too."""

# The SDK's parser takes integers of at most 4,300 digits, and one longer would cost the whole message.
_LONG_INTEGER: Final = re.compile(rb"[0-9](?<![0-9.eE+].)(?<![eE]-.)[0-9]{4300,}+(?![.eE])")

# Every 100th byte of 4,301 digits makes 43 in a row: a look at those tells quickly whether there is such an integer.
_STRIDE: Final = 100
_MAX_INTEGER_BYTES: Final = 4 * STEP_BYTES
_SAMPLED_DIGITS: Final = re.compile(rb"\d{43}")

# Serialisers write the id first (Python) or last (JavaScript).
_LEADING_ID: Final = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,18})\s*,')
_TRAILING_ID: Final = re.compile(rb',\s*"id"\s*:\s*(\d{1,18})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')


def mended(text: bytes) -> Steps[bytes]:
    """The same JSON, fit for the SDK's parser.

    Every half surrogate and every byte that is no UTF-8 becomes U+FFFD, every integer of more than 4,300 digits the
    text of its digits, unless the text is longer than a few steps.
    """
    if b"\\ud" in text or b"\\uD" in text:
        text = yield from _without_halves(text)
    if len(text) <= _MAX_INTEGER_BYTES and _SAMPLED_DIGITS.search(text[::_STRIDE]):
        text = b"".join(_with_quoted_integers(text))
    if text.isascii():
        return text
    return b"".join((yield from _in_utf8(text)))


def _without_halves(text: bytes) -> Steps[bytes]:
    whole = bytearray()
    kept_to = at = stepped_at = halves = 0
    while halves < MAX_HALVES and (found := _WHOLE_AND_HALF.match(text, at)) and found.end() > at:
        at = found.end()
        if found[1]:
            whole += text[kept_to : found.start(1)]
            whole += rb"\ufffd"
            kept_to = at
            halves += 1
        if at - stepped_at >= _ESCAPES_BYTES:
            stepped_at = at
            yield
    return bytes(whole) + text[kept_to:] if kept_to else text


def _in_utf8(text: bytes) -> Steps[list[bytes]]:
    """Its pieces."""
    decoder = getincrementaldecoder("utf-8")("replace")
    pieces: list[bytes] = []
    for start in range(0, len(text), STEP_BYTES):
        if start:
            yield
        piece = text[start : start + STEP_BYTES]
        pieces.append(decoder.decode(piece, final=start + STEP_BYTES >= len(text)).encode())
    return pieces


def _with_quoted_integers(text: bytes) -> Iterator[bytes]:
    """Its pieces; every long integer outside of strings has become one."""
    kept_to, is_string = 0, False
    for found in _LONG_INTEGER.finditer(text):
        start = found.start() - (text[found.start() - 1 : found.start()] == b"-")
        before, integer = text[kept_to:start], text[start : found.end()]
        quotes = before.replace(b"\\\\", b"").replace(b'\\"', b"").count(b'"')
        is_string ^= quotes % 2 == 1
        yield before
        yield integer if is_string else b'"%b"' % integer
        kept_to = found.end()
    yield text[kept_to:]


def answered_id(head: bytes, tail: bytes) -> int | None:
    """The id of the request that unreadable text answers, from its first and last bytes."""
    match = _LEADING_ID.match(head) or _TRAILING_ID.search(tail)
    return int(match[1]) if match else None


def one_line(text: str) -> str:
    """The text for a human, with spaces for what is not printable."""
    return "".join(character if character.isprintable() else " " for character in text)
