"""Which properties a schema declares for an object."""

from collections.abc import Mapping
from typing import Final

from portal.library.schema.sound_schema import SoundNode

_MAX_DEPTH: Final = 10


def declared_names(definitions: Mapping[str, SoundNode], node: SoundNode, depth: int = 0) -> set[str]:
    """The properties that an object is declared to have; of several kinds of objects, none."""
    if not isinstance(node, dict) or depth > _MAX_DEPTH:
        return set()
    parts = [*node.get("allOf", ()), *([definitions[node["$ref"]]] if "$ref" in node else [])]
    kinds_of_objects = [declared_names(definitions, member, depth + 1) for member in node.get("anyOf", ())]
    only = [names for names in kinds_of_objects if names]
    named = [declared_names(definitions, part, depth + 1) for part in parts]
    return set(node.get("properties", ())).union(*named, *(only if len(only) == 1 else ()))
