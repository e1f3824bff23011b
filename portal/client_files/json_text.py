"""JSON with comments and trailing commas, as people's editors write it, and where in the text each piece of it stands.

It is read without trusting the text to be reasonable, and never rewritten as a whole: edits are made in the text.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from manifests.json_value import Json
from portal.client_files.quotation import quoted

BOM: Final = "\ufeff"
"""Editors on Windows begin a file with it."""

MAX_DEPTH: Final = 100
MAX_VALUES: Final = 500_000

_BLANK: Final = re.compile(r"(?:[ \t\r\n]+|//[^\r\n]*|/\*.*?\*/)*+", re.DOTALL)
"""Possessive, as it need not remember where each of millions of comments began."""
_STRING: Final = re.compile(r'"[^"\\\x00-\x1f]*(?:\\.[^"\\\x00-\x1f]*)*"')
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_WORD: Final = re.compile(r"[A-Za-z]+")
_WORDS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None}
_SURROGATES: Final = re.compile(r"[\ud800-\udfff]")


def _no_number(word: str) -> Json:
    raise ValueError(word)


_MOST_FAILURES: Final = 100
"""Of the fast reader, which counts the lines of all that is before each."""
_FAST: Final = json.JSONDecoder(parse_constant=_no_number, parse_int=str, parse_float=str)


class Number(str):
    """A number as it is written; nobody has to know how large it may be."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Scalar:
    start: int
    end: int
    value: str | Number | bool | None


@dataclass(frozen=True, slots=True)
class Items:
    start: int
    end: int
    nodes: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Member:
    start: int  # of its key
    key: str
    node: "Node"


@dataclass(frozen=True, slots=True)
class Members:
    """An object. Of a key that is there twice, `find` gives the last, which is the one that counts for clients."""

    start: int
    end: int
    members: tuple[Member, ...]

    def find(self, key: str) -> "Node | None":
        return next((each.node for each in reversed(self.members) if each.key == key), None)

    @property
    def repeated(self) -> str | None:
        """A key that is there more than once."""
        counted = Counter(each.key for each in self.members)
        return next((key for key, count in counted.items() if count > 1), None)


@dataclass(frozen=True, slots=True)
class Unread:
    """An object or a list that nobody looks into, as it is written. It is JSON without comments."""

    start: int
    end: int
    text: str


Node: TypeAlias = Scalar | Items | Members | Unread


class JsonTextError(ValueError):
    """The text is not JSON, or beyond the bounds; `line` counts from 1."""

    def __init__(self, message: str, text: str, position: int) -> None:
        super().__init__(message)
        self.line = line_of(text, position)


def read_json(text: str, looked_into: frozenset[str] | None = None) -> Node | None:
    """The one value of a text; None if there is nothing but blanks and comments.

    Of its members, and of those of each object under `projects`, only those with keys in `looked_into` are read, for
    None all: Claude Code keeps megabytes of histories beside its servers.

    Raises:
        JsonTextError: It is not JSON, nested deeper than MAX_DEPTH, or of more than MAX_VALUES values.
    """
    return _Reader(text, looked_into).document()


def line_of(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def plain(node: Node) -> Json:
    """The data alone, with numbers as `Number`.

    Raises:
        ValueError: A key is there twice, or a text is not Unicode.
    """
    if isinstance(node, Scalar):
        if isinstance(node.value, str) and _SURROGATES.search(node.value):
            raise ValueError("a text holds half a character (a lone surrogate)")
        return node.value
    if isinstance(node, Unread):
        whole = read_json(node.text)
        return None if whole is None else plain(whole)
    if isinstance(node, Items):
        return [plain(each) for each in node.nodes]
    if node.repeated is not None:
        raise ValueError(f"the key {quoted(node.repeated)} is there twice")
    return {each.key: plain(each.node) for each in node.members}


def after_blank(text: str, position: int) -> int:
    """Where the next token begins."""
    found = _BLANK.match(text, position)
    return found.end() if found else position


def texts(node: Node | None) -> Sequence[str]:
    """Those in a list; nothing of a node that is none."""
    try:
        value: Json = plain(node) if node is not None else []
    except ValueError:
        return ()
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else ()


class _Reader:
    def __init__(self, text: str, looked_into: frozenset[str] | None) -> None:
        self._text = text
        self._looked_into = looked_into
        self._position = len(BOM) if text.startswith(BOM) else 0
        self._values = 0
        self._failures = 0

    def document(self) -> Node | None:
        if self._next() == "":
            return None
        node = self._node(0, 0 if self._looked_into is None else 1)
        if self._next() != "":
            raise self._error("something follows after the end of the value")
        return node

    def _node(self, depth: int, choosing: int) -> Node:
        """`choosing` is 1 in an object of which only some members are read, 2 in one of such objects, else 0."""
        self._values += 1
        if depth > MAX_DEPTH:
            raise self._error(f"nested deeper than {MAX_DEPTH} levels")
        if self._values > MAX_VALUES:
            raise self._error(f"more than {MAX_VALUES} values")
        start = self._position
        if self._text.startswith("{", start):
            members = tuple(self._members(depth, choosing))
            return Members(start, self._position, members)
        if self._text.startswith("[", start):
            nodes = tuple(self._items(depth))
            return Items(start, self._position, nodes)
        value = self._scalar()
        return Scalar(start, self._position, value)

    def _members(self, depth: int, choosing: int) -> Iterator[Member]:
        self._position += 1
        while self._next() != "}":
            start = self._position
            if self._next() != '"':
                raise self._error("a key in double quotes is missing here")
            key = str(self._scalar())
            if self._next() != ":":
                raise self._error("a colon is missing here")
            self._position += 1
            self._next()
            yield Member(start, key, self._member_value(key, depth + 1, choosing))
            self._comma("}")
        self._position += 1

    def _member_value(self, key: str, depth: int, choosing: int) -> Node:
        if choosing == 1 and key not in (self._looked_into or ()) and (unread := self._unread()):
            return unread
        return self._node(depth, 2 if choosing == 1 and key == "projects" else 1 if choosing == 2 else 0)

    def _items(self, depth: int) -> Iterator[Node]:
        self._position += 1
        while self._next() != "]":
            yield self._node(depth + 1, 0)
            self._comma("]")
        self._position += 1

    def _unread(self) -> Unread | None:
        """The object or list that begins here, if the fast reader takes it; it knows no comments and no bounds."""
        start = self._position
        if self._text[start : start + 1] not in ("{", "[") or self._failures == _MOST_FAILURES:
            return None
        try:
            _, end = _FAST.raw_decode(self._text, start)
        except (ValueError, RecursionError):
            self._failures += 1
            return None
        self._position = end
        return Unread(start, end, self._text[start:end])

    def _comma(self, end: str) -> None:
        following = self._next()
        if following == ",":
            self._position += 1
        elif following != end:
            raise self._error(f"a comma or {end} is missing here")

    def _scalar(self) -> str | Number | bool | None:
        if found := _STRING.match(self._text, self._position):
            try:
                value = json.loads(found[0])
            except ValueError:
                raise self._error("an escape in this text is none of JSON's") from None
            self._position = found.end()
            return str(value)
        if self._text.startswith('"', self._position):
            raise self._error("a text that begins here does not end on its line")
        if found := _NUMBER.match(self._text, self._position):
            self._position = found.end()
            return Number(found[0])
        found = _WORD.match(self._text, self._position)
        if found is None or found[0] not in _WORDS:
            raise self._error("a value is missing here")
        self._position = found.end()
        return _WORDS[found[0]]

    def _next(self) -> str:
        """The character that the next token begins with; "" at the end of the text."""
        self._position = after_blank(self._text, self._position)
        return self._text[self._position : self._position + 1]

    def _error(self, message: str) -> JsonTextError:
        return JsonTextError(message, self._text, self._position)
