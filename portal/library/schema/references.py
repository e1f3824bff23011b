"""Where the references of a schema lead: inside its own document, or nowhere. Nothing is ever fetched."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final
from urllib.parse import unquote, urljoin

from manifests.json_value import Json

MAX_CHAIN: Final = 30
"""References that lead to references without entering a value; a longer chain is cut."""

_MAX_SCANNED: Final = 5_000
_LONGEST_ADDRESS: Final = 2_000
_IN_PLACE_LISTS: Final = ("allOf", "anyOf")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a reference leads: `key` is the same for every spelling, `around` what the schema there is relative to."""

    key: str
    schema: Json
    around: str


class SchemaDocument:
    """One schema as its references see it.

    A subschema with an `$id` is a resource of its own: a reference in it, `#/$defs/a`, means its own `$defs`. So each
    reference is followed from a base, the address of the resource it stands in ("" if it has none).
    """

    def __init__(self, root: Json) -> None:
        self._root = root
        dialect = root.get("$schema") if isinstance(root, dict) else None
        drafts = dialect if isinstance(dialect, str) else ""
        self.references_stand_alone = any(f"draft-0{number}" in drafts for number in (3, 4, 6, 7))
        """Until draft 7, keywords beside a `$ref` meant nothing."""
        self._own_name = "id" if any(f"draft-0{number}" in drafts for number in (3, 4)) else "$id"
        self._base = self.base_within(root, "")

    def base_within(self, node: Json, around: str) -> str:
        """The base of what stands in a schema, which may name itself."""
        name = node.get(self._own_name) if isinstance(node, dict) else None
        if not isinstance(name, str) or (self.references_stand_alone and "$ref" in node):
            return around
        return _address(around, name.partition("#")[0])

    def find(self, word: str, reference: Json, base: str) -> Place | None:
        """The place that a reference leads to, if there is just one; `word` is its keyword."""
        if not isinstance(reference, str):
            return None
        if word != "$ref" and reference.rpartition("#")[2] in self._names.ambiguous:
            return None  # where it leads depends on who led here
        address, _, fragment = reference.partition("#")
        address, fragment = _address(base, address), unquote(fragment)
        if fragment and not fragment.startswith("/"):
            named = self._names.schemas.get(f"{address}#{fragment}")
            found, around = named or (None, "")
        else:
            resource = (self._root, "") if address == self._base else self._names.schemas.get(address)
            found, around = self._at(*resource, fragment) if resource else (None, "")
        if not isinstance(found, dict | bool):
            return None
        key = f"{'' if address == self._base else address}#{fragment}"
        return Place("#" if found is self._root else key, found, around)

    def _at(self, node: Json, around: str, pointer: str) -> tuple[Json, str]:
        """What an RFC 6901 pointer leads to, or None, and the base around it."""
        for step in pointer.split("/")[1:]:
            around = self.base_within(node, around)
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(node, dict):
                node = node.get(key)
            elif isinstance(node, list) and key.isdecimal() and len(key) < 7 and int(key) < len(node):
                node = node[int(key)]
            else:
                return None, around
        return node, around

    @cached_property
    def _names(self) -> "_Names":
        names = _Names()
        level: list[tuple[Json, str]] = [(self._root, "")]
        left = _MAX_SCANNED
        while level and left > 0:  # nearest first
            left -= len(level)
            for node, around in level:
                if isinstance(node, dict):
                    names.add(node, around, self.base_within(node, around))
            level = [
                (child, self.base_within(node, around))
                for node, around in level
                if isinstance(node, dict | list)
                for child in (node.values() if isinstance(node, dict) else node)
            ]
        return names


@dataclass(frozen=True)
class _Names:
    """Subschemas that name themselves, by address and `address#anchor`, each with the base around it.

    `ambiguous` are the fragments of dynamic references that several schemas answer to.
    """

    schemas: dict[str, tuple[Json, str]] = field(default_factory=dict)
    ambiguous: set[str] = field(default_factory=set)
    _dynamic: set[str] = field(default_factory=set)

    def add(self, node: dict[str, Json], around: str, base: str) -> None:
        for word in ("$id", "id"):
            name = node.get(word)
            if isinstance(name, str):
                address, _, anchor = name.partition("#")
                whole = _address(around, address) + (f"#{anchor}" if anchor else "")
                self.schemas.setdefault(whole, (node, around))
        for word in ("$anchor", "$dynamicAnchor"):
            if isinstance(node.get(word), str):
                self.schemas.setdefault(f"{base}#{node[word]}", (node, around))
        dynamic = "" if node.get("$recursiveAnchor") is True else node.get("$dynamicAnchor")
        if isinstance(dynamic, str):
            (self.ambiguous if dynamic in self._dynamic else self._dynamic).add(dynamic)


def _address(base: str, relative: str) -> str:
    relative = relative[:_LONGEST_ADDRESS]
    try:
        return urljoin(base, relative)[:_LONGEST_ADDRESS]
    except ValueError:  # no address at all
        return relative


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
        for node in in_place(self._definitions[reference]):
            target = node.get("$ref")
            if target is None:
                continue
            if target in chain or len(chain) >= MAX_CHAIN:
                del node["$ref"]
                self.cuts.append(target)
            else:
                self.visit(target, chain)
        self._done.add(reference)


def in_place(node: Json) -> Iterator[dict[str, Any]]:
    """The node and the subschemas that look at the very same value."""
    if not isinstance(node, dict):
        return
    yield node
    for word in _IN_PLACE_LISTS:
        for member in node.get(word, ()):
            yield from in_place(member)
    for member in node.get("dependentSchemas", {}).values():
        yield from in_place(member)
