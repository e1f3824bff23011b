"""Where the references of a schema lead: inside its own document, or nowhere. Nothing is ever fetched."""

from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

from manifests.json_value import Json

MAX_CHAIN: Final = 30
"""References that lead to references without entering a value; a longer chain is cut."""

_MAX_SCANNED: Final = 5_000
_IN_PLACE_LISTS: Final = ("allOf", "anyOf")


class SchemaDocument:
    """One schema as its references see it."""

    def __init__(self, root: Json) -> None:
        self._root = root
        dialect = root.get("$schema") if isinstance(root, dict) else None
        self.references_stand_alone = isinstance(dialect, str) and any(
            f"draft-0{number}" in dialect for number in (3, 4, 6, 7)
        )
        """Until draft 7, keywords beside a `$ref` meant nothing."""
        self._named: dict[str, Json] | None = None

    def find(self, reference: Json) -> tuple[str, Json] | None:
        """The place a reference leads to, under one spelling per place, and what stands there."""
        if not isinstance(reference, str):
            return None
        address, _, fragment = reference.partition("#")
        fragment = unquote(fragment)
        base: Json = self._root
        if address and address != self._own_address():
            base = self._names().get(address)
        if base is None or (fragment and not fragment.startswith("/")):
            found = self._names().get(f"#{fragment}") if base is not None else None
        else:
            found = _at(base, fragment)
        if not isinstance(found, dict | bool):
            return None
        return ("#" if found is self._root else f"{address}#{fragment}"), found

    def _own_address(self) -> Json:
        return (self._root.get("$id") or self._root.get("id")) if isinstance(self._root, dict) else None

    def _names(self) -> dict[str, Json]:
        """Subschemas that name themselves: `$id` as written, `$anchor` with `#` in front."""
        if self._named is None:
            self._named = {}
            for node in _dicts(self._root):
                for word, mark in (("$id", ""), ("id", ""), ("$anchor", "#"), ("$dynamicAnchor", "#")):
                    name = node.get(word)
                    if isinstance(name, str):
                        self._named.setdefault(mark + name, node)
        return self._named


def cut_endless_references(definitions: Mapping[str, Json]) -> list[str]:
    """Take out references that come back to themselves without entering a value; say which were cut.

    `{"a": {"anyOf": [{"$ref": a}, ...]}}` would be followed for ever; `{"properties": {"a": {"$ref": a}}}`
    ends with the value it describes.
    """
    walk = _InPlaceWalk(definitions)
    for reference in definitions:
        walk.visit(reference, ())
    return walk.cuts


class _InPlaceWalk:
    """A depth-first walk from definition to definition, along references that do not enter a value."""

    def __init__(self, definitions: Mapping[str, Json]) -> None:
        self.cuts: list[str] = []
        self._definitions = definitions
        self._done: set[str] = set()

    def visit(self, reference: str, chain: tuple[str, ...]) -> None:
        if reference in self._done:
            return
        chain = (*chain, reference)
        for node in _in_place(self._definitions[reference]):
            target = node.get("$ref")
            if target is None:
                continue
            if target in chain or len(chain) >= MAX_CHAIN:
                del node["$ref"]
                self.cuts.append(target)
            else:
                self.visit(target, chain)
        self._done.add(reference)


def _in_place(node: Json) -> Iterator[dict[str, Any]]:
    """The node and the subschemas that look at the very same value."""
    if not isinstance(node, dict):
        return
    yield node
    for word in _IN_PLACE_LISTS:
        for member in node.get(word, ()):
            yield from _in_place(member)
    for member in node.get("dependentSchemas", {}).values():
        yield from _in_place(member)


def _at(node: Json, pointer: str) -> Json:
    """What an RFC 6901 pointer leads to, or None."""
    for step in pointer.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict):
            node = node.get(key)
        elif isinstance(node, list) and key.isdecimal() and len(key) < 7 and int(key) < len(node):
            node = node[int(key)]
        else:
            return None
    return node


def _dicts(root: Json) -> Iterator[dict[str, Json]]:
    """All objects of a document, nearest first, at most `_MAX_SCANNED` values."""
    level = [root]
    left = _MAX_SCANNED
    while level and left > 0:
        left -= len(level)
        yield from (node for node in level if isinstance(node, dict))
        level = [
            child
            for node in level
            if isinstance(node, dict | list)
            for child in (node.values() if isinstance(node, dict) else node)
        ]
