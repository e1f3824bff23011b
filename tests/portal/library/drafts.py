"""A schema of 2020-12 as the older drafts would have written it, and the reference validator of each draft."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import jsonschema

from manifests.json_value import Json

VALIDATORS: Final[Mapping[str, Any]] = {
    "http://json-schema.org/draft-04/schema#": jsonschema.Draft4Validator,
    "http://json-schema.org/draft-06/schema#": jsonschema.Draft6Validator,
    "http://json-schema.org/draft-07/schema#": jsonschema.Draft7Validator,
    "https://json-schema.org/draft/2019-09/schema": jsonschema.Draft201909Validator,
    "https://json-schema.org/draft/2020-12/schema": jsonschema.Draft202012Validator,
}


def written_in(draft: str, schema: Json) -> Json:
    """The schema with the words of a draft, which it names."""
    steps: list[Callable[[dict[str, Json]], None]] = []
    if "2020-12" not in draft:
        steps.append(_items_as_list)
    if "2019-09" not in draft and "2020-12" not in draft:
        steps += [_definitions, _dependencies, _reference_alone]
    if "draft-04" in draft:
        steps += [_const_as_enum, _exclusive_as_flag, _true_as_object]
    return {**_changed(schema, steps), "$schema": draft}


def is_valid(draft: str, schema: Json, value: Json) -> bool:
    return bool(VALIDATORS[draft](schema).is_valid(value))


def _changed(node: Json, steps: list[Callable[[dict[str, Json]], None]]) -> Json:
    if isinstance(node, list):
        return [_changed(each, steps) for each in node]
    if not isinstance(node, dict):
        return node
    changed = {
        key: child if key in ("enum", "const") else _changed(child, steps) for key, child in node.items()
    }
    for step in steps:
        step(changed)
    return changed


def _items_as_list(node: dict[str, Json]) -> None:
    if "prefixItems" in node:
        rest = node.pop("items", True)
        node["items"] = node.pop("prefixItems")
        node["additionalItems"] = rest


def _definitions(node: dict[str, Json]) -> None:
    if "$defs" in node:
        node["definitions"] = node.pop("$defs")
    if isinstance(node.get("$ref"), str):
        node["$ref"] = node["$ref"].replace("#/$defs/", "#/definitions/")


def _dependencies(node: dict[str, Json]) -> None:
    for word in ("dependentRequired", "dependentSchemas"):
        if isinstance(node.get(word), dict):
            node["dependencies"] = {**node.get("dependencies", {}), **node.pop(word)}


def _reference_alone(node: dict[str, Json]) -> None:
    """Until draft 7 nothing counts beside a reference, not even the definitions that a root has."""
    if isinstance(node.get("$ref"), str) and "definitions" in node:
        node["allOf"] = [{"$ref": node.pop("$ref")}, *node.get("allOf", [])]


def _const_as_enum(node: dict[str, Json]) -> None:
    if "const" in node:
        node["enum"] = [node.pop("const")]


def _exclusive_as_flag(node: dict[str, Json]) -> None:
    bound = node.get("exclusiveMaximum")
    if isinstance(bound, int) and not isinstance(bound, bool):
        node["maximum"], node["exclusiveMaximum"] = bound, True


def _true_as_object(node: dict[str, Json]) -> None:
    """Draft 4 has no boolean schemas, but for what may be beyond."""
    for word, child in node.items():
        if child is True and word in ("items", "additionalItems"):
            node[word] = {}
    if node.get("items") is False:
        node["items"] = {"not": {}}
