"""Reads JSON that comes from the guest: every way to be hostile is an error here, never a crash further in."""

import json
import math
import re

from manifests.json_value import Json, no_collection

MAX_DEPTH = 200
MAX_DIGITS = 4_300
"""Of an integer: Python's time to read one grows with the square of its digits, and MCP's own readers take no more."""

_LONE_SURROGATES = re.compile("[\ud800-\udfff]")
# Without an exponent of three digits and 200 digits in a row, no number is beyond a float, nor an integer too long.
# To look for those, all digits become 0, E becomes e and + is left out: a tenth of a regular expression's time.
_DIGITS_ALIKE = bytes.maketrans(b"123456789E", b"000000000e")
_EXPONENT = b"0e000"
_MANY_DIGITS = b"0" * 200
_PIECE_BYTES = 1 << 16


class GuestJsonError(Exception):
    """It is not JSON that the portal can carry; the message says why."""


def values_in(text: bytes, most: int) -> int:
    """How many values JSON has, at most; more than `most` if they are more than that.

    A value takes up to 300 bytes in memory, whatever it is in the text, and reading it 0.1 us: whoever bounds the
    bytes of hostile JSON has to bound its values, too. Counting takes a few ns per byte.
    """
    count = _at_most(text)
    return count if count <= most else _counted(text, most)


def parse(text: bytes) -> Json:
    """Parse UTF-8 JSON of at most 200 levels; NaN and infinities become None, lone surrogates U+FFFD.

    Raises:
        GuestJsonError: It is malformed, too deep, or has an integer of more than 4,300 digits.
    """
    # A surrogate can only come as an escape, since bytes that encode one are no UTF-8.
    suspicious = b"\\u" in text and (b"\\ud" in text or b"\\uD" in text)
    try:
        with no_collection(len(text)):
            value = _loaded(text)
            if text.count(b"[") + text.count(b"{") > MAX_DEPTH:
                _check_depth(value)
            if suspicious:
                value = _cleaned(value)
    except RecursionError:
        raise GuestJsonError(f"it is nested more than {MAX_DEPTH} levels deep") from None
    except json.JSONDecodeError as error:
        raise GuestJsonError(f"it is no JSON: {error.msg}") from None
    except ValueError:
        raise GuestJsonError(f"it has an integer of more than {MAX_DIGITS:,} digits") from None
    return value


def _at_most(text: bytes) -> int:
    """The values, counting the commas and brackets in texts as well."""
    return 1 + text.count(b",") + text.count(b"[") + text.count(b"{")


def _counted(text: bytes, most: int) -> int:
    """The values, up to the first piece in which they become more than `most`."""
    unescaped = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    count, is_outside = 1, True
    for start in range(0, len(unescaped), _PIECE_BYTES):
        # Between quotes, every other part is outside of texts.
        parts = unescaped[start : start + _PIECE_BYTES].split(b'"')
        count += _at_most(b"".join(parts[0 if is_outside else 1 :: 2])) - 1
        is_outside ^= len(parts) % 2 == 0
        if count > most:
            break
    return count


def clean(text: str) -> str:
    """Replace lone surrogates, which no encoding of text can carry, by U+FFFD."""
    return _LONE_SURROGATES.sub("\ufffd", text)


def encode(value: Json) -> bytes:
    """JSON for the guest, which reads NaN too, as UTF-8."""
    text = _ENCODER.encode(value)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return clean(text).encode()


def _loaded(text: bytes) -> Json:
    # A function called for each number makes ten megabytes of them three times as slow.
    shape = text.translate(_DIGITS_ALIKE, b"+")
    decoder = _CAREFUL_DECODER if _EXPONENT in shape or _MANY_DIGITS in shape else _DECODER
    value: Json = decoder.decode(text.decode("utf-8", "replace"))
    return value


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


def _nothing(_constant: str) -> None:
    return None


def _cleaned(value: Json) -> Json:
    if isinstance(value, str):
        return value if value.isascii() else clean(value)
    if isinstance(value, list):
        return [_cleaned(item) for item in value]
    if isinstance(value, dict):
        return {_cleaned(key): _cleaned(item) for key, item in value.items()}
    return value


def _check_depth(value: Json) -> None:
    level = [value] if type(value) in _CONTAINERS else []
    for _ in range(MAX_DEPTH + 1):
        if not level:
            return
        level = [
            inner
            for outer in level
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) in _CONTAINERS and inner
        ]
    if level:
        raise GuestJsonError(f"it is nested more than {MAX_DEPTH} levels deep")


_CONTAINERS = frozenset({dict, list})
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_DECODER = json.JSONDecoder(parse_constant=_nothing)
_CAREFUL_DECODER = json.JSONDecoder(parse_constant=_nothing, parse_float=_finite)
