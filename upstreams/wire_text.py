"""JSON text from strangers, made fit for a strict parser; and what can be saved of text that is not."""

import re
from typing import Final

MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
"""One message of an upstream (a line on stdio, a body or an event on HTTP). A longer one is skipped and its
call gets an error; the connection goes on."""

# JavaScript servers that cut a text inside an emoji send half a surrogate pair; strict parsers refuse it and
# UTF-8 cannot carry it. A doubled backslash is matched first, so that an escaped "\\ud800" stays text.
_ESCAPES: Final = re.compile(
    rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)

# The SDK's parser takes integers of at most 4,300 digits, and one longer would cost the whole message. Texts are
# matched first, so that digits in them stay as they are.
_TEXT_OR_LONG_INTEGER: Final = re.compile(
    rb'"[^"\\]*(?:\\.[^"\\]*)*"?|(?<![\d.eE+])(-?\d{4301,}+)(?![.eE])', re.DOTALL
)

# Every 100th byte of 4,301 digits makes 43 in a row: a look at those tells quickly whether there is such an integer.
_STRIDE: Final = 100
_SAMPLED_DIGITS: Final = re.compile(rb"\d{43}")

# Serialisers write the id first (Python) or last (JavaScript).
_LEADING_ID: Final = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,18})\s*,')
_TRAILING_ID: Final = re.compile(rb',\s*"id"\s*:\s*(\d{1,18})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')


def mended(text: bytes) -> bytes:
    """The same JSON, fit for the SDK's parser.

    Every half surrogate and every byte that is no UTF-8 becomes U+FFFD, every integer of more than 4,300 digits the
    text of its digits.
    """
    if b"\\ud" in text or b"\\uD" in text:
        text = _ESCAPES.sub(lambda match: rb"\ufffd" if match[1] else match[0], text)
    if _SAMPLED_DIGITS.search(text[::_STRIDE]):
        text = _TEXT_OR_LONG_INTEGER.sub(lambda match: b'"%b"' % match[1] if match[1] else match[0], text)
    if text.isascii():
        return text
    return text.decode("utf-8", "replace").encode()


def answered_id(head: bytes, tail: bytes) -> int | None:
    """The id of the request that unreadable text answers, from its first and last bytes."""
    match = _LEADING_ID.match(head) or _TRAILING_ID.search(tail)
    return int(match[1]) if match else None


def one_line(text: str) -> str:
    """The text for a human, with spaces for what is not printable."""
    return "".join(character if character.isprintable() else " " for character in text)
