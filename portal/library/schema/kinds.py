"""The types of values that a schema takes at most."""

from typing import Final

from portal.library.schema.json_kinds import kind_of
from portal.library.schema.sound_schema import SoundNode, SoundSchema

_MAX_DEPTH: Final = 20
_NUMBERS: Final = frozenset({"integer", "number"})
_IN_TEXT: Final = _NUMBERS | {"array", "boolean", "object"}
"""What may stand in a text where it is wanted itself."""


def kinds(schema: SoundSchema, node: SoundNode) -> set[str] | None:
    """The types of values that a subschema allows at most; None if it may be any."""
    return _kinds(schema, node, 0, {})


def _kinds(
    schema: SoundSchema, node: SoundNode, depth: int, known: dict[str, set[str] | None]
) -> set[str] | None:
    """`known` are those of definitions: references to references may lead to one in countless ways."""
    if not isinstance(node, dict) or depth > _MAX_DEPTH:
        return None
    if "type" in node:
        return set(node["type"])
    if "enum" in node:
        return {kind_of(value) for value in node["enum"]}
    if "$ref" in node:
        place = node["$ref"]
        if place not in known:
            known[place] = None
            known[place] = _kinds(schema, schema.definitions.get(place, True), depth + 1, known)
        return known[place]
    if "anyOf" in node:
        each = [_kinds(schema, child, depth + 1, known) for child in node["anyOf"]]
        return None if None in each else {kind for found in each if found is not None for kind in found}
    return None


def mendable_kinds(schema: SoundSchema, node: SoundNode, depth: int = 0) -> set[str] | None:
    """The types of values that it allows, or that mending may turn into such; None if it may be any."""
    allowed = kinds(schema, node)
    if allowed is None or depth > _MAX_DEPTH:
        return None
    mendable = set(allowed)
    if allowed & _IN_TEXT:
        mendable.add("string")
    if "string" in allowed:
        mendable.add("integer")
    if "array" in allowed:
        of_items = mendable_kinds(schema, _items(schema, node), depth + 1)
        if of_items is None:
            return None
        mendable |= of_items
    return mendable


def fits(kind: str, allowed: set[str]) -> bool:
    """Whether some value of that type may be of an allowed one: 3.0 is an integer to JSON Schema."""
    return kind in allowed or (kind in _NUMBERS and bool(allowed & _NUMBERS))


def _items(schema: SoundSchema, node: SoundNode) -> SoundNode:
    """What an array may hold; anything, where that is not plain to see."""
    for _ in range(_MAX_DEPTH):
        if not isinstance(node, dict) or "$ref" not in node:
            break
        node = schema.definitions.get(node["$ref"], True)
    plain = isinstance(node, dict) and "prefixItems" not in node and "anyOf" not in node
    return node.get("items", True) if plain and isinstance(node, dict) else True
