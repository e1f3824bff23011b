"""Schemas that are said in several places at once (`allOf`, keywords beside a reference) made one."""

from collections.abc import Iterator
from typing import Any, Final

from manifests.json_value import Json
from portal.library.schema.json_kinds import is_same
from portal.library.schema.sound_schema import SoundNode, SoundSchema

_TYPE_WORDS: Final = frozenset(
    {
        "type",
        "enum",
        "properties",
        "additionalProperties",
        "patternValues",
        "items",
        "prefixItems",
        "anyOf",
        "allOf",
    }
)
_ANNOTATIONS: Final = ("title", "description", "default", "examples", "deprecated", "format", "pattern")
_MAX_PARTS: Final = 60


def carries_type(node: SoundNode) -> bool:
    """Whether a schema says anything that a type can show."""
    return isinstance(node, dict) and not _TYPE_WORDS.isdisjoint(node)


def merged(schema: SoundSchema, node: dict[str, Any]) -> dict[str, Any]:
    """One schema without `allOf` that says, as far as types go, what all parts of this one say together.

    A single reference that carries the whole type stays a reference, so that its name is kept.
    """
    own = {word: value for word, value in node.items() if word not in ("$ref", "allOf")}
    members = [member for member in node.get("allOf", ()) if isinstance(member, dict)]
    if "$ref" in node:
        members.insert(0, {"$ref": node["$ref"]})
    telling = [member for member in members if "$ref" in member or carries_type(member)]
    if len(telling) == 1 and not carries_type(own) and set(telling[0]) - set(_ANNOTATIONS) == {"$ref"}:
        return telling[0]
    whole: dict[str, Any] = {word: own[word] for word in _ANNOTATIONS if word in own}
    for part in _parts(schema, [own, *members]):
        _take(whole, part)
    return whole


def _parts(schema: SoundSchema, nodes: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """All parts, references and inner `allOf`s followed, nearest first."""
    left = _MAX_PARTS
    while nodes and left > 0:
        left -= 1
        node = nodes.pop(0)
        inner = [member for member in node.get("allOf", ()) if isinstance(member, dict)]
        if "$ref" in node:
            target = schema.definitions[node["$ref"]]
            inner += [target] if isinstance(target, dict) else []
        yield node
        nodes[:0] = inner


def _take(whole: dict[str, Any], part: dict[str, Any]) -> None:
    """Add what a further part asks for; where two contradict one another, the earlier one stays."""
    for key, child in part.get("properties", {}).items():
        properties = whole.setdefault("properties", {})
        properties[key] = _both(properties.get(key, True), child)
    if "required" in part:
        whole["required"] = [*whole.get("required", ()), *part["required"]]
    if "type" in part:
        whole["type"] = _common_types(whole.get("type", part["type"]), part["type"]) or whole["type"]
    if "enum" in part:
        known = [value for value in whole.get("enum", part["enum"]) if _holds(part["enum"], value)]
        whole["enum"] = known or whole["enum"]
    for word in ("prefixItems", "anyOf"):
        if word in part:
            whole.setdefault(word, part[word])
    for word in ("additionalProperties", "items", "patternValues"):
        if part.get(word, True) is not True:
            whole[word] = False if part[word] is False else _both(whole.get(word, True), part[word])
    if "title" in part:
        whole.setdefault("title", part["title"])


def _both(one: SoundNode, other: SoundNode) -> SoundNode:
    """What fits both of two schemas."""
    if one is True or one == other:
        return other
    return one if other is True or one is False else {"allOf": [one, other]}


def _common_types(one: list[str], other: list[str]) -> list[str]:
    """The types of the values that are of one of each; every integer is a number."""
    either = [name for name in ("integer", "number") if name in one or name in other]
    are_numbers = either == ["integer", "number"] and {"integer", "number"}.isdisjoint({*one} & {*other})
    return [name for name in one if name in other] + (["integer"] if are_numbers else [])


def _holds(values: list[Json], value: Json) -> bool:
    return any(is_same(each, value) for each in values)
