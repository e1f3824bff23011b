"""What results of a tool look like: kinds, keys and nesting, and no value of any of them."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from typing import Final

from portal.observed.field_names import are_field_names

MAX_DEPTH: Final = 8
"""Lists and objects within one another; what lies deeper may be anything."""

MAX_FIELDS: Final = 100
"""Keys of one object; with more it is a map."""

MAX_PLACES: Final = 400
"""Places of one shape; with more its deepest ones may be anything."""

_MANY_FIELDS: Final = 30
_MANY_ALIKE: Final = 3


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


def merged(one: Shape, other: Shape) -> Shape:
    """What both say. Merging on and on comes to an end: a shape only ever gets wider, up to its bounds."""
    whole = _merged(one, other)
    depth = MAX_DEPTH
    while size(whole) > MAX_PLACES and depth > 1:
        depth -= 1
        whole = _cut(whole, depth)
    return whole


def object_shape(fields: Mapping[str, Shape], required: frozenset[str], said: Collection[str] = ()) -> Shape:
    """The shape of objects with these fields, or of a map, if the keys are data.

    `said` are texts that the caller sent, casefolded: objects by a name that was asked for are a map, and so are
    other values if they are all of one kind.
    """
    if _are_data(fields, required, said):
        return Shape(values=reduce(_merged, fields.values(), UNSEEN))
    return Shape(fields=fields, required=required)


def scalar_names(names: Iterable[str]) -> frozenset[str]:
    """Integers are numbers: where there are both, numbers."""
    known = frozenset(names)
    return known - {"integer"} if "number" in known else known


@lru_cache(maxsize=64)
def scalar_shape(names: frozenset[str]) -> Shape:
    """The shape of a place that only scalars were seen at."""
    return Shape(scalar_names(names))


def size(shape: Shape) -> int:
    """How many places a shape has."""
    inner = (shape.items, shape.values, *(shape.fields or {}).values())
    return 1 + sum(size(each) for each in inner if each is not None)


def _merged(one: Shape, other: Shape) -> Shape:
    if other in (one, UNSEEN):
        return one
    if one == UNSEEN:
        return other
    objects = _merged_objects(one, other)
    return replace(
        objects, scalars=scalar_names(one.scalars | other.scalars), items=_either(one.items, other.items)
    )


def _either(one: Shape | None, other: Shape | None) -> Shape | None:
    if one is None or other is None:
        return other if one is None else one
    return _merged(one, other)


def _merged_objects(one: Shape, other: Shape) -> Shape:
    if one.values is not None or other.values is not None:
        values = [each for each in (one.values, other.values) if each is not None]
        values += [*(one.fields or {}).values(), *(other.fields or {}).values()]
        return Shape(values=reduce(_merged, values))
    if one.fields is None or other.fields is None:
        known = other if one.fields is None else one
        return Shape(fields=known.fields, required=known.required)
    fields = {**one.fields, **other.fields}
    for key in one.fields.keys() & other.fields.keys():
        fields[key] = _merged(one.fields[key], other.fields[key])
    return object_shape(fields, one.required & other.required)


def _are_data(fields: Mapping[str, Shape], required: frozenset[str], said: Collection[str]) -> bool:
    if len(fields) > MAX_FIELDS or not are_field_names(tuple(fields)):
        return True
    if len(fields) > _MANY_FIELDS and len(required) * 4 < len(fields):
        return True
    asked = [shape for key, shape in fields.items() if key.casefold() in said] if said else []
    if any(shape.fields is not None or shape.values is not None for shape in asked):
        return True
    if not _are_alike(fields.values()):
        return False
    has_nothing_in_common = len(fields) > 1 and not required
    return has_nothing_in_common or bool(asked) or _are_records(fields)


def _are_alike(shapes: Iterable[Shape]) -> bool:
    """Whether some values are known, and all of those are of one kind."""
    first = None
    for shape in shapes:
        kind = _kind(shape)
        if first is not None and kind not in (first, None):
            return False
        first = first or kind
    return first is not None


def _kind(shape: Shape) -> object:
    """What kind of values a place has; None if that is not known."""
    scalars = shape.scalars - {"null"}
    is_object = shape.fields is not None or shape.values is not None
    return (scalars, shape.items is not None, is_object) if scalars or shape.items or is_object else None


def _are_records(fields: Mapping[str, Shape]) -> bool:
    """Whether the values are objects with the same keys, as in `{"Ann": {...}, "Bob": {...}, "Cy": {...}}`."""
    keys = {frozenset(shape.fields or ()) for shape in fields.values()}
    return len(fields) >= _MANY_ALIKE and len(keys) == 1 and keys != {frozenset()}


def _cut(shape: Shape, depth: int) -> Shape:
    """The same shape with nothing known below `depth` places."""
    if depth == 0:
        return UNSEEN
    return replace(
        shape,
        items=None if shape.items is None else _cut(shape.items, depth - 1),
        fields=None
        if shape.fields is None
        else {key: _cut(each, depth - 1) for key, each in shape.fields.items()},
        values=None if shape.values is None else _cut(shape.values, depth - 1),
    )
