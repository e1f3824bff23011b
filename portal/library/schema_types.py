"""Translates JSON Schema to Python types: the annotation of a value, and the definitions that it needs.

Text of a schema appears only in literals and comments.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, count
from keyword import iskeyword
from typing import Any, Final, TypeGuard

from manifests.json_value import Reference, SoundNode
from portal.base.plain_text import comment, default_text, is_literal, literal_text, one_line
from portal.library.notation import ANY, NONE, PYTHON_NOTATION, Notation, Type, union
from portal.library.schema import ANNOTATIONS, MAX_DEPTH, is_kind, kind_of

MAX_NODES: Final = 2_000
"""Subschemas of one tool that get a type, counted at each visit. Further ones are `Any`."""

MAX_FIELDS: Final = 250
"""Keys of a typed dict; an object with more is a `dict[str, Any]`. Further keywords of a function are untyped."""

MAX_LITERALS: Final = 300
"""Values of one `enum`. A larger one is shown by the types of its values."""

LONGEST_TYPE_NAME: Final = 48

_MAX_PARTS: Final = 60

TYPING_WORDS: Final = ("Any", "Literal", "NotRequired", "TypedDict")
BUILTIN_WORDS: Final = ("bool", "dict", "float", "int", "list", "str")

_RESERVED: Final = frozenset({*BUILTIN_WORDS, *TYPING_WORDS, "None", "True", "False"})
_SAYS_NOTHING: Final = re.compile(r"(?:list\[|dict\[str, )*Any\]*|None")
_WORD: Final = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|([^\W\d]\w*)")
"""A string, or a word outside of them."""


def says_nothing(type_: Type) -> bool:
    """Whether a type carries no information: `Any`, `dict[str, Any]`, `list[Any] | None`."""
    return all(map(_SAYS_NOTHING.fullmatch, type_)) and type_ != NONE


def respelt(source: str, spellings: Mapping[str, str]) -> str:
    """An annotation with `_list` for `list`, for a module whose function `list` shadows the builtin."""
    return _WORD.sub(lambda found: spellings.get(found[1], found[0]), source) if spellings else source


def _words(*sources: str) -> set[str]:
    """The names in these sources, without those in literals."""
    return {word for source in sources for word in _WORD.findall(source) if word}


@dataclass(frozen=True, slots=True)
class Field:
    """One wire key of a typed dict, and the source of its type. `doc` is plain text for its comment."""

    key: str
    type: str
    is_optional: bool
    doc: str = ""


@dataclass(frozen=True, slots=True)
class Definition:
    """A typed dict."""

    name: str
    others: str
    """The type of keys that have no field; "" if none is declared."""
    fields: tuple[Field, ...]

    def source(self, hidden: Mapping[str, str]) -> str:
        """The source in Python, without a final newline. `hidden` words are `respelt`."""
        is_partial = all(each.is_optional for each in self.fields)
        text = ", total=False" * is_partial + (f", extra_items={self.others}" if self.others else "")
        behind, rows = respelt(text, hidden), []
        for each in self.fields:
            type_ = f"NotRequired[{each.type}]" if each.is_optional and not is_partial else each.type
            rows.append((each.key, respelt(type_, hidden), comment(each.doc)))
        mentioned = _words(text, *(each.type for each in self.fields))
        base, taken = respelt("TypedDict", hidden), mentioned.union(TYPING_WORDS, BUILTIN_WORDS)
        if rows and all(_is_attribute(key, taken) for key, _, _ in rows):
            lines = [f"    {key}: {type_}{doc}" for key, type_, doc in rows]
            return "\n".join([f"class {self.name}({base}{behind}):", *lines])
        lines = [f"    {literal_text(key)}: {type_},{doc}" for key, type_, doc in rows]
        return "\n".join([f'{self.name} = {base}("{self.name}", {{', *lines, f"}}{behind})"])


def _is_attribute(key: str, taken: Collection[str]) -> bool:
    """Whether the key can be written as a class attribute without changing what annotations mean."""
    is_name = key.isascii() and key.isidentifier() and not iskeyword(key)
    return is_name and not key.startswith("__") and key not in taken


class Definitions:
    """The definitions of one namespace's module, by name, in one notation.

    Equal types become one, under the first name that it gets. If different types share a name, the first keeps it, and
    the others are prefixed with their function's name.
    """

    def __init__(self, functions: Collection[str], notation: Notation = PYTHON_NOTATION) -> None:
        self.notation = notation
        self.by_name: dict[str, Definition] = {}
        self.waiting: list[tuple[str, Reference]] = []
        """Typed dicts that several tools share. They have a name, but no fields yet."""
        self.left = len(functions) * MAX_NODES
        """Subschemas of shared typed dicts that may still get a type."""
        self._shared: dict[Reference, Type] = {}
        self._names: dict[tuple[str, tuple[Field, ...]], str] = {}
        self._numbers: defaultdict[str, Iterator[int]] = defaultdict(lambda: count(2))
        """By name: the numbers that tell further types of that name apart."""
        self._reserved = _RESERVED.union(functions)

    def define(self, owner: str, wanted: str, others: str, fields: tuple[Field, ...] = ()) -> Type:
        """Add a definition, if none is equal, and return its name."""
        known = self._names.get((others, fields))
        if known is None:
            own = wanted if wanted.startswith(owner) else f"{owner}{wanted}"
            names = chain((wanted, own), (f"{own}{number}" for number in self._numbers[own]))
            known = next(each for each in names if each not in self._reserved and each not in self.by_name)
            self._names[others, fields] = known
            self.by_name[known] = Definition(known, others, fields)
        return (known,)

    def promise(self, reference: Reference, wanted: str) -> Type:
        """Return the name of a shared typed dict. Its fields come later, because it may refer to itself."""
        if reference not in self._shared:
            (name,) = self._shared[reference] = self.define(wanted, wanted, f"{len(self._shared)}")
            self.waiting.append((name, reference))
        return self._shared[reference]


@dataclass
class SchemaTypes:
    """The types of one tool's sound schemas. `owner` prefixes the names of its own types.

    In a recursive type, the inner occurrence is `Any`, unless it is a shared typed dict.
    """

    _owner: str
    _definitions: Definitions
    _left: int = MAX_NODES
    _depth: int = 0
    _open: set[Reference] = field(default_factory=set)
    _finished: dict[Reference, Type] = field(default_factory=dict)

    @property
    def notation(self) -> Notation:
        return self._definitions.notation

    def property_type(self, key: str, node: SoundNode) -> Type:
        """The type of one of the tool's own parameters: `CreateIssueLabels`, but not `CreateIssueIssue`."""
        is_repetition = self._owner.endswith(type_name(key) or "?")
        return self._whole(node, self._owner if is_repetition else self._nested(self._owner, key))

    def result_type(self, node: SoundNode) -> Type:
        return self._whole(node, f"{self._owner}Result")

    def _whole(self, node: SoundNode, place: str) -> Type:
        """The type. Also gives the shared typed dicts that it needs their fields."""
        type_, definitions = self._type(node, place), self._definitions
        while definitions.waiting:
            name, reference = definitions.waiting.pop()
            types = SchemaTypes(name, definitions, definitions.left)
            assert isinstance(reference.schema, dict), "it is a typed dict"
            definitions.by_name[name] = Definition(name, *types._fields(reference.schema, name))
            definitions.left = types._left
        return type_

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
        if "$ref" in node:
            return self._referred(node["$ref"], place)
        if "allOf" in node:
            return self._type(merged(node), place)
        base = {word: value for word, value in node.items() if word != "anyOf"}
        if "anyOf" in node and not carries_type(base):
            return union(self._type(member, place) for member in node["anyOf"] if member is not False)
        if "enum" in node:
            return self._enum(node)
        is_object = "properties" in node or "additionalProperties" in node
        is_list = "items" in node or "prefixItems" in node
        kinds = node.get("type") or (["object"] if is_object else ["array"] if is_list else [])
        return union(self._of_kind(kind, node, place) for kind in kinds)

    def _of_kind(self, kind: str, node: dict[str, Any], place: str) -> Type:
        if kind == "object":
            return self._object(node, place)
        if kind == "array":
            items = [*node.get("prefixItems", ()), node.get("items", False)]
            items = [each for each in items if each is not False] or [True]
            return (self.notation.list_of(union(self._type(each, place) for each in items)),)
        return _LOOSE[kind]

    def _referred(self, reference: Reference, place: str) -> Type:
        if reference in self._finished:
            return self._finished[reference]
        if reference in self._open:
            return ANY
        *_, folder, name = f"/{reference.name}".split("/")
        name = type_name(name) if folder in ("$defs", "definitions", "schemas") else ""
        if reference.is_shared and name and _is_typed_dict(reference.schema):
            return self._definitions.promise(reference, type_name(reference.schema.get("title", "")) or name)
        self._open.add(reference)
        type_ = self._type(reference.schema, name or place)
        self._open.remove(reference)
        self._finished[reference] = type_
        return type_

    def _object(self, node: dict[str, Any], place: str) -> Type:
        properties, other = properties_of(node), node.get("additionalProperties", True)
        if not properties and other is not False:
            return (self.notation.dict_of(self._type(other, place)),)
        if len(properties) > MAX_FIELDS:
            return _LOOSE["object"]
        return self._typed_dict(node, place)

    def _typed_dict(self, node: dict[str, Any], place: str) -> Type:
        name = type_name(node.get("title", "")) or place
        return self._definitions.define(self._owner, name, *self._fields(node, name))

    def _fields(self, node: dict[str, Any], name: str) -> tuple[str, tuple[Field, ...]]:
        """The type of other keys, and the fields of a typed dict's definition."""
        other: SoundNode = node.get("additionalProperties", True)
        properties, required = properties_of(node), frozenset(node.get("required", ()))
        fields = []
        for key, child in properties.items():
            type_ = self.notation.text(self._type(child, self._nested(name, key)))
            fields.append(Field(key, type_, key not in required, value_doc(child)))
        is_open = other is not False and ("additionalProperties" in node or _has_alternative_keys(node))
        others = self.notation.text(self._type(other, self._nested(name, "value"))) if is_open else ""
        return others, tuple(fields)

    def _enum(self, node: dict[str, Any]) -> Type:
        values = [value for value in node["enum"] if "type" not in node or is_kind(value, node["type"])]
        exact = [value for value in values if is_literal(value)] if len(values) <= MAX_LITERALS else []
        loose = [_LOOSE[kind_of(value)] for value in values if not (exact and is_literal(value))]
        literal = self.notation.literal
        literals = union(NONE if value is None else (f"={literal(value)}",) for value in exact)
        return union([literals, *loose] if exact else loose)

    def _nested(self, name: str, key: str) -> str:
        """The name of a type without a title, after its place: `CreateIssueLabels`."""
        part = type_name(key) or "Value"
        return f"{name if len(name + part) <= LONGEST_TYPE_NAME else self._owner}{part}"


def properties_of(node: dict[str, Any]) -> dict[str, SoundNode]:
    """The keys of a typed dict. A required key is one even if nothing else is declared about it."""
    properties, other = node.get("properties", {}), node.get("additionalProperties", True)
    required = () if other is False else node.get("required", ())
    return {**properties, **{key: other for key in required if key not in properties}}


def _has_alternative_keys(node: dict[str, Any]) -> bool:
    """Whether alternatives beside an object's own keys have further ones, which only some of its values have."""
    found = (part.get("properties", {}) for part in parts(node.get("anyOf", ())))
    return any(each.keys() - node.get("properties", {}).keys() for each in found)


def _is_typed_dict(node: SoundNode) -> TypeGuard[dict[str, Any]]:
    """Whether a schema is just an object with some keys."""
    if not isinstance(node, dict) or not {"$ref", "allOf", "anyOf", "enum"}.isdisjoint(node):
        return False
    return node.get("type", ["object"]) == ["object"] and 0 < len(properties_of(node)) <= MAX_FIELDS


def carries_type(node: SoundNode) -> bool:
    """Whether a schema contains anything that a type can show."""
    return isinstance(node, dict) and not _TYPE_WORDS.isdisjoint(node)


def merged(node: dict[str, Any]) -> dict[str, Any]:
    """Merge all parts of an `allOf` into one schema without it, as far as types need.

    If a single reference carries the whole type, it stays a reference, so that its name is kept.
    """
    own = {word: value for word, value in node.items() if word != "allOf"}
    typed: list[dict[str, Any]] = [member for member in node["allOf"] if carries_type(member)]
    if len(typed) == 1 and not carries_type(own) and "$ref" in typed[0]:
        return typed[0]
    kept: dict[str, Any] = {word: own[word] for word in (*ANNOTATIONS, "format", "pattern") if word in own}
    return {**flattened([own, *node["allOf"]]), **kept}


def flattened(nodes: Iterable[SoundNode]) -> dict[str, Any]:
    """The schema of all parts together, as far as types need."""
    whole: dict[str, Any] = {}
    for part in parts(nodes):
        _take(whole, part)
    return whole


def parts(nodes: Iterable[SoundNode]) -> Iterator[dict[str, Any]]:
    """All parts that apply together, nearest first. References and inner `allOf`s are followed."""
    waiting = [*nodes]
    for _ in range(_MAX_PARTS):
        if not waiting:
            return
        node = waiting.pop(0)
        if isinstance(node, dict):
            yield node
            waiting[:0] = [*node.get("allOf", ()), *([node["$ref"].schema] if "$ref" in node else [])]


def _take(whole: dict[str, Any], part: dict[str, Any]) -> None:
    """Add the keywords of a further part. In a conflict, the nearer part wins."""
    if "properties" in part:
        whole["properties"] = {**part["properties"], **whole.get("properties", {})}
    whole["required"] = [*whole.get("required", ()), *part.get("required", ())]
    for word in ("type", "enum", "items", "prefixItems", "additionalProperties", "anyOf", "title"):
        if word in part:
            whole.setdefault(word, part[word])


def value_doc(node: SoundNode) -> str:
    """A property's description, followed by its hints, as plain text on one line; "" if it has none."""
    if not isinstance(node, dict):
        return ""
    text = one_line(node.get("description", ""), 200)
    hints = one_line("; ".join(_hints(node)), 160)
    return f"{text} ({hints})" if text and hints else text or hints


def _hints(node: dict[str, Any]) -> Iterator[str]:
    """Constraints that a type cannot express, in a few words each."""
    if node.get("deprecated"):
        yield "deprecated"
    if node.get("format"):
        yield one_line(node["format"], 30)
    yield from _bounds(node)
    if 0 < len(node.get("pattern", "")) <= 60:
        yield f"pattern {node['pattern']}"
    for example in node.get("examples", ())[:1]:
        if text := default_text(example):
            yield f"e.g. {text}"


def _bounds(node: dict[str, Any]) -> Iterator[str]:
    for of, unit in (("imum", ""), ("Length", " characters"), ("Items", " items")):
        least, most = node.get(f"min{of}"), node.get(f"max{of}")
        # Omit trivial bounds: a minimum length of 1, and bounds of 32-bit numbers.
        bounds = [] if least is None or abs(least) >= _MOST or (unit and least <= 1) else [f">= {least}"]
        bounds += [] if most is None or abs(most) >= _MOST else [f"<= {most}"]
        if bounds:
            yield (f"{least} to {most}" if len(bounds) == 2 else bounds[0]) + unit
    for word, sign in (("exclusiveMinimum", ">"), ("exclusiveMaximum", "<"), ("multipleOf", "multiple of")):
        if word in node and abs(node[word]) < _MOST:
            yield f"{sign} {node[word]}"


def type_name(text: str) -> str:
    """A class name from the text's ASCII words: `create_issue` -> `CreateIssue`; "" if it has none."""
    words = _NAME_WORDS.findall(text[: 4 * LONGEST_TYPE_NAME])
    name = "".join(word[0].upper() + word[1:] for word in words)[:LONGEST_TYPE_NAME]
    return f"Type{name}" if name[:1].isdigit() else name


_LOOSE: Final[Mapping[str, Type]] = {
    "string": ("str",),
    "integer": ("int",),
    "number": ("float",),
    "boolean": ("bool",),
    "null": NONE,
    "object": ("dict[str, Any]",),
    "array": ("list[Any]",),
}
_TYPE_WORDS: Final = frozenset(
    "type enum properties additionalProperties items prefixItems anyOf allOf $ref".split()  # noqa: SIM905
)
_MOST: Final = 2**31
_NAME_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+|[0-9]+")
