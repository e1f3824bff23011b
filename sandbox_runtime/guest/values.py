"""Converts Python values to JSON text. Values with an unambiguous JSON form are converted with a notice."""

import asyncio
import base64
import collections.abc
import dataclasses
import datetime
import decimal
import enum
import io
import itertools
import json
import math
import pathlib
import re
import types
import uuid
from collections.abc import Callable
from sys import get_int_max_str_digits, set_int_max_str_digits
from typing import Any

MAX_DIGITS = 4_300
"""Limit of an integer in JSON: Python's JSON parsers, including those of MCP clients and servers, refuse more."""

_TOO_LONG = 10**MAX_DIGITS
_MAX_DEPTH = 200
_MAX_ITEMS = 1_000_000  # for what is not a list: an iterator may be infinite
_MAX_NOTICES = 10
_MAX_PLACES = 3  # named in one notice
_LONE_SURROGATES = re.compile("[\ud800-\udfff]")
_REPLACED = "characters that are not Unicode text (lone surrogates) became U+FFFD"
_TOO_MANY_DIGITS = f"an integer of more than {MAX_DIGITS:,} digits"
_inside: dict[int, object] = {}  # containers being encoded: without them, one that contains itself would trap
# The encoder of `json` makes one like this for each value. A script may replace `default`.
_encoder = json.encoder.c_make_encoder(  # type: ignore[attr-defined]
    _inside,
    lambda value: json.JSONEncoder().default(value),
    json.encoder.encode_basestring,
    *(None, ":", ",", False, False, False),
)
_decoder = json.JSONDecoder()


class NotJsonError(TypeError):
    """A value cannot be serialized as JSON; the message says where it is and what to do."""

    __module__ = "builtins"


class NotSerializable:
    """A mixin for our objects that are not JSON; `advice` says what to do instead."""

    __slots__ = ()

    def advice(self) -> str:
        raise NotImplementedError


def patch_json() -> None:
    """Patch `json`: `dumps` explains how to fix our objects, and `loads` accepts already parsed results of calls."""
    default, loads = json.JSONEncoder.default, json.loads

    def explaining(self: json.JSONEncoder, o: Any) -> Any:
        if isinstance(o, NotSerializable):
            raise NotJsonError(o.advice())
        return default(self, o)

    def load(s: Any, **options: Any) -> Any:
        if isinstance(s, NotSerializable):
            raise NotJsonError(s.advice())
        return s if isinstance(s, (dict, list, int, float)) else loads(s, **options)

    json.JSONEncoder.default = explaining  # type: ignore[method-assign]
    json.loads = load


def clean(text: str) -> str:
    """Replace lone surrogates, which cannot be encoded, by U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return _LONE_SURROGATES.sub("\ufffd", text)
    return text


def replacement(place: str) -> str:
    """The notice that `clean` changed the text at `place`."""
    return f"{place}: {_REPLACED}"


def encode_value(value: object, place: str = "result", *, may_consume: bool = True) -> tuple[str, list[str]]:
    """The JSON text of a script's value, and notices about changes in it.

    NaN and infinities become null; integers of more than 4,300 digits become strings. As in `json.dumps`, number,
    boolean and None keys become strings, and so do tuples: "('CHF', 2026)".

    Raises:
        NotJsonError: It contains a value that is not JSON, or an iterator that it may not consume.
    """
    notices: list[str] = []
    try:
        text = _encode(value)
    except (TypeError, ValueError, RecursionError):
        plain = _Plain(may_consume=may_consume)
        text = _encode(plain.convert(value, place))
        notices += plain.notices()
    cleaned = clean(text)
    if cleaned is not text:
        notices.append(replacement(place))
    return cleaned, notices


def encode_arguments(function: str, arguments: dict[str, object]) -> tuple[str, list[str]]:
    """The JSON text of a call's arguments, which may contain lone surrogates, and notices about conversions.

    Raises:
        NotJsonError: An argument is not JSON, not a finite number, or an integer of more than 4,300 digits.
    """
    try:
        return _encode(arguments), []
    except (TypeError, ValueError, RecursionError):
        pass
    plain = _Plain(is_strict=True)
    try:
        converted = {
            key: plain.convert(value, f"argument {key.removeprefix('*')}") for key, value in arguments.items()
        }
    except NotJsonError as error:
        raise NotJsonError(f"{function}: {error}") from None
    return _encode(converted), [f"{function}: {notice}" for notice in plain.notices()]


def decode(text: str) -> Any:
    """Parse JSON from the host, which has no space before it."""
    return _with_digits(MAX_DIGITS, _decoder.raw_decode, text)[0]


def _encode(value: object) -> str:
    held = len(_inside)  # by an encoding that the script's code interrupts, such as `items` of its own dict
    try:
        return "".join(_with_digits(MAX_DIGITS, _encoder, value, 0))
    finally:
        while len(_inside) > held:  # an error leaves some
            _inside.popitem()


def _with_digits(digits: int, convert: Callable[..., Any], *values: object) -> Any:
    """Convert with this limit of integer digits, whatever a script has set; 0 means no limit."""
    chosen = get_int_max_str_digits()
    if chosen == digits:
        return convert(*values)
    set_int_max_str_digits(digits)
    try:
        return convert(*values)
    finally:
        set_int_max_str_digits(chosen)


def _digits(value: int) -> str:
    """All digits of an integer. The run's CPU limit bounds the work."""
    return str(_with_digits(0, int.__repr__, value))


class _Plain:
    """Converts a value that the fast encoder refused. With `is_strict`, numbers have to be valid JSON."""

    def __init__(self, *, is_strict: bool = False, may_consume: bool = True) -> None:
        self._is_strict = is_strict
        self._may_consume = may_consume
        self._changes: dict[str, list[str]] = {}

    def notices(self) -> list[str]:
        """One notice per kind of change, with the first places."""
        return [
            f"{', '.join(places[:_MAX_PLACES])}{' and more' * (len(places) > _MAX_PLACES)} {change}"
            for change, places in list(self._changes.items())[:_MAX_NOTICES]
        ]

    def convert(self, value: Any, path: str, depth: int = 0) -> Any:
        if depth > _MAX_DEPTH:
            raise NotJsonError(f"the value is nested more than {_MAX_DEPTH} levels deep, or contains itself")
        if value is None or isinstance(value, (str, bool)):
            return value
        if isinstance(value, int):
            return value if abs(value) < _TOO_LONG else self._number(_digits(value), path, _TOO_MANY_DIGITS)
        if isinstance(value, float):
            return value if math.isfinite(value) else self._number(None, path, "not a finite number")
        if isinstance(value, dict):
            return {
                (name := _key(key, path, self._is_strict)): self.convert(
                    item, f"{path}[{name[:40]!r}]", depth + 1
                )
                for key, item in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self.convert(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
        kind = _article(type(value).__name__)
        if not self._may_consume and _is_stream(value):
            raise NotJsonError(f"{path} is {kind}, which can be read only once: end with `list(...)` of it")
        plain, form = _form(value)
        if not form:
            raise NotJsonError(f"{path} is {kind}, which is not JSON: {_advice(value)}")
        self._note(path, f"was {kind} and became {form}")
        return self.convert(plain, path, depth + 1)

    def _number(self, replaced: str | None, path: str, fault: str) -> str | None:
        if self._is_strict:
            raise NotJsonError(f"{path} is {fault}: pass a string, if the function accepts it")
        self._note(path, f"was {fault} and became {'null' if replaced is None else 'text'}")
        return replaced

    def _note(self, path: str, change: str) -> None:
        places = self._changes.setdefault(change, [])
        if len(places) <= _MAX_PLACES:
            places.append(path)


def _form(value: Any) -> tuple[Any, str]:
    """The JSON form of a value and its name for notices; "" if there is no unambiguous form."""
    if isinstance(value, _NO_VALUES):
        return None, ""
    for kinds, convert in _FORMS:
        if isinstance(value, kinds):
            return convert(value)
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}, "a dict"
    if not isinstance(value, collections.abc.Iterable):
        return None, ""
    items = list(itertools.islice(value, _MAX_ITEMS + 1))
    return (items, "a list") if len(items) <= _MAX_ITEMS else (None, "")  # it may have no end


def _is_stream(value: object) -> bool:
    is_other = isinstance(value, _NO_VALUES) or dataclasses.is_dataclass(value)
    return isinstance(value, collections.abc.Iterator) and not is_other


def _text_of(data: bytes) -> tuple[str, str]:
    try:
        return data.decode(), "text"
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64 text"


def _sorted(values: collections.abc.Set[Any]) -> list[Any]:
    """Sets have no order that a replay could repeat. Views of dicts have one, and keep it."""
    try:
        return sorted(values)
    except TypeError:
        return list(values)


def _decimal(value: decimal.Decimal) -> tuple[Any, str]:
    is_exact = value.is_finite() and decimal.Decimal(repr(float(value))) == value
    return (float(value), "a number") if is_exact else (str(value), "text")


def _key(key: object, path: str, is_strict: bool) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, int) and not isinstance(key, bool):
        return _digits(key)
    if key is None or isinstance(key, (bool, float)):
        return str(next(iter(json.loads(json.dumps({key: 0})))))
    plain = (None if is_strict else str(key)) if isinstance(key, tuple) else _form(key)[0]
    if isinstance(plain, (str, int, float)):
        return str(plain)
    raise NotJsonError(f"a key of {path} is {_article(type(key).__name__)}: JSON keys are strings")


def _article(name: str) -> str:
    return f"an {name}" if name[:1].lower() in "aeiou" else f"a {name}"


def _advice(value: Any) -> str:
    match value:
        case NotSerializable():
            return value.advice()
        case types.CoroutineType():
            return f"write `await {value.__name__}(...)`"
        case asyncio.Future():
            return "write `await` before it"
        case types.FunctionType() | types.BuiltinFunctionType() | type():
            return "call it, or leave it out"
    return "return strings, numbers, booleans, None, lists and dicts"


_NO_VALUES = (NotSerializable, type, asyncio.Future, types.CoroutineType, io.IOBase)
_FORMS: tuple[tuple[Any, Callable[[Any], tuple[Any, str]]], ...] = (
    (enum.Enum, lambda value: (value.value, "its value")),
    ((datetime.date, datetime.time), lambda value: (value.isoformat(), "ISO 8601 text")),
    (datetime.timedelta, lambda value: (value.total_seconds(), "seconds")),
    (decimal.Decimal, _decimal),
    ((uuid.UUID, pathlib.PurePath), lambda value: (str(value), "text")),
    (BaseException, lambda value: (f"{type(value).__name__}: {value}", "text")),
    ((bytes, bytearray, memoryview), lambda value: _text_of(bytes(value))),
    ((set, frozenset), lambda value: (_sorted(value), "a list")),
    (collections.abc.Mapping, lambda value: (dict(value), "a dict")),
    (types.SimpleNamespace, lambda value: (dict(vars(value)), "a dict")),
)
