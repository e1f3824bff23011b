"""A type in place: `{items: list[{id: int, kind?: 'a'|'b'}], total: int}`, in one line or in full."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from manifests.json_value import Reference, SoundNode
from portal.base.plain_text import comment, cut, is_literal, literal_text
from portal.library.schema import MAX_DEPTH, is_kind, kind_of
from portal.library.schema_types import (
    MAX_LITERALS,
    MAX_NODES,
    carries_type,
    merged,
    properties_of,
    value_doc,
)

LONGEST_SHAPE: Final = 160
"""Characters of a type in one line. In a longer one, objects are their keys, and what is left out is `…`."""

_MAX_KEYS: Final = 10
_FEW_LITERALS: Final = 8
_MAX_PARTS: Final = 60
_PLAIN_KEY: Final = re.compile(r"[\w$@.-]{1,60}", re.ASCII)
_KINDS: Final = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_LOOSE: Final = {**_KINDS, "object": "dict", "array": "list"}


def shape_text(node: SoundNode) -> str:
    """The type of a schema; "Any" if it says none. `?` marks keys that may be missing."""
    for most, has_keys_only in ((LONGEST_SHAPE, False), (3 * LONGEST_SHAPE, True)):
        shape = _Shape(has_keys_only)
        text = shape.text(node)
        if len(text) <= most and shape.left >= 0:
            return text
    return _union(_LOOSE[kind] for kind in node.get("type", ())) if isinstance(node, dict) else "Any"


def full_text(node: SoundNode, told: set[str], depth: int = MAX_DEPTH) -> str:
    """The type of a schema in full. An object has one line for each key if it is long or keys have comments.

    Such an object and each comment is `told` once in an answer; then objects are their keys, as they are below `depth`
    levels of them. A type within itself is `Any`.
    """
    return _FullShape(told, depth).text(node)


class _Shape:
    """One rendering of a schema. `left` is negative if it has more parts than are rendered."""

    def __init__(self, has_keys_only: bool, left: int = _MAX_PARTS) -> None:
        self._has_keys_only = has_keys_only
        self.left = left
        self._open: set[Reference] = set()

    def text(self, node: SoundNode) -> str:
        return _union(self._members(node))

    def _members(self, node: SoundNode) -> Iterator[str]:
        self.left -= 1
        if not isinstance(node, dict) or self.left < 0:
            yield "Any"
        elif "$ref" in node:
            reference: Reference = node["$ref"]
            if reference in self._open or len(self._open) == MAX_DEPTH:
                yield "Any"
            else:
                self._open.add(reference)
                yield from self._members(reference.schema)
                self._open.remove(reference)
        elif "allOf" in node:
            yield from self._members(merged(node))
        elif "anyOf" in node and not carries_type({word: node[word] for word in node if word != "anyOf"}):
            for each in node["anyOf"]:
                yield from self._members(each) if each is not False else ()
        elif "enum" in node:
            yield from self._literals(node)
        else:
            is_list = "items" in node or "prefixItems" in node
            is_object = "properties" in node or "additionalProperties" in node
            implied = "object" if is_object else "array" if is_list else "any"
            for kind in node.get("type", (implied,)):
                yield self._of_kind(kind, node)

    def _of_kind(self, kind: str, node: dict[str, Any]) -> str:
        if kind == "object" and properties_of(node):
            return self.object(node)
        if kind == "array":
            items = [*node.get("prefixItems", ()), node.get("items", "prefixItems" not in node)]
            inner = _union(self.text(each) for each in items if each is not False)
        elif kind == "object":
            inner = self.text(node.get("additionalProperties", True))
        else:
            return _KINDS.get(kind, "Any")
        return _LOOSE[kind] + ("" if inner == "Any" else f"[{'str, ' * (kind == 'object')}{inner}]")

    def object(self, node: dict[str, Any]) -> str:
        return f"{{{', '.join(self._fields(node).values())}}}"

    def _fields(self, node: dict[str, Any]) -> dict[str, str]:
        """`name?: type` by key, required ones first."""
        fields: dict[str, str] = {}
        properties, required = properties_of(node), frozenset(node.get("required", ()))
        for key in sorted(properties, key=lambda each: each not in required):
            if self.left < 0 or (self._has_keys_only and len(fields) == _MAX_KEYS):
                return {**fields, key: "…"}
            name = key if _PLAIN_KEY.fullmatch(key) else literal_text(cut(key, 60))
            name += "" if key in required else "?"
            fields[key] = name if self._has_keys_only else f"{name}: {self.text(properties[key])}"
        return fields

    def _literals(self, node: dict[str, Any]) -> Iterator[str]:
        values = [value for value in node["enum"] if "type" not in node or is_kind(value, node["type"])]
        exact = [literal_text(value) for value in values if is_literal(value) and value is not None]
        most = _FEW_LITERALS if self._has_keys_only else MAX_LITERALS
        if exact:
            yield "|".join([*exact[:most], *(["…"] if len(exact) > most else [])])
        yield from (_LOOSE[kind_of(value)] for value in values if value is None or not is_literal(value))


class _FullShape(_Shape):
    def __init__(self, told: set[str], depth: int) -> None:
        super().__init__(has_keys_only=False, left=MAX_NODES)
        self._told = told
        self._depth = depth

    def object(self, node: dict[str, Any]) -> str:
        if self._depth <= 0:
            return _Shape(has_keys_only=True).object(node)
        self._depth -= 1
        fields, properties = self._fields(node), properties_of(node)
        self._depth += 1
        line = f"{{{', '.join(fields.values())}}}"
        rows = [f"{text},{comment(value_doc(properties[key]))}" for key, text in fields.items()]
        has_comments = any("  # " in row and row not in self._told for row in rows)
        if not has_comments and len(line) <= LONGEST_SHAPE and "\n" not in line:
            return line
        if not has_comments and line in self._told:
            return _Shape(has_keys_only=True).object(node)
        self._told.update(rows, [line])
        return "".join(["{\n", *(indented(row) for row in rows), "}"])


def indented(row: str) -> str:
    return "    " + row.replace("\n", "\n    ") + "\n"


def _union(texts: Iterable[str]) -> str:
    members = dict.fromkeys(texts)
    if "Any" in members or not members:
        return "Any"
    return " | ".join(sorted(members, key=lambda each: each == "None"))
