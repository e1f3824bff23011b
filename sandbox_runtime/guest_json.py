"""Parses JSON from the guest. Hostile JSON raises an error here and cannot crash later code."""

import json
import re

from pydantic_core import from_json, to_json

from manifests.json_value import Json

_LONE_SURROGATES = re.compile("[\ud800-\udfff]")
# A number exceeds a float only with an exponent of three digits or 200 digits in a row. To find those, all digits
# become 0, E becomes e, and + is dropped, which takes a tenth of the time of a regular expression.
_DIGITS_ALIKE = bytes.maketrans(b"123456789E", b"000000000e")
_EXPONENT = b"0e000"
_MANY_DIGITS = b"0" * 200
_PIECE_BYTES = 1 << 16
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


class GuestJsonError(Exception):
    """The text is not valid JSON, or exceeds a limit; the message says why."""


def parse(text: bytes) -> Json:
    """Parse UTF-8 JSON of at most 200 levels; NaN and infinities become None, lone surrogates U+FFFD.

    Raises GuestJsonError: it is malformed, too deep, or has an integer of more than 4,300 digits.
    """
    shape = text.translate(_DIGITS_ALIKE, b"+")
    may_be_infinite = _EXPONENT in shape or _MANY_DIGITS in shape or b"NaN" in shape or b"Infinity" in shape
    try:
        # A surrogate can only be an escape: encoded as bytes it is invalid UTF-8.
        if b"\\ud" in text or b"\\uD" in text:
            text = encode(json.loads(text))
        value: Json = from_json(text)
        return from_json(to_json(value, inf_nan_mode="null")) if may_be_infinite else value
    except (ValueError, RecursionError) as error:
        is_deep = "recursion" in str(error)
        raise GuestJsonError(
            "it is nested more than 200 levels deep" if is_deep else f"it is not JSON: {error}"
        ) from None


def encode(value: Json) -> bytes:
    """JSON for the guest, which also accepts NaN, as UTF-8."""
    try:
        return to_json(value, inf_nan_mode="constants")
    except ValueError:  # a lone surrogate, or more than some 250 levels
        return clean(_ENCODER.encode(value)).encode()


def clean(text: str) -> str:
    """Replace lone surrogates, which cannot be encoded, by U+FFFD."""
    return _LONE_SURROGATES.sub("\ufffd", text)


def values_in(text: bytes, most: int) -> int:
    """An upper bound of the number of values in JSON; the count stops once it exceeds `most`.

    A value may take 300 bytes in memory and 0.1 us to parse, however short its text. So a limit of the bytes of hostile
    JSON needs a limit of its values, too. Counting takes a few ns per byte.
    """
    if (count := 1 + _separators(text)) <= most:
        return count
    unescaped = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    count, is_outside = 1, True
    for start in range(0, len(unescaped), _PIECE_BYTES):
        # Every other part between quotes is outside of strings.
        parts = unescaped[start : start + _PIECE_BYTES].split(b'"')
        count += _separators(b"".join(parts[0 if is_outside else 1 :: 2]))
        is_outside ^= len(parts) % 2 == 0
        if count > most:
            break
    return count


def _separators(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")
