"""JSON Schema to Python types: the annotation of a value, and the typed dicts it needs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from manifests.json_value import Json
from portal.library.literals import is_literal
from portal.library.schema.hints import value_doc
from portal.library.schema.json_kinds import is_kind, kind_of
from portal.library.schema.merging import carries_type, merged
from portal.library.schema.sound_schema import SoundNode, SoundSchema
from portal.library.tool_types import ToolTypes
from portal.library.type_definitions import Field
from portal.library.type_expressions import (
    ANY,
    NONE,
    DictOf,
    ListOf,
    Literal,
    Named,
    Type,
    Union,
    Word,
    literal,
    render,
    union,
)
from portal.library.type_names import LONGEST_TYPE_NAME, is_telling, title_name, type_name

MAX_NODES: Final = 2_000
"""Subschemas of one schema that get a type, each time they are reached; those beyond are `Any`."""

MAX_DEPTH: Final = 40
"""Types within one another, references followed; those beneath are `Any`."""

MAX_FIELDS: Final = 250
"""Keys of a typed dict; an object with more is a `dict[str, Any]`."""

MAX_ALTERNATIVES: Final = 40
MAX_LITERALS: Final = 300

LONGEST_INLINE_LITERAL: Final = 160
"""Characters of a literal that stand where it is used; a longer one gets a name."""


@dataclass(slots=True)
class _OpenReference:
    """A definition whose type is being made; `wanted` is set once it is sure to be a typed dict."""

    wanted: str = ""
    claimed: str | None = None
    is_nullable: bool = False


class SchemaTypes:
    """The types of one sound schema. A reference to a type that is still being made is its name, so that
    recursive schemas become recursive types; where no typed dict stands between, it is `Any`.
    """

    def __init__(self, schema: SoundSchema, owner: str, types: ToolTypes) -> None:
        self.notes: list[str] = []
        self._schema = schema
        self._owner = owner
        self._types = types
        self._left = MAX_NODES
        self._depth = 0
        self._open: dict[str, _OpenReference] = {}
        self._finished: dict[str, Type] = {}

    def property_type(self, key: str, node: SoundNode) -> Type:
        """The type of one of the tool's own parameters: `CreateIssueLabels`, but not `CreateIssueIssue`."""
        is_repetition = self._owner.endswith(type_name(key) or "?")
        return self._type(node, self._owner if is_repetition else self._nested(self._owner, key))

    def result_type(self, node: SoundNode) -> Type:
        """The type of the tool's result, the root or what its wrapper holds."""
        place = f"{self._owner}Result"
        if self._schema.definitions.get("#") is node:
            return self._referred("#", place)
        return self._type(node, place)

    def _type(self, node: SoundNode, place: str, reference: str | None = None) -> Type:
        if not isinstance(node, dict):
            return ANY
        self._left -= 1
        if self._left < 0 or self._depth >= MAX_DEPTH:
            self._note(
                "has more types, or types deeper within one another, than a stub can show; the rest is Any"
            )
            return ANY
        self._depth += 1
        type_ = self._described(node, place, reference)
        self._depth -= 1
        return type_

    def _described(self, node: dict[str, Any], place: str, reference: str | None) -> Type:
        if "$ref" in node and not carries_type(node):
            return self._referred(node["$ref"], place)
        if "$ref" in node or "allOf" in node:
            return self._type(merged(self._schema, node), place, reference)
        if "anyOf" in node:
            return self._alternatives(node, place)
        if "enum" in node:
            return self._enum(node, place)
        kinds = node.get("type") or _implied_kinds(node)
        if not kinds:
            return ANY
        if not {"object", "null"}.issuperset(kinds):
            reference = None
        return union([self._of_kind(kind, node, place, reference) for kind in kinds])

    def _of_kind(self, kind: str, node: dict[str, Any], place: str, reference: str | None) -> Type:
        if kind == "object":
            return self._object(node, place, reference)
        if kind == "array":
            return self._array(node, place)
        return _SCALARS[kind]

    def _referred(self, reference: str, place: str) -> Type:
        reference = self._end_of_chain(reference)
        if reference in self._finished:
            return self._finished[reference]
        opened = self._open.get(reference)
        if opened is not None:
            return self._recursion(opened)
        self._open[reference] = _OpenReference()
        name = _definition_name(reference) or place
        type_ = self._type(self._schema.definitions[reference], name, reference)
        del self._open[reference]
        self._finished[reference] = type_
        return type_

    def _end_of_chain(self, reference: str) -> str:
        """The first definition that is more than a reference to another; chains never come back."""
        node = self._schema.definitions[reference]
        while isinstance(node, dict) and "$ref" in node and not carries_type(node):
            reference = node["$ref"]
            node = self._schema.definitions[reference]
        return reference

    def _recursion(self, opened: _OpenReference) -> Type:
        if not opened.wanted:
            self._note("has a type that is made of itself; the inner one is Any")
            return ANY
        if opened.claimed is None:
            opened.claimed = self._types.claim(opened.wanted)
        named = Named(opened.claimed)
        return union([named, NONE]) if opened.is_nullable else named

    def _object(self, node: dict[str, Any], place: str, reference: str | None) -> Type:
        other: SoundNode | None = node.get("additionalProperties", node.get("patternValues"))
        required = dict.fromkeys(node.get("required", ()))
        properties: dict[str, SoundNode] = {**(node.get("properties") or {})}
        if other is not False:  # what is required is a field although nothing else is said about it
            properties |= {key: other or True for key in required if key not in properties}
        if not properties and other is not False:
            return DictOf(self._type(other, place) if isinstance(other, dict) else ANY)
        if len(properties) > MAX_FIELDS or self._types.is_full:
            self._note("has more types or properties than a stub can show; some are dict[str, Any]")
            return DictOf(ANY)
        name = title_name(node.get("title")) or place
        opened = self._open[reference] if reference else _OpenReference()
        opened.wanted, opened.is_nullable = name, "null" in node.get("type", ())
        fields = tuple(
            Field(
                key,
                self._type(child, self._nested(name, key)),
                key in required,
                value_doc(child),
            )
            for key, child in properties.items()
        )
        extra = None
        if other is not None and other is not False:
            extra = self._type(other, self._nested(name, "value"))
        return self._types.typed_dict(name, opened.claimed, fields, extra)

    def _array(self, node: dict[str, Any], place: str) -> Type:
        items = [*node.get("prefixItems", ())]
        if isinstance(node.get("items"), dict):
            items.append(node["items"])
        return ListOf(union([self._type(item, place) for item in items[:MAX_ALTERNATIVES]]) if items else ANY)

    def _alternatives(self, node: dict[str, Any], place: str) -> Type:
        base = {word: value for word, value in node.items() if word != "anyOf"}
        members = [member for member in node["anyOf"] if member is not False]
        telling = [member for member in members if member is True or carries_type(member) or "$ref" in member]
        if not telling or (carries_type(base) and len(telling) < len(members)):
            return self._type(base, place)
        if len(telling) > MAX_ALTERNATIVES:
            self._note("has more alternatives than a stub can show; Any")
            return ANY
        if carries_type(base):
            telling = [merged(self._schema, {"allOf": [member, base]}) for member in telling]
        elif len(telling) < len(members):
            return ANY
        return union([self._type(member, place) for member in telling])

    def _enum(self, node: dict[str, Any], place: str) -> Type:
        values = node["enum"]
        if "type" in node:
            values = [value for value in values if is_kind(value, node["type"])]
        if len(values) > MAX_LITERALS:
            return union([_loose_type(value) for value in values])
        if not values:
            return union([_SCALARS.get(kind, ANY) for kind in node["type"]])
        exact = literal([value for value in values if is_literal(value)])
        loose = [_loose_type(value) for value in values if not is_literal(value)]
        type_ = union([exact, *loose]) if len(loose) < len(values) else union(loose)
        if len(render(type_)) <= LONGEST_INLINE_LITERAL or self._types.is_full:
            return type_
        return self._named_literal(type_, title_name(node.get("title")) or place)

    def _named_literal(self, type_: Type, name: str) -> Type:
        """A name for the long literal in a type, so that `None` still stands where the type is used."""
        members = type_.members if isinstance(type_, Union) else (type_,)
        return union([self._types.alias(name, m) if isinstance(m, Literal) else m for m in members])

    def _nested(self, name: str, key: str) -> str:
        """What a type is called that has no better name, after where it sits: `CreateIssueLabels`."""
        part = type_name(key) or "Value"
        nested = f"{name}{part}"
        return nested if len(nested) <= LONGEST_TYPE_NAME else f"{self._owner}{part}"

    def _note(self, message: str) -> None:
        if message not in self.notes:
            self.notes.append(message)


def _definition_name(reference: str) -> str:
    """What the schema's author called a definition; "" for a reference to somewhere else in the document."""
    parts = reference.rsplit("/", 2)
    name = type_name(parts[-1]) if len(parts) == 3 and parts[1] in _DEFINITION_FOLDERS else ""
    return name if is_telling(name) else ""


def _implied_kinds(node: dict[str, Any]) -> tuple[str, ...]:
    """What a schema without `type` plainly describes."""
    if _OBJECT_WORDS & node.keys():
        return ("object",)
    return ("array",) if _ARRAY_WORDS & node.keys() else ()


def _loose_type(value: Json) -> Type:
    kind = kind_of(value)
    if kind == "object":
        return DictOf(ANY)
    return ListOf(ANY) if kind == "array" else _SCALARS[kind]


_SCALARS: Final[Mapping[str, Type]] = {
    "string": Word("str"),
    "integer": Word("int"),
    "number": Word("float"),
    "boolean": Word("bool"),
    "null": NONE,
}
_OBJECT_WORDS: Final = frozenset({"properties", "additionalProperties", "patternValues"})
_ARRAY_WORDS: Final = frozenset({"items", "prefixItems"})
_DEFINITION_FOLDERS: Final = frozenset({"$defs", "definitions", "schemas"})
