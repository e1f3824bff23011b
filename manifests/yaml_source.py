"""A YAML text as data and places, read without trusting the text to be reasonable."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import yaml

from manifests.errors import ManifestError, Problem
from manifests.json_value import Json

MAX_DEPTH = 32
"""Levels of nesting. A manifest needs six."""


def _compose(text: str) -> yaml.Node | None:
    """The only document of a text. Tags mean nothing.

    Raises:
        ManifestError: It is not YAML, is two documents, is nested too deep, or has an alias without anchor.
    """
    # libyaml reads a manifest of 900 upstreams in 4 ms, its Python twin in 70; not every platform has it.
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    depth = 0
    try:
        for event in yaml.parse(text, loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                raise ManifestError([Problem(f"nested deeper than {MAX_DEPTH} levels", *_position(event))])
        return yaml.compose(text, loader)
    except yaml.YAMLError as error:
        problem = _syntax_problem(error, text)
    raise ManifestError([problem])


def _position(node: yaml.Event | yaml.Node) -> tuple[int, int]:
    mark = node.start_mark
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)


def _syntax_problem(error: yaml.YAMLError, text: str) -> Problem:
    """The parser's complaint, without the snippet that PyYAML would add: a manifest may hold secrets."""
    if foreign := yaml.reader.Reader.NON_PRINTABLE.search(text):
        before = text[: foreign.start()]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        return Problem(f"not YAML: the character U+{ord(foreign[0]):04X} is not allowed", line, column)
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return Problem("not YAML", 1, 1)
    mark = error.problem_mark
    message = f"not YAML: {error.problem}" + (f" {error.context}" if error.context else "")
    line_text = "".join(text.split("\n")[mark.line : mark.line + 1])
    if "alias" in message:
        hint = 'A value that begins with * needs quotes: "*". An alias needs the name of an anchor.'
    elif line_text[: mark.column].endswith("$"):
        hint = 'Inside { } and [ ] a reference needs quotes: "${NAME}".'
    else:
        hint = "Look at the indentation, quotes and brackets just before it; YAML allows no tabs."
    return Problem(message, mark.line + 1, mark.column + 1, hint)


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


def nearest(places: Mapping[KeyPath, Place], path: KeyPath) -> Place:
    """Where a path stands, or the last part of it that the file has."""
    while path and path not in places:
        path = path[:-1]
    return places.get(path) or Place(1, 1, 1, 1)


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
    root = _compose(text)
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

    def value(self, node: yaml.Node, path: KeyPath, key: yaml.Node) -> Json:
        self._keep_bounds(node, path)
        self.places[path] = Place(*_position(key), *_position(node))
        if isinstance(node, yaml.ScalarNode):
            return _scalar_value(node)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*path, index), item) for index, item in enumerate(node.value)]
        return self._mapping(node, path)

    def _mapping(self, node: yaml.Node, path: KeyPath) -> Json:
        data: dict[str, Json] = {}
        for key, value in node.value:
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

    def _key(self, key: yaml.Node, path: KeyPath) -> str | None:
        if isinstance(key, yaml.ScalarNode):
            return str(key.value)
        self._note(key, "a key must be a string, not a list or a mapping", "", path)
        return None

    def _keep_bounds(self, node: yaml.Node, path: KeyPath) -> None:
        if len(path) > MAX_DEPTH:
            raise ManifestError([Problem(f"nested deeper than {MAX_DEPTH} levels", *_position(node))])
        if len(self.places) >= MAX_NODES:
            message = f"more than {MAX_NODES} values, counting each alias as what it stands for"
            raise ManifestError([Problem(message, *_position(node))])

    def _note(self, node: yaml.Node, message: str, hint: str, path: KeyPath) -> None:
        self.problems.append(Problem(message, *_position(node), hint, ".".join(map(str, path))))


def _scalar_value(node: yaml.ScalarNode) -> Json:
    """What a scalar stands for in YAML 1.2's core schema; a number too long for any limit stays a string."""
    text = str(node.value)
    if node.style:  # quoted, or a block
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
    return float(text) if _FLOAT.fullmatch(text) else text
