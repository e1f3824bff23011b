"""Reads long JSON piece by piece, with everybody else's turn between: the parser reads a text in one go.

A piece ends where a comma outside of strings does. It is read with the lists and objects around it that are open where
it begins and ends, and what it says is then put into those that are there already.
"""

import re
import secrets
from collections.abc import Callable
from typing import Final, TypeAlias, TypeVar

from manifests.collection import long_text, no_collection
from manifests.json_value import Json
from upstreams.json_size import end_of_piece, without_escapes
from upstreams.steps import STEP_BYTES, Steps

MAX_LEVELS: Final = 200
"""Lists and objects within one another: the parser takes fewer."""

T = TypeVar("T", str, bytes)

Container: TypeAlias = "list[Json] | dict[str, Json]"

_PIECES_OF_A_STEP: Final = 4
"""Of a text of several steps: to build what it says takes some ten times as long as to look at it."""

_PIECE_BYTES: Final = STEP_BYTES // _PIECES_OF_A_STEP

_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_MEMBER: Final = re.compile(rb"\s*+[^\s,\]}]")
_MARK: Final = secrets.token_hex(16)
"""Stands last in what is open at the end of a piece; no upstream can know it."""

_BEGUN: Final = secrets.token_hex(16)
"""The name of a member that began before the piece."""

_NAMED: Final = b'"%b":' % _BEGUN.encode()
_LAST: Final = {ord("["): b',"%b"]' % _MARK.encode(), ord("{"): b',"%b":0}' % _MARK.encode()}
_CLOSING: Final = {ord("["): b"]", ord("{"): b"}"}


def read_json(
    text: bytes, read: Callable[[bytes], Steps[Json]], piece_bytes: int = _PIECE_BYTES
) -> Steps[Json]:
    """What the text says, as `read` reads each of its pieces, or all of it where that is one step.

    A string that is longer than a piece is in one with what is beside it.

    Raises:
        ValueError: It is no JSON that `read` takes.
    """
    if len(text) <= piece_bytes * _PIECES_OF_A_STEP:
        return (yield from read(text))
    with long_text():
        return (yield from _read_long(text, read, piece_bytes))


def _read_long(text: bytes, read: Callable[[bytes], Steps[Json]], piece_bytes: int) -> Steps[Json]:
    pieces = _Pieces(read)
    start = place = last_mark = 0
    levels = b""
    is_string = False
    while place < len(text):
        end = end_of_piece(text, place, piece_bytes)
        parts = without_escapes(text[place:end]).split(b'"')
        has_cut = end < len(text) and text.find(b",", place, end) >= 0
        outside, cut = _until_last_comma(parts, is_string) if has_cut else (parts[is_string::2], -1)
        levels = _open_levels(levels, b"".join(outside))
        if cut >= 0:
            place += cut
            yield from pieces.add(text[start:place], levels)
            place = start = last_mark = place + 1
            is_string = False
        else:
            place = end
            if len(parts) > 1 or is_string:
                last_mark = place
            elif place - last_mark >= STEP_BYTES:
                raise ValueError("neither a comma nor a text for long")
            is_string ^= len(parts) % 2 == 0
        yield
    if is_string or levels:
        raise ValueError("it does not end")
    return (yield from pieces.end(text[start:]))


def _until_last_comma(parts: list[bytes], is_string: bool) -> tuple[list[bytes], int]:
    """What is outside of strings before the last comma there, and where that is; all of it, and -1 without one."""
    last = len(parts) - 1
    for number in range(last - (last - is_string) % 2, -1, -2):
        cut = parts[number].rfind(b",")
        if cut >= 0:
            before = sum(map(len, parts[:number])) + number
            return [*parts[is_string:number:2], parts[number][:cut]], before + cut
    return parts[is_string::2], -1


def _open_levels(levels: bytes, outside: bytes) -> bytes:
    """The brackets that are open behind it."""
    brackets = levels + outside.translate(None, _NO_BRACKETS)
    for _ in range(MAX_LEVELS + 1):
        shorter = brackets.replace(b"[]", b"").replace(b"{}", b"")
        if len(shorter) == len(brackets):
            break
        brackets = shorter
    if len(brackets) > MAX_LEVELS:
        raise ValueError("recursion limit exceeded")
    if b"]" in brackets or b"}" in brackets:
        raise ValueError("a bracket closes what is not open")
    return brackets


def without_collection(parse: Callable[[T], Json], text: T) -> Json:
    """What `parse` makes of a piece."""
    with no_collection(len(text)):
        return parse(text)


class _Pieces:
    """What was read so far."""

    def __init__(self, read: Callable[[bytes], Steps[Json]]) -> None:
        self._read = read
        self._levels = b""
        self._open: list[Container] = []
        self._is_begun = False
        self._value: Json = None

    def add(self, piece: bytes, levels: bytes) -> Steps[None]:
        """Take in the next one, behind which these are open."""
        if not levels:
            raise ValueError("more than one value")
        closing = b"".join(_CLOSING[each] for each in levels[-2::-1])
        value = yield from self._taken(piece, _LAST[levels[-1]] + closing)
        spine = _spine(value, len(levels))
        assert spine, "the mark is in what was read"
        _take_mark(spine[-1])
        self._join(value, spine, levels)

    def end(self, piece: bytes) -> Steps[Json]:
        """All of it, with the last piece."""
        value = yield from self._taken(piece, b"")
        self._join(value, [], b"")
        return self._value

    def _taken(self, piece: bytes, closing: bytes) -> Steps[Json]:
        if self._is_begun and not _MEMBER.match(piece):
            raise ValueError("nothing is behind a comma")
        return (yield from self._read(_opening(self._levels) + piece + closing))

    def _join(self, value: Json, spine: list[Container], levels: bytes) -> None:
        """Put it into what is open; what was open where it began is a stand-in in `spine` for what is there."""
        if not self._is_begun:
            self._value = value
        was_open, self._open = self._open, spine
        for level, container in enumerate(was_open):
            is_last = level + 1 == len(was_open)
            if level < len(spine) and spine[level] is value:
                spine[level] = container
            value = _move(value, container, is_last=is_last)
        self._levels, self._is_begun = levels, True


def _opening(levels: bytes) -> bytes:
    last = len(levels) - 1
    return b"".join(
        b"[" if each == ord("[") else b"{" if level == last else b"{" + _NAMED
        for level, each in enumerate(levels)
    )


def _spine(value: Json, levels: int) -> list[Container] | None:
    """The lists and objects that are open behind it, outermost first: those around the mark."""
    if not isinstance(value, list | dict):
        return None
    if levels == 1:
        has_mark = value[-1:] == [_MARK] if isinstance(value, list) else _MARK in value
        return [value] if has_mark else None
    # Of an object with a name twice the last member is not where it was read.
    for member in value[-1:] if isinstance(value, list) else reversed(value.values()):
        if inner := _spine(member, levels - 1):
            return [value, *inner]
    return None


def _take_mark(container: Container) -> None:
    if isinstance(container, list):
        container.pop()
    else:
        del container[_MARK]


def _move(value: Json, container: Container, *, is_last: bool) -> Json:
    """Put the members into the container but the first, which goes on with what is in there and is returned."""
    if isinstance(container, list):
        container += value if is_last else value[1:]
        return None if is_last else value[0]
    inner = None if is_last else value.pop(_BEGUN)
    container.update(value)
    return inner
