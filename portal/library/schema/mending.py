"""Mends values that break a schema in ways whose remedy is certain: the way a careful colleague would.

Only what does not fit is touched, only where exactly one remedy fits, and never so that it means something else:

- JSON in a text, where an object or a list is wanted and a text is not: `'{"by": "age"}'`
- a number or a boolean in a text, where it is wanted and a text is not: `"3"`, `"true"`
- an integer, where a text is wanted, unless the schema says what the text must look like: `3` for `"3"`
- a single item, where a list of such is wanted: `"bug"` for `["bug"]`; but no text that may be a list in itself, like
  `"bug, ui"`, `"npm install"` or `"none"`, no object with a key that items do not declare, and no items of a list that
  may be one item as a whole: `["Ann", "30"]` for `[["Ann", "30"]]`
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from manifests.json_value import Json
from portal.library.schema.declared_names import declared_names
from portal.library.schema.inspection import MAX_STEPS, Inspection, Path
from portal.library.schema.json_kinds import is_kind, json_key, kind_of
from portal.library.schema.rules import RULES
from portal.library.schema.single_items import is_single
from portal.library.schema.sound_schema import SoundNode, SoundSchema

MAX_ATTEMPTS: Final = 2_000
"""Subschemas that one value is mended along; with more of them it is left as it is."""

_MAX_DEPTH: Final = 20
_LONGEST_NUMBER: Final = 40
_MOST_BITS: Final = 128
_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_TRUTHS: Final = {"true": True, "True": True, "false": False, "False": False}
_LOOKS: Final = frozenset({"format", "pattern"})


@dataclass(frozen=True, slots=True)
class Mend:
    """One value that was changed: where it sits, what it was, and what became of it."""

    path: Path
    before: Json
    after: Json


@dataclass(frozen=True, slots=True)
class Mended:
    """A value that fits, and how it came to; nothing but what did not fit is another object than it was."""

    value: Json
    mends: tuple[Mend, ...] = ()


def container_in(text: str) -> dict[str, Json] | list[Json] | None:
    """The object or list that a text is the JSON of."""
    try:
        is_container = text.lstrip()[:1] in ("{", "[")
        value = (
            json.loads(text, parse_constant=_refuse, object_pairs_hook=_distinct) if is_container else None
        )
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None


class _UnsureError(Exception):
    """There are several ways, or finding out would take too long."""


def mended(schema: SoundSchema, value: Json) -> Mended | None:
    """The value made to fit the schema; None if there is no way, or not just one."""
    try:
        return _Mending(schema).mended(schema.root, value, ())
    except (_UnsureError, RecursionError):
        return None


class _Mending:
    """One value on its way into one schema."""

    def __init__(self, schema: SoundSchema) -> None:
        self._definitions = schema.definitions
        self._steps = [MAX_STEPS]
        self._attempts = MAX_ATTEMPTS

    def mended(self, node: SoundNode, value: Json, path: Path, depth: int = 0) -> Mended | None:
        """The one way in which the value fits a subschema."""
        if self._admits(node, value):
            return Mended(value)
        if not isinstance(node, dict) or depth > _MAX_DEPTH:
            return None
        fitting: dict[Any, Mended] = {}
        for candidate in self._candidates(node, value, path, depth + 1):
            if self._admits(node, candidate.value):
                fitting.setdefault(json_key(candidate.value), candidate)
        found = next(iter(fitting.values()), None)
        # Not None: the next alternative around this one would then pass for the only way.
        if len(fitting) > 1 or (found is not None and self._may_be_one_item(node, value, found, path, depth)):
            raise _UnsureError
        return found

    def _may_be_one_item(
        self, node: dict[str, Any], value: Json, found: Mended, path: Path, depth: int
    ) -> bool:
        """Whether a list, whose items were mended, fits in another way: whole, as the one item of the list wanted."""
        if not isinstance(value, list):
            return False
        whole = self._with_children(node, [value], path, depth + 1)
        return (
            whole is not None
            and self._admits(node, whole.value)
            and json_key(whole.value) != json_key(found.value)
        )

    def _admits(self, node: SoundNode, value: Json) -> bool:
        self._attempts -= 1
        inspection = Inspection(self._definitions, RULES, self._steps)
        inspection.inspect(node, value, ())
        if self._attempts < 0 or self._steps[0] < 0:
            raise _UnsureError
        return not inspection.found

    def _candidates(self, node: dict[str, Any], value: Json, path: Path, depth: int) -> Iterator[Mended]:
        """What the value may become; whether that fits the subschema as a whole is for others to see."""
        allowed = node.get("type") or {kind_of(member) for member in node.get("enum", ())}
        if allowed and not is_kind(value, allowed):
            for converted in _conversions(value, frozenset(allowed), node, self._definitions):
                inner = self.mended(node, converted, path, depth)
                if inner is not None:
                    yield Mended(inner.value, (Mend(path, value, inner.value),))
            return
        so_far: Mended | None = self._with_children(node, value, path, depth)
        for part in self._parts(node):
            so_far = None if so_far is None else self._further(so_far, part, path, depth)
        if so_far is None or "anyOf" not in node:
            yield from () if so_far is None else (so_far,)
            return
        for member in node["anyOf"]:
            candidate = self._further(so_far, member, path, depth)
            if candidate is not None:
                yield candidate

    def _parts(self, node: dict[str, Any]) -> Iterator[SoundNode]:
        """The subschemas that a value has to fit beside the subschema's own words."""
        if "$ref" in node:
            yield self._definitions[node["$ref"]]
        yield from node.get("allOf", ())

    def _further(self, so_far: Mended, node: SoundNode, path: Path, depth: int) -> Mended | None:
        inner = self.mended(node, so_far.value, path, depth)
        return None if inner is None else Mended(inner.value, (*so_far.mends, *inner.mends))

    def _with_children(self, node: dict[str, Any], value: Json, path: Path, depth: int) -> Mended | None:
        """The value with each of its items mended along its own subschema."""
        if isinstance(value, dict):
            found = {
                key: self.mended(_property(node, key), item, (*path, key), depth)
                for key, item in value.items()
            }
            if None in found.values():
                return None
            return _joined(value, {key: each.value for key, each in found.items() if each}, found.values())
        if isinstance(value, list):
            items = [self.mended(_item(node, at), item, (*path, at), depth) for at, item in enumerate(value)]
            if None in items:
                return None
            return _joined(value, [each.value for each in items if each], items)
        return Mended(value)


def _joined(value: Json, joined: Json, parts: Iterable[Mended | None]) -> Mended:
    mends = tuple(mend for part in parts if part is not None for mend in part.mends)
    return Mended(joined if mends else value, mends)


def _property(node: dict[str, Any], key: str) -> SoundNode:
    other: SoundNode = node.get("additionalProperties", node.get("patternValues", True))
    found: SoundNode = node.get("properties", {}).get(key, other)
    return found


def _item(node: dict[str, Any], index: int) -> SoundNode:
    first = node.get("prefixItems", ())
    found: SoundNode = first[index] if index < len(first) else node.get("items", True)
    return found


def _conversions(
    value: Json, allowed: frozenset[str], node: dict[str, Any], definitions: Mapping[str, SoundNode]
) -> Iterator[Json]:
    """What a value that is of no allowed type may stand for."""
    if isinstance(value, str):
        yield from _of_text(value, allowed)
    elif "string" in allowed and _is_plain_integer(value) and not _LOOKS.intersection(node):
        yield str(value)
    if "array" in allowed:
        items = _item(node, 0)
        if is_single(value, items, declared_names(definitions, items)):
            yield [value]


def _is_plain_integer(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value.bit_length() <= _MOST_BITS


def _of_text(text: str, allowed: frozenset[str]) -> Iterator[Json]:
    if text.lstrip()[:1] in ("{", "["):
        value = container_in(text)
        if value is not None and kind_of(value) in allowed:
            yield value
    elif len(text) <= _LONGEST_NUMBER:
        if allowed & {"integer", "number"} and _INTEGER.fullmatch(text):
            yield int(text)
        elif "number" in allowed and _NUMBER.fullmatch(text) and math.isfinite(float(text)):
            yield float(text)
        if "boolean" in allowed and text in _TRUTHS:
            yield _TRUTHS[text]


def _distinct(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    whole = dict(pairs)
    if len(whole) < len(pairs):
        raise ValueError("a key is there twice")
    return whole


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
