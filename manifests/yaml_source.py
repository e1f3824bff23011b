"""A YAML text as plain data, and where in the text each piece of it stands.

Scalars mean what they mean in YAML 1.2, which is also how editors read them: `on`, `off`, `yes`, `no`,
`12:30` and `2026-01-31` are strings, so that `check: off` says what it seems to say. Tags and merge keys
are refused.
"""

import math
import re
from dataclasses import dataclass, field
from typing import TypeAlias

from manifests.errors import ManifestError, Problem
from manifests.json_value import Json
from manifests.yaml_nodes import MAX_DEPTH, Entries, Items, Node, Scalar, compose

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
