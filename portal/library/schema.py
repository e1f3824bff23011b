"""A stranger's JSON Schema, reduced to what is safe to compile and to validate with.

Upstreams send drafts 4 to 2020-12, OpenAPI's `nullable`, types that are no types, references to nowhere and trees that
never end. Here each becomes a schema in a few words of 2020-12, or `True`, "anything", at the smallest place that is
broken, with a note. Two promises hold:

- Nothing is fetched, and no regular expression of a stranger is run.
- What the reduced schema refuses, the original refuses in any draft. So what negates (`not`, `if`, the "exactly one" of
  `oneOf`) and what some drafts do not know (`contains`, `propertyNames`, dependencies) is left to the upstream.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final
from urllib.parse import unquote

from manifests.json_value import Json
from manifests.schema_validation import Reference, SchemaValidator, SoundNode
from portal.library.plain_text import one_line

MAX_SUBSCHEMAS: Final = 5_000
"""Subschemas of one schema; those beyond allow anything."""

MAX_DEPTH: Final = 40
"""Levels of subschemas within one another; those beneath allow anything."""

MAX_VALUES: Final = 10_000
"""JSON values within one `enum`, `default` or `examples`; with more the keyword is left out."""

_MAX_VALUE_DEPTH: Final = 12


@dataclass(frozen=True)
class SoundSchema:
    """A reduced schema: `type` and `enum` are lists, `const` an `enum`, `oneOf` an `anyOf`, `items` one schema.

    `$ref` is a `Reference`. Of `CONDITIONS` nothing counts but that they are there.
    """

    root: SoundNode
    notes: tuple[str, ...] = ()

    @cached_property
    def validator(self) -> SchemaValidator:
        return SchemaValidator(self.root)


def sound_schema(document: Json) -> SoundSchema:
    """Reduce any JSON value to a sound schema; never raises."""
    reduction = _Reduction(document)
    root = reduction.reduced()
    return SoundSchema(root, reduction.notes())


def arguments_schema(document: Json) -> SoundSchema:
    """The same of a tool's arguments, which are an object whatever their schema says."""
    schema = sound_schema(document)
    if schema.root is True or (
        isinstance(schema.root, dict) and "object" in schema.root.get("type", ("object",))
    ):
        return schema
    return SoundSchema(True, (*schema.notes, "the schema: admits no object; any arguments are allowed"))


def kind_of(value: Json) -> str:
    """The narrowest type that JSON Schema has for a value: 3.0 is an integer."""
    if isinstance(value, float) and value.is_integer():
        return "integer"
    return _KINDS[type(value)]


def is_kind(value: Json, names: Iterable[str]) -> bool:
    """Whether the value is of one of the types that JSON Schema calls so."""
    kind = kind_of(value)
    return kind in names or (kind == "integer" and "number" in names)


def kind_words(names: Iterable[str]) -> str:
    """The same types in a Python reader's words."""
    return " or ".join(_KIND_WORDS[name] for name in names)


class _Reduction:
    """One schema on its way; only JSON pointers into the document are followed, `#/$defs/Issue`."""

    def __init__(self, document: Json) -> None:
        self._document = document
        self._notes: dict[str, str] = {}
        self._left = MAX_SUBSCHEMAS
        self._references: dict[int, Reference] = {}
        self._waiting: list[tuple[Reference, Json]] = []
        draft = str(document.get("$schema")) if isinstance(document, dict) else ""
        self._id = "id" if "draft-03" in draft or "draft-04" in draft else "$id"
        self._stand_alone = any(f"draft-0{number}" in draft for number in (3, 4, 6, 7))
        """Until draft 7, keywords beside a `$ref` meant nothing."""

    def reduced(self) -> SoundNode:
        root = self._referred("#", self._document)
        while self._waiting:
            reference, raw = self._waiting.pop()
            reference.schema = self._node(raw, "" if reference is root else reference.name, 0)
        return root.schema

    def notes(self) -> tuple[str, ...]:
        """One note for each kind of trouble, with the first place it was found at."""
        return tuple(
            f"{one_line(path.removeprefix('/'), 80) or 'the schema'}: {message}"
            for message, path in self._notes.items()
        )

    def _note(self, path: str, message: str) -> None:
        self._notes.setdefault(message, path)

    def _node(self, raw: Json, path: str, depth: int) -> SoundNode:
        if isinstance(raw, bool):
            return raw
        self._left -= 1
        if not isinstance(raw, dict):
            self._note(path, "not a schema; anything is allowed")
        elif self._left < 0 or depth > MAX_DEPTH:
            self._note(path, "too large or too deep; anything is allowed here")
        elif self._id in raw and raw is not self._document:
            self._note(
                path, "has an address of its own; anything is allowed here"
            )  # to which references are relative
        else:
            return self._keywords(raw, path, depth)
        return True

    def _keywords(self, raw: dict[str, Json], path: str, depth: int) -> SoundNode:
        if self._stand_alone and "$ref" in raw:
            raw = {word: raw[word] for word in ("$ref", *ANNOTATIONS) if word in raw}
        sound: dict[str, Any] = {}
        for word, operand in _modern(raw).items():
            kind = _KEYWORDS.get(word)
            is_fit = kind is not None and kind(operand)
            if is_fit:
                sound[word] = self._operand(
                    word, operand, path if word == "properties" else f"{path}/{word}", depth + 1
                )
            elif kind is not None and not isinstance(operand, bool):
                # A bool is draft 3's `required: true`, on the property, or draft 4's `exclusiveMinimum: true`.
                self._note(f"{path}/{word}", "makes no sense here, or is too large; ignored")
        for word in _REFERENCES:
            if sound.get(word, True) is None:
                self._note(path, "its reference leads nowhere in this schema; anything is allowed")
                del sound[word]
        return _or_null(sound) if raw.get("nullable") is True else sound

    def _operand(self, word: str, operand: Json, path: str, depth: int) -> Any:
        if word in _ONE:
            return self._node(operand, path, depth)
        if word in _SEVERAL:
            return [self._node(each, f"{path}/{at}", depth) for at, each in enumerate(operand)]
        if word == "properties":
            return {str(key): self._node(each, f"{path}/{key}", depth) for key, each in operand.items()}
        if word in _REFERENCES:  # where the dynamic ones lead depends on who led here
            return self._found(operand) if word == "$ref" else None
        return operand

    def _found(self, pointer: str) -> Reference | None:
        """Where a JSON pointer (RFC 6901) leads; None if that is nowhere, or in a schema with an address of its own."""
        node = self._document
        if pointer != "#" and not pointer.startswith("#/"):
            return None
        for step in unquote(pointer).split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(node, dict):
                node = node.get(key)
            elif isinstance(node, list) and key.isdecimal() and len(key) < 7 and int(key) < len(node):
                node = node[int(key)]
            else:
                return None
            if isinstance(node, dict) and self._id in node:
                return None
        return self._referred(pointer, node) if isinstance(node, dict | bool) else None

    def _referred(self, pointer: str, node: Json) -> Reference:
        key = id(node)
        if key not in self._references:
            self._references[key] = Reference(pointer)
            self._waiting.append((self._references[key], node))
        return self._references[key]


def _modern(raw: dict[str, Json]) -> dict[str, Json]:
    """The schema in words of 2020-12, as far as it uses older ones, or several words for one thing."""
    if _OTHER_WORDS.isdisjoint(raw):
        return raw
    said = {**raw, **_patterns(raw), **_combined(raw)}
    if isinstance(raw.get("items"), list):
        said |= {"prefixItems": raw["items"], "items": raw.get("additionalItems", True)}
    for plain, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if raw.get(exclusive) is True and plain in raw:
            said[exclusive] = said.pop(plain)
    if isinstance(raw.get("type"), str):
        said["type"] = [raw["type"]]
    if "const" in raw:
        said["enum"] = [raw["const"]]
    return said


def _combined(raw: dict[str, Json]) -> dict[str, Json]:
    """`oneOf` as `anyOf`; beside an `anyOf` it is left to the upstream."""
    return {"anyOf": raw["oneOf"]} if "oneOf" in raw and "anyOf" not in raw else {}


def _patterns(raw: dict[str, Json]) -> dict[str, Json]:
    """Which property a pattern means is not evaluated, so each other property may fit any of them."""
    patterns, others = raw.get("patternProperties"), raw.get("additionalProperties", True)
    if not isinstance(patterns, dict) or not patterns:
        return {}
    values = [*patterns.values()]
    return {"additionalProperties": others is True or {"anyOf": [*values, *([others] if others else [])]}}


def _or_null(sound: dict[str, Any]) -> dict[str, Any]:
    """OpenAPI's `nullable`: with null allowed as well."""
    outer = {word: value for word, value in sound.items() if word in ANNOTATIONS}
    inner = {word: value for word, value in sound.items() if word not in ANNOTATIONS}
    return {**outer, "anyOf": [inner, {"type": ["null"]}]}


def is_small_json(value: Json) -> bool:
    """Whether a value is JSON, shallow, and of at most `MAX_VALUES` parts."""
    left, level = MAX_VALUES, [value]
    for _ in range(_MAX_VALUE_DEPTH):
        left -= len(level)
        if left < 0 or not all(type(each) in _KINDS and each not in _INFINITE for each in level):
            return False
        level = [part for each in level if isinstance(each, dict | list) for part in _parts(each)]
        if not level:
            return True
    return False


def _parts(value: dict[str, Json] | list[Json]) -> Iterable[Json]:
    return value.values() if isinstance(value, dict) else value


def _is_types(value: Json) -> bool:
    return _is_names(value) and bool(value) and all(each in _KIND_WORDS for each in value)


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value not in _INFINITE


def _is_count(value: Json) -> bool:
    return _is_number(value) and value >= 0 and value == int(value)


def _is_names(value: Json) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _is_values(value: Json) -> bool:
    return isinstance(value, list) and bool(value) and is_small_json(value)


def _is_listed(value: Json) -> bool:
    return isinstance(value, list) and bool(value)


def _is_of(kind: type) -> Callable[[Json], bool]:
    return lambda value: isinstance(value, kind)


CONDITIONS: Final = ("if", "dependencies", "dependentSchemas")
"""Keywords that say something of some values only."""

ANNOTATIONS: Final = ("title", "description", "default", "examples", "deprecated", "nullable")
"""Keywords that ask for nothing."""

_ONE: Final = ("items", "additionalProperties")
_SEVERAL: Final = ("allOf", "anyOf", "prefixItems")
_OTHER_WORDS: Final = frozenset(
    "type const oneOf items exclusiveMinimum exclusiveMaximum patternProperties nullable".split()  # noqa: SIM905
)
_INFINITE: Final = (float("inf"), float("-inf"))
_KINDS: Final[Mapping[type, str]] = dict(
    zip(
        (type(None), bool, str, int, float, list, dict),
        ("null", "boolean", "string", "integer", "number", "array", "object"),
        strict=True,
    )
)
_KIND_WORDS: Final[Mapping[str, str]] = dict(
    zip(
        ("null", "boolean", "string", "integer", "number", "array", "object"),
        ("None", "a bool", "a str", "an int", "a number", "a list", "a dict"),
        strict=True,
    )
)
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_TEXTS: Final = ("title", "description", "format", "pattern", *_REFERENCES)
_NUMBERS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_COUNTS: Final = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_KEYWORDS: Final[Mapping[str, Callable[[Json], bool]]] = {
    **dict.fromkeys(_TEXTS, _is_of(str)),
    **dict.fromkeys(_NUMBERS, _is_number),
    **dict.fromkeys(_COUNTS, _is_count),
    **dict.fromkeys((*_ONE, *CONDITIONS), lambda _: True),
    **dict.fromkeys(_SEVERAL, _is_listed),
    "properties": _is_of(dict),
    "type": _is_types,
    "enum": _is_values,
    "examples": _is_values,
    "default": is_small_json,
    "deprecated": _is_of(bool),
    "required": _is_names,
}
"""Keyword -> whether an operand makes sense in it."""
