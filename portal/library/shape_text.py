"""A type in place, in one line: `{items: list[{id: int, kind?: 'a'|'b'}], total: int}`."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from manifests.json_value import SoundNode
from portal.base.plain_text import cut, is_literal, literal_text
from portal.library.schema import is_kind, kind_of
from portal.library.schema_types import carries_type, merged

LONGEST_SHAPE: Final = 160
"""Characters of a type in place. In a longer one, objects are their keys, and what is left out is `…`."""

_MAX_KEYS: Final = 10
_MAX_LITERALS: Final = 8
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


class _Shape:
    """One rendering of a schema. `left` is negative if it has more parts than are rendered."""

    def __init__(self, has_keys_only: bool) -> None:
        self._has_keys_only = has_keys_only
        self.left = _MAX_PARTS

    def text(self, node: SoundNode) -> str:
        return _union(self._members(node))

    def _members(self, node: SoundNode) -> Iterator[str]:
        self.left -= 1
        if not isinstance(node, dict) or self.left < 0:
            yield "Any"
        elif "$ref" in node:
            yield from self._members(node["$ref"].schema)
        elif "allOf" in node:
            yield from self._members(merged(node))
        elif "anyOf" in node and not carries_type({word: node[word] for word in node if word != "anyOf"}):
            for each in node["anyOf"]:
                yield from self._members(each) if each is not False else ()
        elif "enum" in node:
            yield from self._literals(node)
        else:
            implied = "object" if "properties" in node else "array" if "items" in node else "any"
            for kind in node.get("type", (implied,)):
                yield self._of_kind(kind, node)

    def _of_kind(self, kind: str, node: dict[str, Any]) -> str:
        properties: dict[str, SoundNode] = node.get("properties", {})
        if kind not in ("array", "object"):
            return _KINDS.get(kind, "Any")
        if kind == "array" or not properties:
            inner = self.text(node.get("items" if kind == "array" else "additionalProperties", True))
            return _LOOSE[kind] + ("" if inner == "Any" else f"[{'str, ' * (kind == 'object')}{inner}]")
        fields: list[str] = []
        required = node.get("required", ())
        for key in sorted(properties, key=lambda each: each not in required):
            if self.left < 0 or (self._has_keys_only and len(fields) == _MAX_KEYS):
                fields.append("…")
                break
            name = key if _PLAIN_KEY.fullmatch(key) else literal_text(cut(key, 60))
            name += "" if key in required else "?"
            fields.append(name if self._has_keys_only else f"{name}: {self.text(properties[key])}")
        return f"{{{', '.join(fields)}}}"

    def _literals(self, node: dict[str, Any]) -> Iterator[str]:
        values = [value for value in node["enum"] if "type" not in node or is_kind(value, node["type"])]
        exact = [literal_text(value) for value in values if is_literal(value) and value is not None]
        most = _MAX_LITERALS if self._has_keys_only else len(exact)
        if exact:
            yield "|".join([*exact[:most], *(["…"] if len(exact) > most else [])])
        yield from (_LOOSE[kind_of(value)] for value in values if value is None or not is_literal(value))


def _union(texts: Iterable[str]) -> str:
    members = dict.fromkeys(texts)
    if "Any" in members or not members:
        return "Any"
    return " | ".join(sorted(members, key=lambda each: each == "None"))
