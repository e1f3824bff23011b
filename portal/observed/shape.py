"""What results of a tool look like: kinds, keys and nesting, and no value of any of them.

A shape is kept on disk and shown to models, and no value of a result may get there as a key: an id, an address, a
name of somebody. Where in doubt keys are data, and the object is a map: that costs a stub some detail, the other
mistake gives something away.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from itertools import islice
from typing import Any, Final

from manifests.json_value import Json

MAX_DEPTH: Final = 8
"""Lists and objects within one another; what lies deeper may be anything."""

MAX_FIELDS: Final = 100
"""Keys of one object; with more it is a map."""

MAX_PLACES: Final = 400
"""Places of one shape; with more its deepest ones may be anything."""

MAX_VALUES: Final = 1_000
"""Values of one result that are looked at, which takes about a millisecond."""

MAX_ITEMS: Final = 12
"""Items of one list that are looked at: the first ones, and some of the others."""

_FIRST_ITEMS: Final = 6
_MAX_SAID: Final = 200
_LONGEST_SAID: Final = 1_000
_BETWEEN_NAMES: Final = re.compile(r"\s*[,;|\n，、；]\s*")
_MANY_FIELDS: Final = 30
_MANY_ALIKE: Final = 3

_FIELD_NAME: Final = re.compile(
    r"""
    (?!.{41})
    (?![0-9a-f]{8,}\Z | (?=.*[0-9])[0-9a-f]{6,}\Z)   # no hexadecimal number: deadbeef, fa855f
    (?!.*[b-df-hj-np-tv-xz]{9})                       # no token: xKqZbWtRpL
    [$@#_]{0,2}[a-z][a-z_-]*(?:[0-9]{1,3}[a-z_-]*)?\Z   # at most one number, a short one
    """,
    re.ASCII | re.IGNORECASE | re.VERBOSE,
)
_DIGITS: Final = re.compile(r"[0-9]+")


@dataclass(frozen=True, slots=True)
class Shape:
    """All that was seen at one place of some results.

    `scalars` are JSON Schema's names of types. `items` is what lists held. An object has `fields`, those that each
    one had being `required`, or, if its keys are data, `values`. None: no list, no such object was seen.
    """

    scalars: frozenset[str] = frozenset()
    items: "Shape | None" = None
    fields: "Mapping[str, Shape] | None" = None
    required: frozenset[str] = frozenset()
    values: "Shape | None" = None


UNSEEN: Final = Shape()
"""Nothing was seen there: what empty lists hold."""

_SCALARS: Final = ("string", "integer", "number", "boolean", "null")
_TYPES: Final[tuple[type[Any], ...]] = (str, int, float, bool, type(None))
_OF_TYPE: Final = {type_: Shape(frozenset({name})) for type_, name in zip(_TYPES, _SCALARS, strict=True)}


def shape_of(value: Json, arguments: Json = None) -> Shape:
    """The shape of one result, of a large one from a sample.

    `arguments` are those it was asked for with: keys that repeat them may be data.
    """
    said = frozenset(islice(_texts(arguments, 0), _MAX_SAID))
    left = iter(range(MAX_VALUES))

    def read(value: Json, depth: int) -> Shape:
        is_late = next(left, None) is None
        if type(value) in _OF_TYPE:
            return _OF_TYPE[type(value)]
        if depth > MAX_DEPTH or is_late:
            return UNSEEN
        if isinstance(value, list):
            return Shape(items=reduce(_merged, [read(each, depth + 1) for each in _sample(value)], UNSEEN))
        # One more than an object may have: with it, it is a map.
        fields = {key: read(child, depth + 1) for key, child in islice(value.items(), MAX_FIELDS + 1)}
        return _object(fields, frozenset(fields), said)

    return _bounded(read(value, 1))


def merged(one: Shape, other: Shape) -> Shape:
    """What both say. Merging on and on comes to an end: a shape only ever gets wider, up to its bounds."""
    return _bounded(_merged(one, other))


def schema_of(shape: Shape) -> Json:
    """A JSON Schema (2020-12) of results of this shape. A place that was always null may be anything."""
    return {"type": "null"} if shape == _OF_TYPE[type(None)] else _schema(shape)


@lru_cache(maxsize=4096)
def is_field_name(key: str) -> bool:
    """Whether a key reads like a name that a programmer gave: words, at most one short number, no id or token."""
    return _FIELD_NAME.match(key) is not None


def are_numbered(keys: Collection[str]) -> bool:
    """Whether keys differ only in their numbers: all of them, or three of them."""
    alike = Counter(_DIGITS.sub("0", key) for key in keys if _DIGITS.search(key))
    most = max(alike.values(), default=0)
    return most >= _MANY_ALIKE or (most > 1 and most == len(keys))


def _schema(shape: Shape) -> Json:
    scalars = [name for name in _SCALARS if name in shape.scalars]
    alternatives: list[Json] = []
    if shape.fields is not None:
        fields = {key: _schema(each) for key, each in shape.fields.items()}
        required = [key for key in fields if key in shape.required]
        alternatives.append({"type": "object", "properties": fields, "required": required})
    if shape.values is not None:
        alternatives.append({"type": "object", "additionalProperties": _schema(shape.values)})
    if shape.items is not None:
        alternatives.append({"type": "array", "items": _schema(shape.items)})
    if not alternatives and scalars in ([], ["null"]):
        return {}
    if scalars:
        alternatives.append({"type": scalars})
    return alternatives[0] if len(alternatives) == 1 else {"anyOf": alternatives}


def _sample(items: list[Json]) -> Iterator[Json]:
    left = MAX_ITEMS - _FIRST_ITEMS
    step = max(1, (len(items) - _FIRST_ITEMS) / left)
    yield from items[:_FIRST_ITEMS]
    places = (int(_FIRST_ITEMS + step * number) for number in range(left))
    yield from (items[place] for place in places if place < len(items))


def _texts(value: Json, depth: int) -> Iterator[str]:
    """Texts in arguments, casefolded, and the parts of those that are lists: not words of prose, which name fields."""
    if isinstance(value, str):
        if len(value) <= _LONGEST_SAID:
            yield from _BETWEEN_NAMES.split(value.strip().casefold())
    elif isinstance(value, dict | list) and depth < MAX_DEPTH:
        for child in value.values() if isinstance(value, dict) else value:
            yield from _texts(child, depth + 1)


def _bounded(shape: Shape) -> Shape:
    depth = MAX_DEPTH
    while _places(shape) > MAX_PLACES and depth > 1:
        depth -= 1
        shape = _cut(shape, depth)
    return shape


def _places(shape: Shape) -> int:
    inner = (shape.items, shape.values, *(shape.fields or {}).values())
    return 1 + sum(_places(each) for each in inner if each is not None)


def _cut(shape: Shape, depth: int) -> Shape:
    """The same shape with nothing known below `depth` places."""
    if depth == 0:
        return UNSEEN
    items, fields, values = shape.items, shape.fields, shape.values
    return replace(
        shape,
        items=items and _cut(items, depth - 1),
        fields=fields and {key: _cut(each, depth - 1) for key, each in fields.items()},
        values=values and _cut(values, depth - 1),
    )


def _merged(one: Shape, other: Shape) -> Shape:
    if other in (one, UNSEEN):
        return one
    if one == UNSEEN:
        return other
    scalars = one.scalars | other.scalars
    if "number" in scalars:
        scalars -= {"integer"}  # which are numbers
    return replace(_merged_objects(one, other), scalars=scalars, items=_either(one.items, other.items))


def _either(one: Shape | None, other: Shape | None) -> Shape | None:
    return _merged(one, other) if one and other else one or other


def _merged_objects(one: Shape, other: Shape) -> Shape:
    if one.values or other.values:
        parts = [one.values, other.values, *(one.fields or {}).values(), *(other.fields or {}).values()]
        return Shape(values=reduce(_either, parts))
    if one.fields is None or other.fields is None:
        known = other if one.fields is None else one
        return Shape(fields=known.fields, required=known.required)
    shared = {
        key: _merged(each, other.fields[key]) for key, each in one.fields.items() if key in other.fields
    }
    return _object({**one.fields, **other.fields, **shared}, one.required & other.required)


def _object(fields: Mapping[str, Shape], required: frozenset[str], said: Collection[str] = ()) -> Shape:
    """The shape of objects with these fields, or of a map, if the keys are data."""
    if _are_data(fields, required, said):
        return Shape(values=reduce(_merged, fields.values(), UNSEEN))
    return Shape(fields=fields, required=required)


def _are_data(fields: Mapping[str, Shape], required: frozenset[str], said: Collection[str]) -> bool:
    """Objects by a name that was asked for are a map, and so are other values if they are all of one kind."""
    if len(fields) > MAX_FIELDS or not all(map(is_field_name, fields)) or are_numbered(fields):
        return True
    if len(fields) > _MANY_FIELDS and len(required) * 4 < len(fields):
        return True
    asked = [shape for key, shape in fields.items() if key.casefold() in said] if said else []
    if any(shape.fields is not None or shape.values is not None for shape in asked):
        return True
    if len({_kind(shape) for shape in fields.values()} - {None}) != 1:
        return False
    has_nothing_in_common = len(fields) > 1 and not required
    return has_nothing_in_common or bool(asked) or _are_records(fields)


def _kind(shape: Shape) -> object:
    """What kind of values a place has; None if that is not known."""
    scalars = shape.scalars - {"null"}
    is_object = shape.fields is not None or shape.values is not None
    return (scalars, shape.items is not None, is_object) if scalars or shape.items or is_object else None


def _are_records(fields: Mapping[str, Shape]) -> bool:
    """Whether the values are objects with the same keys, as in `{"Ann": {...}, "Bob": {...}, "Cy": {...}}`."""
    keys = {frozenset(shape.fields or ()) for shape in fields.values()}
    return len(fields) >= _MANY_ALIKE and len(keys) == 1 and keys != {frozenset()}
