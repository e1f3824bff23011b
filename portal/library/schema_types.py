"""JSON Schema to Python types: the annotation of a value, and the typed dicts it needs."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from manifests.json_value import Json
from manifests.schema_validation import Reference, SoundNode
from portal.library.plain_text import default_text, is_literal, one_line
from portal.library.schema import ANNOTATIONS, is_kind, kind_of
from portal.library.stub_types import ANY, Field, StubTypes, Type, literal, union

MAX_NODES: Final = 2_000
"""Subschemas of one tool that get a type, each time they are reached; those beyond are `Any`."""

MAX_DEPTH: Final = 40
"""Types within one another, references followed; those beneath are `Any`."""

MAX_FIELDS: Final = 250
"""Keys of a typed dict; an object with more is a `dict[str, Any]`."""

MAX_LITERALS: Final = 300
"""Values of one `enum`; of more only their types are told."""

LONGEST_INLINE_LITERAL: Final = 160
"""Characters of a literal that stand where it is used; a longer one gets a name."""

LONGEST_TYPE_NAME: Final = 48

_MAX_PARTS: Final = 60


class SchemaTypes:
    """The types of one tool's sound schemas; `owner` is what its own types are called by.

    Where a type is made of itself, the inner one is `Any`.
    """

    def __init__(self, owner: str, types: StubTypes) -> None:
        self._owner = owner
        self._types = types
        self._left = MAX_NODES
        self._depth = 0
        self._open: set[Reference] = set()
        self._finished: dict[Reference, Type] = {}

    def property_type(self, key: str, node: SoundNode) -> Type:
        """The type of one of the tool's own parameters: `CreateIssueLabels`, but not `CreateIssueIssue`."""
        is_repetition = self._owner.endswith(type_name(key) or "?")
        return self._type(node, self._owner if is_repetition else self._nested(self._owner, key))

    def result_type(self, node: SoundNode) -> Type:
        """The type of the tool's result."""
        return self._type(node, f"{self._owner}Result")

    def _type(self, node: SoundNode, place: str) -> Type:
        if not isinstance(node, dict):
            return ANY
        self._left -= 1
        if self._left < 0 or self._depth >= MAX_DEPTH:
            return ANY
        self._depth += 1
        type_ = self._described(node, place)
        self._depth -= 1
        return type_

    def _described(self, node: dict[str, Any], place: str) -> Type:
        if "$ref" in node and not carries_type(node):
            return self._referred(node["$ref"], place)
        if "$ref" in node or "allOf" in node:
            return self._type(merged(node), place)
        if "anyOf" in node:
            return self._alternatives(node, place)
        if "enum" in node:
            return self._enum(node, place)
        kinds = node.get("type") or _implied_kinds(node)
        return union([self._of_kind(kind, node, place) for kind in kinds])

    def _of_kind(self, kind: str, node: dict[str, Any], place: str) -> Type:
        if kind == "object":
            return self._object(node, place)
        if kind == "array":
            items = [*node.get("prefixItems", ()), node.get("items", False)]
            items = [each for each in items if each is not False] or [True]
            return self._types.list_of(union([self._type(each, place) for each in items]))
        return self._scalar(kind)

    def _referred(self, reference: Reference, place: str) -> Type:
        if reference in self._finished:
            return self._finished[reference]
        if reference in self._open:
            return ANY
        self._open.add(reference)
        type_ = self._type(reference.schema, _definition_name(reference.name) or place)
        self._open.remove(reference)
        self._finished[reference] = type_
        return type_

    def _object(self, node: dict[str, Any], place: str) -> Type:
        other: SoundNode | None = node.get("additionalProperties")
        required = dict.fromkeys(node.get("required", ()))
        properties: dict[str, SoundNode] = {**(node.get("properties") or {})}
        if other is not False:  # what is required is a field although nothing else is said about it
            properties |= {key: other or True for key in required if key not in properties}
        if not properties and other is not False:
            return self._types.dict_of(self._type(other, place) if isinstance(other, dict) else ANY)
        if len(properties) > MAX_FIELDS:
            return self._types.dict_of(ANY)
        name = title_name(node.get("title")) or place
        fields = []
        for key, child in properties.items():
            type_ = self._types.text(self._type(child, self._nested(name, key)))
            fields.append(Field(key, type_, key in required, value_doc(child)))
        extra = (
            self._type(other, self._nested(name, "value"))
            if other is not None and other is not False
            else None
        )
        return self._types.typed_dict(self._owner, name, fields, extra)

    def _alternatives(self, node: dict[str, Any], place: str) -> Type:
        base = {word: value for word, value in node.items() if word != "anyOf"}
        members = [member for member in node["anyOf"] if member is not False]
        telling = [member for member in members if member is True or carries_type(member) or "$ref" in member]
        if not telling or (carries_type(base) and len(telling) < len(members)):
            return self._type(base, place)
        if carries_type(base):
            telling = [merged({"allOf": [member, base]}) for member in telling]
        elif len(telling) < len(members):
            return ANY
        return union([self._type(member, place) for member in telling])

    def _enum(self, node: dict[str, Any], place: str) -> Type:
        values = [value for value in node["enum"] if "type" not in node or is_kind(value, node["type"])]
        if len(values) > MAX_LITERALS:
            return union([self._loose(value) for value in values])
        exact = literal([value for value in values if is_literal(value)])
        loose = [self._loose(value) for value in values if not is_literal(value)]
        type_ = union([exact, *loose]) if len(loose) < len(values) else union(loose)
        if len(self._types.text(type_)) <= LONGEST_INLINE_LITERAL:
            return type_
        exact = tuple(member for member in type_ if member.startswith("="))
        name = title_name(node.get("title")) or place
        others = tuple(member for member in type_ if member not in exact)
        return (*self._types.alias(self._owner, name, exact), *others) if exact else type_

    def _loose(self, value: Json) -> Type:
        kind = kind_of(value)
        if kind in ("object", "array"):
            return self._types.dict_of(ANY) if kind == "object" else self._types.list_of(ANY)
        return self._scalar(kind)

    def _scalar(self, kind: str) -> Type:
        return (self._types.word(_SCALARS[kind]),)

    def _nested(self, name: str, key: str) -> str:
        """What a type is called that has no better name, after where it sits: `CreateIssueLabels`."""
        part = type_name(key) or "Value"
        nested = f"{name}{part}"
        return nested if len(nested) <= LONGEST_TYPE_NAME else f"{self._owner}{part}"


def carries_type(node: SoundNode) -> bool:
    """Whether a schema says anything that a type can show."""
    return isinstance(node, dict) and not _TYPE_WORDS.isdisjoint(node)


def merged(node: dict[str, Any]) -> dict[str, Any]:
    """One schema without `allOf` that says, as far as types go, what all parts of this one say together.

    A single reference that carries the whole type stays a reference, so that its name is kept.
    """
    own = {word: value for word, value in node.items() if word not in ("$ref", "allOf")}
    members = [member for member in node.get("allOf", ()) if isinstance(member, dict)]
    members = [{"$ref": node["$ref"]}, *members] if "$ref" in node else members
    telling = [member for member in members if "$ref" in member or carries_type(member)]
    if len(telling) == 1 and not carries_type(own) and telling[0].keys() - {*ANNOTATIONS} == {"$ref"}:
        return telling[0]
    whole: dict[str, Any] = {word: own[word] for word in (*ANNOTATIONS, "format", "pattern") if word in own}
    for part in parts([own, *members]):
        _take(whole, part)
    return whole


def parts(nodes: Iterable[SoundNode]) -> Iterator[dict[str, Any]]:
    """All parts of these schemas that hold together, references and inner `allOf`s followed, nearest first."""
    waiting = [*nodes]
    for _ in range(_MAX_PARTS):
        node = waiting.pop(0) if waiting else True
        if isinstance(node, dict):
            yield node
            waiting[:0] = [*node.get("allOf", ()), *([node["$ref"].schema] if "$ref" in node else [])]


def _take(whole: dict[str, Any], part: dict[str, Any]) -> None:
    """Add what a further part asks for; where two say different things of one value, the nearer one stays."""
    for key, child in part.get("properties", {}).items():
        properties = whole.setdefault("properties", {})
        nearer = properties.get(key, True)
        properties[key] = child if nearer is True else {"allOf": [nearer, child]}
    whole["required"] = [*whole.get("required", ()), *part.get("required", ())]
    for word in ("type", "enum", "items", "prefixItems", "additionalProperties", "anyOf", "title"):
        if word in part:
            whole.setdefault(word, part[word])


def value_doc(node: SoundNode) -> str:
    """A property's description with its hints behind it; plain text on one line, "" if there is nothing."""
    if not isinstance(node, dict):
        return ""
    text = one_line(node.get("description", ""), 200)
    hints = one_line("; ".join(_hints(node)), 160)
    return f"{text} ({hints})" if text and hints else text or hints


def _hints(node: dict[str, Any]) -> Iterator[str]:
    """What a type cannot say about a value, in a few words."""
    if node.get("deprecated"):
        yield "deprecated"
    if node.get("format") and node["format"] not in _SILENT_FORMATS:
        yield one_line(node["format"], 30)
    yield from _bounds(node)
    if 0 < len(node.get("pattern", "")) <= 60:
        yield f"pattern {node['pattern']}"
    for example in node.get("examples", ())[:1]:
        if text := default_text(example):
            yield f"e.g. {text}"


def _bounds(node: dict[str, Any]) -> Iterator[str]:
    for of, unit in (("imum", ""), ("Length", " characters"), ("Items", " items")):
        # That a text is not empty, or a number a number, goes without saying.
        least, most = (node.get(f"{bound}{of}") for bound in ("min", "max"))
        has_least = least is not None and abs(least) < _MOST and (not unit or least > 1)
        has_most = most is not None and abs(most) < _MOST
        if has_least or has_most:
            yield (
                f"{least} to {most}"
                if has_least and has_most
                else f">= {least}"
                if has_least
                else f"<= {most}"
            ) + unit
    for word, sign in (("exclusiveMinimum", ">"), ("exclusiveMaximum", "<"), ("multipleOf", "multiple of")):
        if word in node and abs(node[word]) < _MOST:
            yield f"{sign} {node[word]}"


def type_name(text: str) -> str:
    """A class name made of the text's ASCII words: `create_issue` -> `CreateIssue`; "" if it has none."""
    words = _WORDS.findall(text[: 4 * LONGEST_TYPE_NAME])
    name = "".join(word[0].upper() + word[1:] for word in words)[:LONGEST_TYPE_NAME]
    return f"Type{name}" if name[:1].isdigit() else name


def title_name(title: str | None) -> str:
    """The name that a schema's title gives its type; "" if there is none, or it says less than the place."""
    name = type_name(title or "")
    return name if len(name) > 1 and name not in _GENERIC else ""


def _definition_name(pointer: str) -> str:
    """What the schema's author called a definition; "" for a reference to somewhere else in the document."""
    parts = pointer.rsplit("/", 2)
    return title_name(parts[-1]) if len(parts) == 3 and parts[1] in _DEFINITION_FOLDERS else ""


def _implied_kinds(node: dict[str, Any]) -> tuple[str, ...]:
    """What a schema without `type` plainly describes."""
    if not {"properties", "additionalProperties"}.isdisjoint(node):
        return ("object",)
    return () if {"items", "prefixItems"}.isdisjoint(node) else ("array",)


_SCALARS: Final[Mapping[str, str]] = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "null": "None",
}
_TYPE_WORDS: Final = frozenset(
    "type enum properties additionalProperties items prefixItems anyOf allOf".split()  # noqa: SIM905
)
_DEFINITION_FOLDERS: Final = frozenset({"$defs", "definitions", "schemas"})
_SILENT_FORMATS: Final = frozenset({"int32", "int64", "float", "double", "string"})
_MOST: Final = 2**31
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+|[0-9]+")
_GENERIC: Final = frozenset(
    "Data Input Item Items Model Object Options Output Params Properties Response Result Root Schema Value".split()  # noqa: SIM905
)
