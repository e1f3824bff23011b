"""A stranger's JSON Schema, reduced to one small dialect that is safe to compile and to check values with.

Upstreams send drafts 4 to 2020-12, OpenAPI's `nullable`, types that are no types, references to nowhere and
trees that never end. Here each becomes the same dialect (2020-12 words, below), or `True`, "anything", at the
smallest place that is broken, with a note. Two promises hold:

- Nothing is fetched, and nothing is run: `pattern` and `patternProperties` hold regular expressions that may
  take years (ReDoS), so they are shown to people but not evaluated here; nor is `format`. The upstream does.
- Reduction only ever allows more. Keywords under a negation (`not`, `if`, the "exactly one" of `oneOf`, an
  upper bound on `contains`) would refuse values once something beneath them is left out, so they are left
  to the upstream as well. What the reduced schema refuses, the original refuses.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from manifests.json_value import Json
from portal.library.plain_text import one_line
from portal.library.schema.json_kinds import is_kind
from portal.library.schema.references import Place, SchemaDocument, cut_endless_references
from portal.library.schema.words import WORDS, bounds_of_draft_4, examples_of, is_small_json, type_names

SoundNode: TypeAlias = dict[str, Any] | bool
"""True, False, or a dict of sound keywords. `type` is a list; `const` is an `enum`; `$ref` is a key of
`definitions`; there is one combiner, `anyOf`, beside `allOf`. `cases` are what `then` and `else` say: it holds of some
values, and nobody asks here of which."""

MAX_SUBSCHEMAS: Final = 5_000
"""Subschemas of one schema; those beyond allow anything."""

MAX_DEPTH: Final = 40
"""Levels of subschemas within one another; those beneath allow anything."""

MAX_DEFINITIONS: Final = 400
"""Places that references of one schema lead to; references to others allow anything."""

MAX_PLACES: Final = 3
"""Places that one note names."""


@dataclass(frozen=True)
class SoundSchema:
    """A schema in the sound dialect. Every `$ref` in it is a key of `definitions`."""

    root: SoundNode
    definitions: Mapping[str, SoundNode] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def sound_schema(document: Json) -> SoundSchema:
    """Reduce any JSON value to a sound schema; never raises."""
    reduction = _Reduction(document)
    root = reduction.node(document, (), 0)
    definitions = reduction.definitions(root)
    return SoundSchema(root, definitions, reduction.notes())


def arguments_schema(document: Json) -> SoundSchema:
    """The same of a tool's arguments, which are an object whatever their schema says."""
    schema = sound_schema(document)
    is_of_objects = isinstance(schema.root, dict) and "object" in schema.root.get("type", ("object",))
    if is_of_objects or schema.root is True:
        return schema
    return SoundSchema(True, {}, (*schema.notes, "the schema: admits no object; any arguments are allowed"))


class _Reduction:
    """One schema on its way into the sound dialect."""

    def __init__(self, document: Json) -> None:
        self._notes: dict[str, list[str]] = {}
        self._document = SchemaDocument(document)
        self._left = MAX_SUBSCHEMAS
        self._wanted: dict[str, Place] = {}
        self._base = ""

    def definitions(self, root: SoundNode) -> dict[str, SoundNode]:
        """The places that references lead to, and those that these lead to, without endless loops."""
        reduced: dict[str, SoundNode] = {}
        while len(reduced) < len(self._wanted):
            for reference, place in list(self._wanted.items()):
                if reference not in reduced:
                    self._base = place.around
                    is_root = reference == "#"
                    reduced[reference] = root if is_root else self.node(place.schema, (reference,), 0)
        for reference in cut_endless_references(reduced):
            self.note((reference,), "references here only lead to references, or back; anything is allowed")
        return reduced

    def note(self, path: tuple[str, ...], message: str) -> None:
        places = self._notes.setdefault(message, [])
        if len(places) <= MAX_PLACES:
            places.append(one_line("/".join(path), 80) or "the schema")

    def notes(self) -> tuple[str, ...]:
        """One note per kind of trouble, with the first places it was found at."""
        return tuple(
            f"{', '.join(places[:MAX_PLACES])}{', …' if len(places) > MAX_PLACES else ''}: {message}"
            for message, places in self._notes.items()
        )

    def node(self, raw: Json, path: tuple[str, ...], depth: int) -> SoundNode:
        if isinstance(raw, bool):
            return raw
        if not isinstance(raw, dict):
            self.note(path, "not a schema; anything is allowed")
            return True
        self._left -= 1
        if self._left < 0 or depth > MAX_DEPTH:
            self.note(path, "too large or too deep; anything is allowed here")
            return True
        around, self._base = self._base, self._document.base_within(raw, self._base)
        word = next((word for word in _REFERENCES if word in raw), None)
        read = self._keywords(raw, path, depth) if word is None else self._reference(word, raw, path, depth)
        self._base = around
        # Not the root, which has to stay recognizable as an object.
        return _or_null(read) if path and raw.get("nullable") is True else read

    def _reference(
        self, word: str, raw: dict[str, Json], path: tuple[str, ...], depth: int
    ) -> dict[str, Any]:
        found = self._document.find(word, raw[word], self._base)
        # Which properties are unevaluated is for both sides of the reference to say.
        siblings = {word: value for word, value in raw.items() if word not in _NEVER_BESIDE}
        if self._document.references_stand_alone:
            siblings = {word: value for word, value in siblings.items() if word in _ANNOTATIONS}
        sound = self._keywords(siblings, path, depth)
        if found is None or (len(self._wanted) >= MAX_DEFINITIONS and found.key not in self._wanted):
            self.note(path, "its reference leads nowhere in this schema; anything is allowed")
            return sound
        self._wanted[found.key] = found
        return {**sound, "$ref": found.key}

    def _keywords(self, raw: dict[str, Json], path: tuple[str, ...], depth: int) -> dict[str, Any]:
        sound: dict[str, Any] = {}
        for word, value in raw.items():
            keep = WORDS.get(word)
            if keep is None:
                continue
            if keep(value):
                sound[word] = value
            elif not isinstance(value, bool):
                # A bool is draft 3's `required: true`, on the property, or draft 4's `exclusiveMinimum: true`.
                self.note((*path, word), "makes no sense here, or is too large; ignored")
        self._type_and_values(raw, sound, path)
        bounds_of_draft_4(raw, sound)
        if examples := examples_of(raw):
            sound["examples"] = examples
        self._object_keywords(raw, sound, path, depth)
        self._array_keywords(raw, sound, path, depth)
        self._combiners(raw, sound, path, depth)
        cases = [raw[word] for word in ("then", "else") if word in raw and "if" in raw]
        if cases:
            sound["cases"] = self._list(cases, path, depth)
        return sound

    def _type_and_values(self, raw: dict[str, Json], sound: dict[str, Any], path: tuple[str, ...]) -> None:
        if "type" in raw:
            names = type_names(raw["type"])
            if names:
                sound["type"] = names
            else:
                self.note((*path, "type"), "is no type of JSON Schema; ignored")
        if "const" in raw and is_small_json(raw["const"]):
            sound["enum"] = [raw["const"]]
        if (
            "type" in sound
            and sound.get("enum")
            and not any(is_kind(value, sound["type"]) for value in sound["enum"])
        ):
            self.note((*path, "type"), "is the type of none of the values that are allowed; ignored")
            del sound["type"]
        if raw.get("nullable") is True:
            if "type" in sound and "null" not in sound["type"]:
                sound["type"] = [*sound["type"], "null"]
            if "enum" in sound and None not in sound["enum"]:
                sound["enum"] = [*sound["enum"], None]

    def _object_keywords(
        self, raw: dict[str, Json], sound: dict[str, Any], path: tuple[str, ...], depth: int
    ) -> None:
        properties = raw.get("properties", {})
        patterns = raw.get("patternProperties", {})
        if isinstance(properties, dict):
            if "properties" in raw:
                sound["properties"] = self._nodes(properties, path, depth)
        else:
            self.note((*path, "properties"), "is not an object; ignored")
        extra = raw.get("additionalProperties")
        if extra is None and raw.get("unevaluatedProperties") is False and not _COMBINERS & raw.keys():
            extra = False
        if extra is not None and isinstance(properties, dict) and isinstance(patterns, dict):
            sound["additionalProperties"] = self.node(extra, (*path, "additionalProperties"), depth + 1)
        if patterns and isinstance(patterns, dict):
            self._pattern_properties(patterns, sound, path, depth)
        if extra is False and isinstance(properties, dict) and not patterns:
            self._declared_only(properties, sound, path)
        if "propertyNames" in raw:
            sound["propertyNames"] = self.node(raw["propertyNames"], (*path, "propertyNames"), depth + 1)
        self._dependencies(raw, sound, path, depth)

    def _declared_only(
        self, properties: dict[str, Json], sound: dict[str, Any], path: tuple[str, ...]
    ) -> None:
        """Require nothing that is forbidden."""
        required = [name for name in sound.get("required", ()) if name in properties]
        if len(required) < len(sound.get("required", ())):
            self.note((*path, "required"), "names properties that are forbidden; of those ignored")
            sound["required"] = required

    def _pattern_properties(
        self, patterns: dict[str, Json], sound: dict[str, Any], path: tuple[str, ...], depth: int
    ) -> None:
        """Which property a pattern means is not evaluated, so each other property may fit any of them."""
        fitting = list(self._nodes(patterns, path, depth).values())
        extra = sound.get("additionalProperties", True)
        if extra is True:
            sound.pop("additionalProperties", None)
            sound["patternValues"] = {"anyOf": fitting}
        else:
            sound["additionalProperties"] = {"anyOf": fitting if extra is False else [*fitting, extra]}

    def _dependencies(
        self, raw: dict[str, Json], sound: dict[str, Any], path: tuple[str, ...], depth: int
    ) -> None:
        for word in ("dependencies", "dependentRequired", "dependentSchemas"):
            entries = raw.get(word)
            if not isinstance(entries, dict):
                continue
            names = {key: value for key, value in entries.items() if WORDS["required"](value)}
            schemas = {key: value for key, value in entries.items() if isinstance(value, dict | bool)}
            if names:
                sound.setdefault("dependentRequired", {}).update(names)
            if schemas:
                sound.setdefault("dependentSchemas", {}).update(self._nodes(schemas, path, depth))

    def _array_keywords(
        self, raw: dict[str, Json], sound: dict[str, Any], path: tuple[str, ...], depth: int
    ) -> None:
        first, rest = raw.get("prefixItems"), raw.get("items")
        if isinstance(rest, list):  # until 2019-09 a list of schemas was written `items`, and then came these
            first, rest = rest, raw.get("additionalItems")
        if isinstance(first, list) and first:
            sound["prefixItems"] = self._list(first, (*path, "prefixItems"), depth)
        if rest is not None and (first is None or isinstance(first, list)):
            sound["items"] = self.node(rest, (*path, "items"), depth + 1)
        if "contains" in raw and raw.get("minContains", 1) != 0:
            sound["contains"] = self.node(raw["contains"], (*path, "contains"), depth + 1)

    def _combiners(
        self, raw: dict[str, Json], sound: dict[str, Any], path: tuple[str, ...], depth: int
    ) -> None:
        all_of: list[SoundNode] = []
        for word in ("allOf", "anyOf", "oneOf"):
            if word not in raw:
                continue
            members = raw[word]
            if not isinstance(members, list) or not members:
                self.note((*path, word), "is not a list of schemas; ignored")
                continue
            nodes = self._list(members, (*path, word), depth)
            if word == "allOf":
                all_of += nodes
            elif "anyOf" in sound:
                all_of.append({"anyOf": nodes})
            else:
                sound["anyOf"] = nodes
        if all_of:
            sound["allOf"] = all_of

    def _nodes(self, raw: dict[str, Json], path: tuple[str, ...], depth: int) -> dict[str, SoundNode]:
        return {str(key): self.node(value, (*path, str(key)), depth + 1) for key, value in raw.items()}

    def _list(self, raw: Iterable[Json], path: tuple[str, ...], depth: int) -> list[SoundNode]:
        return [self.node(value, (*path, str(index)), depth + 1) for index, value in enumerate(raw)]


_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_NEVER_BESIDE: Final = frozenset({*_REFERENCES, "unevaluatedProperties"})
_ANNOTATIONS: Final = frozenset({"title", "description", "default", "examples", "deprecated", "nullable"})
_COMBINERS: Final = frozenset({"allOf", "anyOf", "oneOf", "if", "dependentSchemas", "dependencies"})


def _or_null(sound: dict[str, Any]) -> dict[str, Any]:
    """With null allowed as well where a reference or combiners say what is: OpenAPI's `nullable` beside them."""
    if not sound.keys() & {"$ref", "allOf", "anyOf"}:
        return sound
    inner = {word: value for word, value in sound.items() if word not in _ANNOTATIONS}
    members: list[SoundNode] = inner["anyOf"] if inner.keys() == {"anyOf"} else [inner]
    null: SoundNode = {"type": ["null"]}
    outer = {word: value for word, value in sound.items() if word in _ANNOTATIONS}
    return {**outer, "anyOf": members if null in members else [*members, null]}
