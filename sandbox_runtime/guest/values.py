"""Python values as JSON text, and words for a value that is none."""

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
from collections.abc import Callable
from typing import Any

_MAX_DEPTH = 200
_BIG_CHARS = 100_000
_LONE_SURROGATES = re.compile("[\ud800-\udfff]")
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


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


def encode_value(value: object) -> tuple[str, tuple[str, ...]]:
    """JSON text of a script's value, and notices. NaN and infinities become null and are told.

    Keys follow `json.dumps`: numbers, booleans and None become strings.

    Raises:
        NotJsonError: Something in it is not JSON.
    """
    try:
        return clean(_encode(value)), ()
    except (TypeError, ValueError, RecursionError):
        plain = _Plain()
        text = clean(_encode(plain.convert(value, "result")))
        return text, tuple(f"{path} was not a finite number and became null" for path in plain.nulled)


def encode_arguments(function: str, arguments: dict[str, object]) -> str:
    """JSON text of a call's arguments.

    Raises:
        NotJsonError: An argument is not JSON, or not a finite number.
    """
    try:
        return clean(_encode(arguments))
    except (TypeError, ValueError, RecursionError):
        pass
    plain = _Plain()
    try:
        converted = {key: plain.convert(value, f"argument {key}") for key, value in arguments.items()}
    except NotJsonError as error:
        raise NotJsonError(f"{function}: {error}") from None
    if plain.nulled:
        raise NotJsonError(f"{function}: {plain.nulled[0]} is not a finite number")
    return clean(_encode(converted))


def decode(text: str) -> Any:
    """Parse JSON from the host; collecting garbage meanwhile would cost a fifth more and find none."""
    if len(text) < _BIG_CHARS or not gc.isenabled():
        return json.loads(text)
    gc.disable()
    try:
        return json.loads(text)
    finally:
        gc.enable()


class _Plain:
    """Walks a value that the fast encoder refused, to convert or to explain it."""

    def __init__(self) -> None:
        self.nulled: list[str] = []
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

    def _integer(self, value: int, path: str) -> int:
        try:
            str(value)
        except ValueError:
            raise NotJsonError(f"{path} is an integer of more than 4,300 digits: use hex()") from None
        return value

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
                _key(key, path): self.convert(item, f"{path}[{key!r}]") for key, item in value.items()
            }
        else:
            converted = [self.convert(item, f"{path}[{index}]") for index, item in enumerate(value)]
        self._open.pop()
        return converted


def _key(key: object, path: str) -> str:
    if isinstance(key, str):
        return key
    if key is None or isinstance(key, (bool, int, float)):
        return str(next(iter(json.loads(json.dumps({key: 0})))))
    raise NotJsonError(f"a key of {path} is {_article(type(key).__name__)}: JSON keys are strings")


def _article(name: str) -> str:
    return f"an {name}" if name[:1].lower() in "aeiou" else f"a {name}"


def _shorter(value: object) -> str:
    return "list(value)" if not isinstance(value, (set, frozenset)) else "sorted(value) or list(value)"


_ADVICE: tuple[tuple[Any, Callable[[Any], str]], ...] = (
    (Uncrossable, lambda value: value.advice()),
    (types.CoroutineType, lambda value: f"write `await {value.__name__}(...)`"),
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
