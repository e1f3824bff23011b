"""Python values as JSON text, and words for a value that is none."""

import asyncio
import collections.abc
import dataclasses
import datetime
import decimal
import enum
import gc
import json
import math
import pathlib
import re
import types
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from sys import get_int_max_str_digits, set_int_max_str_digits
from typing import Any

MAX_DIGITS = 4_300
"""Of an integer in JSON: Python's own readers of JSON, those of MCP clients and servers among them, refuse more."""

_TOO_LONG = 10**MAX_DIGITS
_MAX_DEPTH = 200
_BIG_CHARS = 100_000
_LONE_SURROGATES = re.compile("[\ud800-\udfff]")
_REPLACED = "characters that are not Unicode text (lone surrogates) became U+FFFD"
_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class NotJsonError(TypeError):
    """A value cannot be written as JSON; the message says where it sits and what to do."""

    __module__ = "builtins"


class Uncrossable:
    """A mixin for our own objects that a script may hold and that are no values; `advice` ends the message."""

    __slots__ = ()

    def advice(self) -> str:
        raise NotImplementedError


def explain_in_json() -> None:
    """Let `json.dumps` in a script say what is missing, too."""
    default = json.JSONEncoder.default

    def explaining(self: json.JSONEncoder, o: Any) -> Any:
        if isinstance(o, Uncrossable):
            raise NotJsonError(o.advice())
        return default(self, o)

    json.JSONEncoder.default = explaining  # type: ignore[method-assign]


def clean(text: str) -> str:
    """Replace lone surrogates, which no encoding of text can carry, by U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return _LONE_SURROGATES.sub("\ufffd", text)
    return text


def replacement(place: str) -> str:
    """The notice that `clean` changed what stands in a place."""
    return f"{place}: {_REPLACED}"


def encode_value(value: object, place: str = "result") -> tuple[str, tuple[str, ...]]:
    """JSON text of a script's value, and notices, which say where in `place` something changed.

    NaN and infinities become null, integers of more than 4,300 digits the text of their digits; both are told. Keys
    follow `json.dumps`: numbers, booleans and None become strings.

    Raises:
        NotJsonError: Something in it is not JSON.
    """
    notices: list[str] = []
    try:
        text = _encode(value)
    except (TypeError, ValueError, RecursionError):
        plain = _Plain()
        text = _encode(plain.convert(value, place))
        notices += [f"{path} was not a finite number and became null" for path in plain.nulled]
        notices += [
            f"{path} is an integer of more than {MAX_DIGITS:,} digits, which readers of JSON refuse: it became text"
            for path in plain.spelled
        ]
    cleaned = clean(text)
    if cleaned is not text:
        notices.append(replacement(place))
    return cleaned, tuple(notices)


def encode_arguments(function: str, arguments: dict[str, object]) -> str:
    """JSON text of a call's arguments; it may hold lone surrogates.

    Raises:
        NotJsonError: An argument is not JSON, not a finite number, or an integer of more than 4,300 digits.
    """
    try:
        return _encode(arguments)
    except (TypeError, ValueError, RecursionError):
        pass
    plain = _Plain()
    try:
        converted = {key: plain.convert(value, f"argument {key}") for key, value in arguments.items()}
    except NotJsonError as error:
        raise NotJsonError(f"{function}: {error}") from None
    if plain.nulled:
        raise NotJsonError(f"{function}: {plain.nulled[0]} is not a finite number")
    if plain.spelled:
        raise NotJsonError(
            f"{function}: {plain.spelled[0]} is an integer of more than {MAX_DIGITS:,} digits, which readers of JSON "
            "refuse: use text, if the function takes it"
        )
    return _encode(converted)


def decode(text: str) -> Any:
    """Parse JSON from the host; collecting garbage meanwhile would cost a fifth more and find none."""
    with _digits_limited_to(MAX_DIGITS):
        if len(text) < _BIG_CHARS or not gc.isenabled():
            return json.loads(text)
        gc.disable()
        try:
            return json.loads(text)
        finally:
            gc.enable()


def _encode(value: object) -> str:
    with _digits_limited_to(MAX_DIGITS):
        return _encoder.encode(value)


@contextmanager
def _digits_limited_to(digits: int) -> Iterator[None]:
    """Let Python write integers of so many digits, whatever a script allowed itself; 0 is without end."""
    chosen = get_int_max_str_digits()
    set_int_max_str_digits(digits)
    try:
        yield
    finally:
        set_int_max_str_digits(chosen)


def _digits(value: int) -> str:
    """All digits, however many: the run's CPU limit bounds the work."""
    with _digits_limited_to(0):
        return int.__repr__(value)


class _Plain:
    """Walks a value that the fast encoder refused, to convert or to explain it."""

    def __init__(self) -> None:
        self.nulled: list[str] = []
        self.spelled: list[str] = []
        self._open: list[int] = []

    def convert(self, value: Any, path: str) -> Any:
        if value is None or isinstance(value, (str, bool)):
            return value
        if isinstance(value, int):
            return self._integer(value, path)
        if isinstance(value, float):
            return self._float(value, path)
        if isinstance(value, (dict, list, tuple)):
            return self._container(value, path)
        raise NotJsonError(f"{path} is {_article(type(value).__name__)}, which is not JSON: {_advice(value)}")

    def _integer(self, value: int, path: str) -> int | str:
        if abs(value) < _TOO_LONG:
            return value
        self.spelled.append(path)
        return _digits(value)

    def _float(self, value: float, path: str) -> float | None:
        if math.isfinite(value):
            return value
        self.nulled.append(path)
        return None

    def _container(self, value: Any, path: str) -> Any:
        if id(value) in self._open:
            raise NotJsonError(f"{path} contains itself")
        if len(self._open) >= _MAX_DEPTH:
            raise NotJsonError(f"the value is nested more than {_MAX_DEPTH} levels deep")
        self._open.append(id(value))
        converted: Any
        if isinstance(value, dict):
            converted = {
                (name := _key(key, path)): self.convert(item, f"{path}[{_step(key, name)}]")
                for key, item in value.items()
            }
        else:
            converted = [self.convert(item, f"{path}[{index}]") for index, item in enumerate(value)]
        self._open.pop()
        return converted


def _key(key: object, path: str) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, int) and not isinstance(key, bool):
        return _digits(key)
    if key is None or isinstance(key, (bool, float)):
        return str(next(iter(json.loads(json.dumps({key: 0})))))
    raise NotJsonError(f"a key of {path} is {_article(type(key).__name__)}: JSON keys are strings")


def _step(key: object, name: str) -> str:
    """A key in a path. Python would refuse to write an integer of very many digits."""
    return f"{name[:40]}..." if isinstance(key, int) and len(name) > 40 else repr(key)


def _article(name: str) -> str:
    return f"an {name}" if name[:1].lower() in "aeiou" else f"a {name}"


def _shorter(value: object) -> str:
    if isinstance(value, collections.abc.Mapping):
        return "dict(value)"
    return "list(value)" if not isinstance(value, (set, frozenset)) else "sorted(value) or list(value)"


_ADVICE: tuple[tuple[Any, Callable[[Any], str]], ...] = (
    (Uncrossable, lambda value: value.advice()),
    (types.CoroutineType, lambda value: f"write `await {value.__name__}(...)`"),
    (asyncio.Future, lambda value: "write `await` before it"),
    ((datetime.date, datetime.time), lambda value: "use value.isoformat()"),
    (datetime.timedelta, lambda value: "use value.total_seconds()"),
    (decimal.Decimal, lambda value: "use str(value) or float(value)"),
    ((uuid.UUID, pathlib.PurePath, complex), lambda value: "use str(value)"),
    (enum.Enum, lambda value: "use value.value"),
    ((bytes, bytearray, memoryview), lambda value: "use value.decode(), or base64.b64encode(value).decode()"),
    ((types.FunctionType, types.BuiltinFunctionType, type), lambda value: "call it, or leave it out"),
)


def _advice(value: object) -> str:
    for kinds, advise in _ADVICE:
        if isinstance(value, kinds):
            return advise(value)
    if dataclasses.is_dataclass(value):
        return "use dataclasses.asdict(value)"
    if hasattr(value, "__iter__"):
        return f"use {_shorter(value)}"
    return "return strings, numbers, booleans, None, lists and dicts"
