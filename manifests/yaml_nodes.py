"""The syntax of a YAML text: nodes and where they stand, read without trusting the text to be reasonable."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import yaml

from manifests.errors import ManifestError, Problem

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
