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

# Serialisers write the id first (Python) or last (JavaScript).
_LEADING_ID: Final = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,18})\s*,')
_TRAILING_ID: Final = re.compile(rb',\s*"id"\s*:\s*(\d{1,18})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')


def mended(text: bytes) -> bytes:
    """The same JSON with every half surrogate and every byte that is no UTF-8 replaced by U+FFFD."""
    if b"\\ud" in text or b"\\uD" in text:
        text = _ESCAPES.sub(lambda match: rb"\ufffd" if match[1] else match[0], text)
    if text.isascii():
        return text
    return text.decode("utf-8", "replace").encode()


def answered_id(head: bytes, tail: bytes) -> int | None:
    """The id of the request that unreadable text answers, from its first and last bytes."""
    match = _LEADING_ID.match(head) or _TRAILING_ID.search(tail)
    return int(match[1]) if match else None


def excerpt(text: bytes, limit: int = 120) -> str:
    """The start of a line for a human: one line, printable, at most `limit` characters."""
    shown = text[: limit * 4].decode("utf-8", "replace").strip()
    shown = "".join(character if character.isprintable() else " " for character in shown)
    return shown if len(shown) <= limit else shown[:limit] + "…"
