"""Which properties a schema declares for an object."""

from collections.abc import Mapping
from typing import Final

from portal.library.schema.sound_schema import SoundNode

_MAX_DEPTH: Final = 10


def declared_names(definitions: Mapping[str, SoundNode], node: SoundNode) -> set[str]:
    """The properties that an object is declared to have; of several kinds of objects, none."""
    return _names(definitions, node, 0, {})


def _names(
    definitions: Mapping[str, SoundNode], node: SoundNode, depth: int, known: dict[str, set[str]]
) -> set[str]:
    """`known` are those of definitions: references to references may lead to one in countless ways."""
    if not isinstance(node, dict) or depth > _MAX_DEPTH:
        return set()
    kinds_of_objects = [_names(definitions, member, depth + 1, known) for member in node.get("anyOf", ())]
    only = [names for names in kinds_of_objects if names]
    named = [_names(definitions, part, depth + 1, known) for part in node.get("allOf", ())]
    if "$ref" in node:
        place = node["$ref"]
        if place not in known:
            known[place] = set()
            known[place] = _names(definitions, definitions[place], depth + 1, known)
        named.append(known[place])
    return set(node.get("properties", ())).union(*named, *(only if len(only) == 1 else ()))
