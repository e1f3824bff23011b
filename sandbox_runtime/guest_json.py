"""Reads JSON that comes from the guest: every way to be hostile is an error here, never a crash further in."""

import json
import re

from pydantic_core import from_json, to_json

from manifests.json_value import Json

_LONE_SURROGATES = re.compile("[\ud800-\udfff]")
# Without an exponent of three digits and 200 digits in a row, no number is beyond a float. To look for those, all
# digits become 0, E becomes e and + is left out: a tenth of a regular expression's time.
_DIGITS_ALIKE = bytes.maketrans(b"123456789E", b"000000000e")
_EXPONENT = b"0e000"
_MANY_DIGITS = b"0" * 200
_PIECE_BYTES = 1 << 16
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


class GuestJsonError(Exception):
    """It is not JSON that the portal can carry; the message says why."""


def parse(text: bytes) -> Json:
    """Parse UTF-8 JSON of at most 200 levels; NaN and infinities become None, lone surrogates U+FFFD.

    Raises GuestJsonError: it is malformed, too deep, or has an integer of more than 4,300 digits.
    """
    shape = text.translate(_DIGITS_ALIKE, b"+")
    may_be_infinite = any(sign in shape for sign in (_EXPONENT, _MANY_DIGITS, b"NaN", b"Infinity"))
    try:
        # A surrogate can only come as an escape, since bytes that encode one are no UTF-8.
        if b"\\ud" in text or b"\\uD" in text:
            text = encode(json.loads(text))
        value: Json = from_json(text)
        return from_json(to_json(value, inf_nan_mode="null")) if may_be_infinite else value
    except (ValueError, RecursionError) as error:
        is_deep = "recursion" in str(error)
        raise GuestJsonError(
            "it is nested more than 200 levels deep" if is_deep else f"it is no JSON: {error}"
        ) from None


def encode(value: Json) -> bytes:
    """JSON for the guest, which reads NaN too, as UTF-8."""
    text = _ENCODER.encode(value)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return clean(text).encode()


def clean(text: str) -> str:
    """Replace lone surrogates, which no encoding of text can carry, by U+FFFD."""
    return _LONE_SURROGATES.sub("\ufffd", text)


def values_in(text: bytes, most: int) -> int:
    """How many values JSON has, at most; more than `most` if they are more than that.

    A value takes up to 300 bytes in memory, whatever it is in the text, and reading it 0.1 us: whoever bounds the
    bytes of hostile JSON has to bound its values, too. Counting takes a few ns per byte.
    """
    if (count := 1 + _separators(text)) <= most:
        return count
    unescaped = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    count, is_outside = 1, True
    for start in range(0, len(unescaped), _PIECE_BYTES):
        # Between quotes, every other part is outside of texts.
        parts = unescaped[start : start + _PIECE_BYTES].split(b'"')
        count += _separators(b"".join(parts[0 if is_outside else 1 :: 2]))
        is_outside ^= len(parts) % 2 == 0
        if count > most:
            break
    return count


def _separators(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")
