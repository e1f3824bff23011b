"""What a result looks like, in one line: `{items: list[{id: int}], total: int}`."""

from typing import Any, Final

from manifests.json_value import SoundNode
from portal.library.plain_text import one_line

_MAX_KEYS: Final = 10
_NAMES: Final = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}


def shape_text(node: SoundNode, depth: int = 3) -> str:
    """The types of a schema, as far as it says some and `depth` levels show; "Any" for the rest."""
    if not isinstance(node, dict):
        return "Any"
    if "$ref" in node:
        return shape_text(node["$ref"].schema, depth - 1) if depth else "Any"
    if "anyOf" in node:
        return " | ".join(dict.fromkeys(shape_text(each, depth) for each in node["anyOf"]))
    kinds = node.get("type", ["object"] if "properties" in node else [])
    return " | ".join(_kind_text(kind, node, depth) for kind in kinds) or "Any"


def _kind_text(kind: str, node: dict[str, Any], depth: int) -> str:
    if kind == "array":
        return f"list[{shape_text(node.get('items', True), depth - 1)}]" if depth else "list"
    if kind != "object":
        return _NAMES[kind]
    properties = node.get("properties", {})
    if not (properties and depth):
        return "dict"
    fields = [f"{one_line(name, 40)}: {shape_text(each, depth - 1)}" for name, each in properties.items()]
    return f"{{{', '.join(fields[:_MAX_KEYS])}{', ...' if len(fields) > _MAX_KEYS else ''}}}"
