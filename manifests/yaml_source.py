"""A YAML text as data and places, read without trusting the text to be reasonable."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import yaml

from manifests.errors import ManifestError, Problem
from manifests.json_value import Json

MAX_DEPTH = 32
"""Levels of nesting. A manifest needs six; PyYAML's own composer recurses as deep as the text tells it to."""


@dataclass(frozen=True)
class Scalar:
    line: int  # lines and columns count from 1
    column: int
    tag: str | None
    text: str
    is_plain: bool  # not quoted, no block scalar


@dataclass(frozen=True)
class Items:
    line: int
    column: int
    tag: str | None
    nodes: "tuple[Node, ...]"


@dataclass(frozen=True)
class Entries:
    line: int
    column: int
    tag: str | None
    pairs: "tuple[tuple[Node, Node], ...]"


_STAR = 'a value that begins with * needs quotes: "*".'

Node: TypeAlias = Scalar | Items | Entries


def compose(text: str) -> Node | None:
    """The only document of a text; None if there is none. An alias is the very node its anchor names.

    Raises:
        ManifestError: It is not YAML, is two documents, is nested too deep, or has an alias without anchor.
    """
    try:
        return _Composer(text).document()
    except yaml.YAMLError as error:
        problem = _syntax_problem(error, text)
    raise ManifestError([problem])


class _Composer:
    def __init__(self, text: str) -> None:
        # libyaml reads a manifest of 900 upstreams in 4 ms, its Python twin in 70; not every platform has it.
        self._events: Iterator[yaml.Event] = yaml.parse(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        self._anchors: dict[str, Node] = {}
        self._depth = 0

    def document(self) -> Node | None:
        root: Node | None = None
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                if root:
                    raise _refusal(event, "a second YAML document starts here", "Keep one document.")
                root = self._node(next(self._events))
        return root

    def _node(self, event: yaml.Event) -> Node:
        if isinstance(event, yaml.AliasEvent):
            # An anchor counts once its node is complete, so that no node can contain itself.
            if event.anchor not in self._anchors:
                told = f"the alias *{event.anchor} names no anchor that ends before it"
                raise _refusal(event, told, f"Give it the name of an anchor; if it is no alias: {_STAR}")
            return self._anchors[event.anchor]
        # The parser lets no other event stand for a node.
        assert isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent)
        line, column = _position(event)
        node: Node
        if isinstance(event, yaml.ScalarEvent):
            node = Scalar(line, column, event.tag, event.value, event.implicit[0])
        elif isinstance(event, yaml.MappingStartEvent):
            pairs = tuple((self._node(key), self._node(next(self._events))) for key in self._children(event))
            node = Entries(line, column, event.tag, pairs)
        else:
            node = Items(line, column, event.tag, tuple(map(self._node, self._children(event))))
        if event.anchor:
            self._anchors[event.anchor] = node
        return node

    def _children(self, start: yaml.Event) -> Iterator[yaml.Event]:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _refusal(start, f"nested deeper than {MAX_DEPTH} levels")
        for event in self._events:
            if isinstance(event, yaml.CollectionEndEvent):
                break
            yield event
        self._depth -= 1


def _position(event: yaml.Event) -> tuple[int, int]:
    mark = event.start_mark
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)


def _refusal(event: yaml.Event, message: str, hint: str = "") -> ManifestError:
    return ManifestError([Problem(message, *_position(event), hint)])


def _syntax_problem(error: yaml.YAMLError, text: str) -> Problem:
    """The parser's complaint, without the snippet that PyYAML would add: a manifest may hold secrets."""
    if foreign := yaml.reader.Reader.NON_PRINTABLE.search(text):
        before, code = text[: foreign.start()], f"{ord(foreign[0]):04X}"
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        hint = f'Write it as an escape in a quoted string: "\\u{code}".'
        return Problem(f"not YAML: the character U+{code} is not allowed", line, column, hint)
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return Problem("not YAML", 1, 1)
    mark = error.problem_mark
    message = f"not YAML: {error.problem}" + (f" {error.context}" if error.context else "")
    if error.context and error.context.endswith("scanning an alias"):
        return Problem(message, mark.line + 1, mark.column + 1, _STAR.capitalize())
    line_text = "".join(text.split("\n")[mark.line : mark.line + 1])
    return Problem(
        message, mark.line + 1, mark.column + 1, _syntax_hint(line_text, mark.column, _unclosed(error))
    )


def _unclosed(error: yaml.MarkedYAMLError) -> int | None:
    """The line of the bracket that the complaint is within, if it is an earlier one."""
    start, end = error.context_mark, error.problem_mark
    is_flow = error.context is not None and error.context.startswith("while parsing a flow")
    return start.line + 1 if is_flow and start and end and start.line < end.line else None


def _syntax_hint(line: str, column: int, unclosed: int | None) -> str:
    """What people most often meant where YAML gives up."""
    if line[:column].endswith("$") and line[column:].startswith("{"):
        return 'Inside { } and [ ] a reference needs quotes: "${NAME}".'
    if line[column:].startswith("\t"):
        return "Indent with spaces; YAML allows no tabs."
    if unclosed is not None:
        return f'Close the bracket of line {unclosed}, or quote a value that contains ": ".'
    if line[column:].startswith(":"):
        return 'Quote a value that contains ": ".'
    return "Look at the indentation, quotes and brackets just before it."


MAX_NODES = 100_000
"""Counted with every alias expanded: a few lines of aliases to aliases can stand for billions of nodes."""

KeyPath: TypeAlias = tuple[str | int, ...]

_INTEGER = re.compile(r"[-+]?[0-9]{1,300}|0o[0-7]{1,100}|0x[0-9a-fA-F]{1,100}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?")
_WORDS: dict[str, Json] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
}


@dataclass(frozen=True)
class Place:
    """Where a piece of data stands; lines and columns count from 1."""

    line: int  # of the key; of the item, in a list
    column: int
    value_line: int
    value_column: int
    text: str = ""  # as written, where the value is a scalar without quotes


@dataclass(frozen=True)
class YamlSource:
    """`data` is None, bool, int, float, str, or lists and dicts of them; `places` has each node of it."""

    data: Json = None
    places: dict[KeyPath, Place] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()


def read_yaml(text: str) -> YamlSource:
    """Read a text of at most one YAML document.

    Raises:
        ManifestError: It is not YAML, or beyond the bounds; there is nothing else to say about it then.
    """
    root = compose(text)
    if root is None:
        return YamlSource()
    construction = _Construction()
    data = construction.value(root, (), root)
    return YamlSource(data, construction.places, tuple(construction.problems))


class _Construction:
    """Nodes into data, noting places, and problems that leave the rest readable."""

    def __init__(self) -> None:
        self.places: dict[KeyPath, Place] = {}
        self.problems: list[Problem] = []

    def value(self, node: Node, path: KeyPath, key: Node) -> Json:
        self._keep_bounds(node, path)
        text = node.text if isinstance(node, Scalar) and node.is_plain else ""
        self.places[path] = Place(key.line, key.column, node.line, node.column, text)
        if node.tag:
            self._note(node, f"the tag {node.tag} is not supported", "Remove the tag.", path)
        if isinstance(node, Scalar):
            return _scalar_value(node)
        if isinstance(node, Items):
            return [self.value(item, (*path, index), item) for index, item in enumerate(node.nodes)]
        return self._mapping(node, path)

    def _mapping(self, node: Entries, path: KeyPath) -> Json:
        data: dict[str, Json] = {}
        for key, value in node.pairs:
            name = self._key(key, path)
            if name is None:
                continue
            if name in data:
                first = self.places[(*path, name)]
                message = f"the key {name!r} is here twice; the first is at {first.line}:{first.column}"
                self._note(key, message, "Keep one of them.", (*path, name))
                continue
            data[name] = self.value(value, (*path, name), key)
        return data

    def _key(self, key: Node, path: KeyPath) -> str | None:
        if not isinstance(key, Scalar):
            self._note(key, "a key must be a string, not a list or a mapping", "", path)
            return None
        if key.is_plain and key.text == "<<":
            self._note(key, "merge keys (<<) are not supported", "Alias a whole value instead.", path)
            return None
        value = _scalar_value(key)
        if not isinstance(value, str):
            self._note(key, f"the key {key.text} is not a string", f'Quote it: "{key.text}".', path)
            return None
        return value

    def _keep_bounds(self, node: Node, path: KeyPath) -> None:
        if len(path) > MAX_DEPTH:
            raise ManifestError([Problem(f"nested deeper than {MAX_DEPTH} levels", node.line, node.column)])
        if len(self.places) >= MAX_NODES:
            message = f"more than {MAX_NODES} values, counting each alias as what it stands for"
            raise ManifestError([Problem(message, node.line, node.column)])

    def _note(self, node: Node, message: str, hint: str, path: KeyPath) -> None:
        self.problems.append(Problem(message, node.line, node.column, hint, ".".join(map(str, path))))


def _scalar_value(node: Scalar) -> Json:
    """What a scalar stands for in YAML 1.2's core schema; a number too long for any limit stays a string."""
    if not node.is_plain:
        return node.text
    if node.text in _WORDS:
        return _WORDS[node.text]
    if _INTEGER.fullmatch(node.text):
        return int(node.text, _base(node.text))
    if _FLOAT.fullmatch(node.text):
        return float(node.text)
    return node.text


def _base(text: str) -> int:
    return {"0o": 8, "0x": 16}.get(text[:2], 10)
