"""What results of a tool look like: kinds, keys and nesting, and no value of any of them.

A shape is kept on disk and shown to models, and no value of a result may get there as a key: an id, an address, a
name of somebody. Where in doubt keys are data, and the object is a map: that costs a stub some detail, the other
mistake gives something away.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache, reduce
from itertools import islice
from typing import Any, Final

from typing_extensions import TypedDict

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


class Shape(TypedDict, total=False):
    """All that was seen at one place of some results, in JSON Schema's words (2020-12); empty if nothing was.

    `items` is what lists held. Objects have `properties`, those that each one had being `required`, or, if their keys
    are data, `additionalProperties`.
    """

    type: list[str]
    properties: "dict[str, Shape]"
    required: list[str]
    additionalProperties: "Shape"
    items: "Shape"


_TYPES: Final[Mapping[str, type[Any]]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "null": type(None),
}
_OF_SCALARS: Final = {of: Shape(type=[name]) for name, of in _TYPES.items() if of not in (dict, list)}
_NULL: Final = Shape(type=["null"])


def shape_of(value: Json, arguments: Json = None) -> Shape:
    """The shape of one result, of a large one from a sample.

    `arguments` are those it was asked for with: keys that repeat them may be data.
    """
    said = frozenset(islice(_texts(arguments, 0), _MAX_SAID))
    left = iter(range(MAX_VALUES))

    def read(value: Json, depth: int) -> Shape:
        is_late = next(left, None) is None
        if type(value) in _OF_SCALARS:
            return _OF_SCALARS[type(value)]
        if depth > MAX_DEPTH or is_late:
            return {}
        if isinstance(value, list):
            step = max(1, (len(value) - _FIRST_ITEMS) // (MAX_ITEMS - _FIRST_ITEMS))
            sample = [*value[:_FIRST_ITEMS], *value[_FIRST_ITEMS::step]][:MAX_ITEMS]
            items = [read(each, depth + 1) for each in sample]
            return {"type": ["array"], "items": reduce(_merged, items, Shape())}
        # One more than an object may have: with it, it is a map.
        fields = {key: read(child, depth + 1) for key, child in islice(value.items(), MAX_FIELDS + 1)}
        return {"type": ["object"], **_object(fields, [*fields], said)}

    return _bounded(read(value, 1))


def merged(one: Shape, other: Shape) -> Shape:
    """What both say. Merging on and on comes to an end: a shape only ever gets wider, up to its bounds."""
    return _bounded(_merged(one, other))


def schema_of(shape: Shape) -> Json:
    """A JSON Schema of results of this shape. A place that was always null may be anything."""
    return shape if shape == _NULL else _mapped(shape, _without_null)


def _without_null(shape: Shape) -> Shape:
    return {} if shape == _NULL else _mapped(shape, _without_null)


@lru_cache(maxsize=4096)
def is_field_name(key: str) -> bool:
    """Whether a key reads like a name that a programmer gave: words, at most one short number, no id or token."""
    return _FIELD_NAME.match(key) is not None


def are_numbered(keys: Collection[str]) -> bool:
    """Whether keys differ only in their numbers: all of them, or three of them."""
    alike = Counter(_DIGITS.sub("0", key) for key in keys if _DIGITS.search(key))
    most = max(alike.values(), default=0)
    return most >= _MANY_ALIKE or (most > 1 and most == len(keys))


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
    inner = [*shape.get("properties", {}).values(), shape.get("items"), shape.get("additionalProperties")]
    return 1 + sum(_places(each) for each in inner if each is not None)


def _cut(shape: Shape, depth: int) -> Shape:
    """The same shape with nothing known below `depth` places."""
    return _mapped(shape, lambda inner: _cut(inner, depth - 1)) if depth else {}


def _mapped(shape: Shape, change: Callable[[Shape], Shape]) -> Shape:
    """The same shape with others right within it."""
    shape = {**shape}
    if "properties" in shape:
        shape["properties"] = {key: change(each) for key, each in shape["properties"].items()}
    if "additionalProperties" in shape:
        shape["additionalProperties"] = change(shape["additionalProperties"])
    if "items" in shape:
        shape["items"] = change(shape["items"])
    return shape


def _merged(one: Shape, other: Shape) -> Shape:
    if other in (one, {}):
        return one
    if not one:
        return other
    types = {*one.get("type", ()), *other.get("type", ())}
    if "number" in types:
        types -= {"integer"}  # which are numbers
    whole = _merged_objects(one, other) if "object" in types else Shape()
    if "array" in types:
        whole["items"] = _merged(one.get("items", {}), other.get("items", {}))
    return {**whole, "type": [name for name in _TYPES if name in types]}


def _merged_objects(one: Shape, other: Shape) -> Shape:
    if "additionalProperties" in one or "additionalProperties" in other:
        values = [value for each in (one, other) for value in each.get("properties", {}).values()]
        values += [each["additionalProperties"] for each in (one, other) if "additionalProperties" in each]
        return {"additionalProperties": reduce(_merged, values)}
    if "properties" not in one or "properties" not in other:
        known = one if "properties" in one else other
        return {"properties": known.get("properties", {}), "required": known.get("required", [])}
    mine, theirs = one["properties"], other["properties"]
    shared = {key: _merged(mine[key], theirs[key]) for key in mine if key in theirs}
    required = [key for key in one.get("required", []) if key in other.get("required", [])]
    return _object({**mine, **theirs, **shared}, required)


def _object(fields: dict[str, Shape], required: list[str], said: Collection[str] = ()) -> Shape:
    """What is said of objects with these fields, or of a map, if the keys are data."""
    if _are_data(fields, required, said):
        return {"additionalProperties": reduce(_merged, fields.values(), Shape())}
    return {"properties": fields, "required": required}


def _are_data(fields: Mapping[str, Shape], required: Collection[str], said: Collection[str]) -> bool:
    """Objects by a name that was asked for are a map, and so are other values if they are all of one kind."""
    if len(fields) > MAX_FIELDS or not all(map(is_field_name, fields)) or are_numbered(fields):
        return True
    if len(fields) > _MANY_FIELDS and len(required) * 4 < len(fields):
        return True
    asked = [shape for key, shape in fields.items() if key.casefold() in said]
    if any("object" in shape.get("type", ()) for shape in asked):
        return True
    kinds = {frozenset(shape.get("type", ())) - {"null"} for shape in fields.values()} - {frozenset()}
    if len(kinds) != 1:
        return False
    # Objects with the same keys are records: {"Ann": {...}, "Bob": {...}, "Cy": {...}}.
    keys = {frozenset(shape.get("properties", ())) for shape in fields.values()}
    are_records = len(fields) >= _MANY_ALIKE and len(keys) == 1 and keys != {frozenset()}
    has_nothing_in_common = len(fields) > 1 and not required
    return has_nothing_in_common or bool(asked) or are_records
