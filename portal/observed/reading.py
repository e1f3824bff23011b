"""Reads the shape of one result, of a large one from a sample."""

import re
from collections.abc import Collection, Iterator
from itertools import islice
from typing import Any, Final

from manifests.json_value import Json
from portal.observed.shape import (
    MAX_DEPTH,
    MAX_FIELDS,
    MAX_PLACES,
    UNSEEN,
    Shape,
    merged,
    object_shape,
    scalar_names,
    scalar_shape,
)

MAX_VALUES: Final = 1_000
"""Values of one result that are looked at, which takes half a millisecond."""

MAX_ITEMS: Final = 12
"""Items of one list that are looked at: the first ones, and some of the others."""

_FIRST_ITEMS: Final = 6
_MAX_SAID: Final = 200
_LONGEST_SAID: Final = 1_000
_BETWEEN_NAMES: Final = re.compile(r"\s*[,;|\n，、；]\s*")
_SCALARS: Final[dict[type[Any], str]] = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
}


def shape_of(value: Json, arguments: Json = None) -> Shape:
    """The shape of a result. `arguments` are those it was asked for with: keys that repeat them may be data."""
    reader = _Reader()
    place = _Place()
    reader.add(place, value, 1)
    # Merged with nothing, because that keeps it within its bounds.
    return merged(UNSEEN, _frozen(place, set(islice(_texts(arguments, 0), _MAX_SAID))))


class _Place:
    """What is gathered at one place while a result is read; keys of objects are kept as they are till then."""

    __slots__ = ("fields", "items", "objects", "scalars", "seen")

    def __init__(self) -> None:
        self.seen = 0
        self.scalars: set[str] = set()
        self.items: _Place | None = None
        self.objects = 0
        self.fields: dict[str, _Place] = {}


class _Reader:
    def __init__(self) -> None:
        self._values = MAX_VALUES
        self._places = MAX_PLACES

    def add(self, place: _Place, value: Json, depth: int) -> None:
        place.seen += 1
        self._values -= 1
        name = _SCALARS.get(type(value))
        if name is not None:
            place.scalars.add(name)
        elif depth > MAX_DEPTH or self._values < 0:
            return
        elif isinstance(value, dict):
            self._add_object(place, value, depth + 1)
        elif isinstance(value, list):
            place.items = place.items or _Place()
            for item in _sample(value):
                self.add(place.items, item, depth + 1)

    def _add_object(self, place: _Place, value: dict[str, Json], depth: int) -> None:
        place.objects += 1
        # One more than an object may have: with it, it is a map.
        for key, child in islice(value.items(), MAX_FIELDS + 1):
            inner = place.fields.get(key)
            if inner is None:
                inner = place.fields[key] = _Place()
                self._places -= 1
            name = _SCALARS.get(type(child))
            if name is not None:  # as `add` does, without the call: most values are scalars
                inner.seen += 1
                inner.scalars.add(name)
            elif self._places >= 0:
                self.add(inner, child, depth)
            else:
                inner.seen += 1
        self._values -= len(value)


def _sample(items: list[Json]) -> Iterator[Json]:
    if len(items) <= MAX_ITEMS:
        yield from items
        return
    yield from items[:_FIRST_ITEMS]
    left = MAX_ITEMS - _FIRST_ITEMS
    step = (len(items) - _FIRST_ITEMS) / left
    yield from (items[int(_FIRST_ITEMS + step * number)] for number in range(left))


def _frozen(place: _Place, said: Collection[str]) -> Shape:
    if not place.objects and place.items is None:
        return scalar_shape(frozenset(place.scalars))
    scalars = scalar_names(place.scalars)
    items = None if place.items is None else _frozen(place.items, said)
    if not place.objects:
        return Shape(scalars, items)
    fields = {key: _frozen(inner, said) for key, inner in place.fields.items()}
    required = frozenset(key for key, inner in place.fields.items() if inner.seen >= place.objects)
    objects = object_shape(fields, required, said)
    return Shape(scalars, items, objects.fields, objects.required, objects.values)


def _texts(value: Json, depth: int) -> Iterator[str]:
    """Texts in arguments, casefolded, and the parts of those that are lists: not words of prose, which name fields."""
    if isinstance(value, str):
        if len(value) <= _LONGEST_SAID:
            yield from _BETWEEN_NAMES.split(value.strip().casefold())
    elif isinstance(value, dict | list) and depth < MAX_DEPTH:
        for child in value.values() if isinstance(value, dict) else value:
            yield from _texts(child, depth + 1)
