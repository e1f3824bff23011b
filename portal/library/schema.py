"""Reduces an untrusted JSON Schema to one that is safe to compile and to validate with.

Upstreams send drafts 4 to 2020-12, OpenAPI's `nullable`, unknown types, dangling references and endless trees. Each
becomes a schema with few keywords of 2020-12. The smallest invalid part becomes `True`, "anything". Two promises hold:

- Nothing is fetched, and no regular expression of an upstream is run.
- The original rejects everything that the reduced schema rejects, in any draft. So negations (`not`, `if`, the "exactly
  one" of `oneOf`) and keywords that some drafts lack (`contains`, `propertyNames`, dependencies) are left to the
  upstream.

In a reduced schema `type` and `enum` are lists, `const` is an `enum`, `oneOf` an `anyOf`, `items` one schema, and the
operand of `$ref` a `Reference`. `CONDITIONS` are kept only to show that they are present.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final
from urllib.parse import unquote

from manifests.json_value import KINDS, Json, Reference, SoundNode
from manifests.kernels import JAVASCRIPT, PYTHON, KernelName

MAX_SUBSCHEMAS: Final = 5_000
"""Subschemas of one schema. Further ones allow anything."""

MAX_DEPTH: Final = 40
"""Levels of nested subschemas, and of nested types. Deeper ones allow anything."""

MAX_VALUES: Final = 10_000
"""Items of each list or object in an `enum`, `default` or `examples`. With more, the keyword is dropped."""

_MAX_VALUE_DEPTH: Final = 12
_MAX_COMPARED: Final = 20


def sound_schema(document: Json) -> SoundNode:
    """Reduce any JSON value to a sound schema. Never raises."""
    return _Reduction(document).reduced()


def arguments_schema(document: Json, reduce: Callable[[Json], SoundNode] = sound_schema) -> SoundNode:
    """Reduce the schema of a tool's arguments, which are an object whatever the schema says."""
    root = reduce(document)
    return root if isinstance(root, dict) and "object" in root.get("type", ("object",)) else True


def kind_of(value: Json) -> str:
    """The narrowest JSON Schema type of a value: 3.0 is an integer."""
    if isinstance(value, float) and value.is_integer():
        return "integer"
    return KINDS[type(value)]


def is_kind(value: Json, names: Iterable[str]) -> bool:
    """Whether the value has one of these JSON Schema types."""
    kind = kind_of(value)
    return kind in names or (kind == "integer" and "number" in names)


def kind_words(names: Iterable[str], kernel: KernelName = PYTHON) -> str:
    """These JSON Schema types in the words of a kernel's language."""
    return " or ".join(_KIND_WORDS[kernel][name] for name in names)


@dataclass
class _Reduction:
    """The reduction of one schema. Only JSON pointers into the document are followed: `#/$defs/Issue`."""

    _document: Json
    _left: int = MAX_SUBSCHEMAS
    shared: "SharedReduction | None" = None
    """Has the document's definitions."""
    _references: dict[int, Reference] = field(default_factory=dict)
    _waiting: list[tuple[Reference, Json]] = field(default_factory=list)

    def reduced(self) -> SoundNode:
        root = self._referred("#", self._document)
        self.finish()
        return root.schema

    def finish(self) -> None:
        """Reduce the targets of references."""
        while self._waiting:
            reference, raw = self._waiting.pop()
            reference.schema = self._node(raw, 0)

    def _node(self, raw: Json, depth: int) -> SoundNode:
        self._left -= 1
        if not isinstance(raw, dict):
            return raw is not False
        has_address = "$id" in raw and raw is not self._document  # references are relative to it
        if self._left < 0 or depth > MAX_DEPTH or has_address:
            return True
        sound: dict[str, Any] = {}
        for word, operand in _modern(raw).items():
            if word in _KEYWORDS and _KEYWORDS[word](operand):
                sound[word] = self._operand(word, operand, depth + 1)
        if sound.get("$ref", True) is None:
            del sound["$ref"]
        members = (sound, *sound.get("allOf", ())[:_MAX_COMPARED])
        types = [each["type"] for each in members if isinstance(each, dict) and "type" in each]
        if any(_is_contradictory(kinds, each) for kinds in types for each in members):
            sound = {word: value for word, value in sound.items() if word in ANNOTATIONS}
        if raw.get("nullable") is True:
            notes = {word: value for word, value in sound.items() if word in ANNOTATIONS}
            return {**notes, "anyOf": [sound, {"type": ["null"]}]}
        return sound

    def _operand(self, word: str, operand: Json, depth: int) -> Any:
        """Reduce the operand of a keyword. None for a dangling reference."""
        if word in _ONE:
            return self._node(operand, depth)
        if word in _SEVERAL:
            return [self._node(each, depth) for each in operand]
        if word == "properties":
            return {str(key): self._node(each, depth) for key, each in operand.items()}
        return self.found(operand) if word == "$ref" else operand

    def found(self, pointer: str) -> Reference | None:
        """Resolve a JSON pointer (RFC 6901). None if it is dangling, or leads into a schema with its own `$id`."""
        node = self._document
        if pointer != "#" and not pointer.startswith("#/"):
            return None
        if self.shared is not None and pointer.startswith("#/$defs/"):
            return self.shared.found(pointer)
        for step in unquote(pointer).split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(node, dict):
                node = node.get(key)
            elif isinstance(node, list) and key.isdecimal() and len(key) < 7 and int(key) < len(node):
                node = node[int(key)]
            else:
                return None
            if isinstance(node, dict) and "$id" in node:
                return None
        return self._referred(pointer, node) if isinstance(node, dict | bool) else None

    def _referred(self, pointer: str, node: Json) -> Reference:
        key = id(node)
        if key not in self._references:
            self._references[key] = Reference(pointer)
            self._waiting.append((self._references[key], node))
        return self._references[key]


class SharedReduction(_Reduction):
    """Reduces the schemas of one upstream. The `$defs` that all of them have alike are reduced once.

    A schema that redefines a name of an earlier one is reduced `otherwise`. So are all, once a definition refers to
    something that is not a definition, or once the definitions together exceed MAX_SUBSCHEMAS for each schema.
    """

    def __init__(self, schemas: int, otherwise: Callable[[Json], SoundNode]) -> None:
        super().__init__({"$defs": {}}, schemas * MAX_SUBSCHEMAS)
        self._otherwise = otherwise

    def sound_schema(self, document: Json) -> SoundNode:
        """Like the function `sound_schema`."""
        if self._left >= 0 and self._has_joined(document):
            root = _Reduction(document, shared=self).reduced()
            self.finish()
            if self._left >= 0:
                return root
        return self._otherwise(document)

    def _has_joined(self, document: Json) -> bool:
        """Add a schema's definitions, if it has some and they agree with those before."""
        own, known = document.get("$defs") if isinstance(document, dict) else None, self._document["$defs"]
        if not own or not isinstance(own, dict):
            return False
        try:
            is_alike = all(known.get(key, each) is each or known[key] == each for key, each in own.items())
        except RecursionError:  # nested too deeply to be compared
            return False
        for key, each in own.items() if is_alike else ():
            known.setdefault(key, each)
        return is_alike

    def found(self, pointer: str) -> Reference | None:
        if pointer.startswith("#") and not pointer.startswith("#/$defs/"):
            self._left = -1
        if (reference := super().found(pointer)) is not None:
            reference.is_shared = True
        return reference


def _is_contradictory(kinds: Collection[str], node: SoundNode) -> bool:
    """Whether nothing but null is of these types and fits the node. Only the upstream knows what it means."""
    if not isinstance(node, dict):
        return False
    kinds, own = {*kinds}, {*node.get("type", kinds)}
    if kinds.isdisjoint(own) and not {"integer", "number"} <= kinds | own:
        return True
    if "enum" in node:
        values = [value for value in node["enum"] if value is not None] or node["enum"]
        return not any(is_kind(value, kinds) for value in values)
    others = [each for each in node.get("anyOf", ()) if each != {"type": ["null"]}]
    return bool(others) and all(_is_contradictory(kinds, each) for each in others)


def _modern(raw: dict[str, Json]) -> dict[str, Json]:
    """Replace older keywords, and alternative ones, by those of 2020-12."""
    if "$ref" in raw:  # until draft 7, keywords beside it were ignored; later ones may add properties
        more = {"if": True} if _BESIDE_REFERENCE & raw.keys() else {}
        return {word: raw[word] for word in ("$ref", *ANNOTATIONS) if word in raw} | more
    modern = {**raw}
    if "oneOf" in raw:  # beside an `anyOf` it is left to the upstream
        modern.setdefault("anyOf", raw["oneOf"])
    is_open = "additionalProperties" not in raw and raw.get("unevaluatedProperties", False) is not False
    # A record that FastMCP for TypeScript closed: its keys have a rule, and it may have none.
    has_none = raw.get("additionalProperties") is False and not raw.get("properties")
    is_open |= has_none and "propertyNames" in raw
    if is_open or raw.get("patternProperties"):  # patterns are not evaluated
        modern["additionalProperties"] = True
    if isinstance(raw.get("items"), list):
        modern |= {"prefixItems": raw["items"], "items": raw.get("additionalItems", True)}
    for plain, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if raw.get(exclusive) is True and plain in raw:
            modern[exclusive] = modern.pop(plain)
    if isinstance(raw.get("type"), str):
        modern["type"] = [raw["type"]]
    if "const" in raw:
        modern["enum"] = [raw["const"]]
    return modern


def _is_small(value: Json, depth: int = _MAX_VALUE_DEPTH) -> bool:
    """Whether a value is JSON, shallow, and without long lists and objects."""
    if not isinstance(value, dict | list):
        return type(value) in KINDS and value not in _INFINITE
    inner = value.values() if isinstance(value, dict) else value
    return depth > 0 and len(value) <= MAX_VALUES and all(_is_small(part, depth - 1) for part in inner)


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value not in _INFINITE


def _is_names(value: Json) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _is_listed(value: Json) -> bool:
    return isinstance(value, list) and bool(value)


def _is_of(kind: type) -> Callable[[Json], bool]:
    return lambda value: isinstance(value, kind)


CONDITIONS: Final = ("if", "dependencies", "dependentSchemas")
"""Keywords that apply to some values only."""

_BESIDE_REFERENCE: Final = {"properties", "required", "allOf", "anyOf", "oneOf"}

ANNOTATIONS: Final = ("title", "description", "default", "examples", "deprecated", "nullable")
"""Keywords that restrict nothing."""

_ONE: Final = ("items", "additionalProperties")
_SEVERAL: Final = ("allOf", "anyOf", "prefixItems")
_INFINITE: Final = (inf, -inf)
_WORDS: Final[Mapping[KernelName, tuple[str, ...]]] = {
    PYTHON: ("None", "a bool", "a str", "an int", "a number", "a list", "a dict"),
    JAVASCRIPT: ("null", "a boolean", "a string", "an integer", "a number", "an array", "an object"),
}
_KIND_WORDS: Final = {
    kernel: dict(zip(KINDS.values(), words, strict=True)) for kernel, words in _WORDS.items()
}
_TEXTS: Final = ("title", "description", "format", "pattern", "$ref")
_NUMBERS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_COUNTS: Final = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_KEYWORDS: Final[Mapping[str, Callable[[Json], bool]]] = {
    **dict.fromkeys(_TEXTS, _is_of(str)),
    **dict.fromkeys(_NUMBERS, _is_number),
    **dict.fromkeys(_COUNTS, lambda value: _is_number(value) and value >= 0 and value == int(value)),
    **dict.fromkeys((*_ONE, *CONDITIONS), lambda _: True),
    **dict.fromkeys(_SEVERAL, _is_listed),
    "properties": _is_of(dict),
    "type": lambda value: _is_names(value) and bool(value) and all(each in KINDS.values() for each in value),
    **dict.fromkeys(("enum", "examples"), lambda value: _is_listed(value) and _is_small(value)),
    "default": _is_small,
    "deprecated": _is_of(bool),
    "required": _is_names,
}
"""By keyword: whether an operand is valid for it."""
