"""Shapes as JSON: as they are kept on disk, and as the JSON Schema that the library compiles."""

from collections.abc import Mapping
from typing import Final

from manifests.json_value import Json
from portal.observed.field_names import is_field_name
from portal.observed.shape import MAX_DEPTH, MAX_FIELDS, MAX_PLACES, Shape, size

_SCALARS: Final = ("string", "integer", "number", "boolean", "null")


def schema_of(shape: Shape) -> Json:
    """A JSON Schema (2020-12) of results of this shape. A place that was always null may be anything."""
    if shape.scalars == {"null"} and _has_no_parts(shape):
        return {"type": "null"}
    return _schema(shape)


def stored(shape: Shape) -> Json:
    """The shape as it is kept: its own parts by name, without those that are not there."""
    parts: dict[str, Json] = {}
    if shape.scalars:
        parts["scalars"] = sorted(shape.scalars)
    if shape.items is not None:
        parts["items"] = stored(shape.items)
    if shape.fields is not None:
        parts["fields"] = {key: stored(each) for key, each in shape.fields.items()}
        parts["required"] = [key for key in shape.fields if key in shape.required]
    if shape.values is not None:
        parts["values"] = stored(shape.values)
    return parts


def read_shape(value: Json) -> Shape | None:
    """A shape that was stored; None for anything that `stored` does not make."""
    try:
        shape = _read(value, 0)
    except _NoShapeError:
        return None
    return shape if size(shape) <= MAX_PLACES else None


class _NoShapeError(Exception):
    """A stored value is no shape."""


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


def _has_no_parts(shape: Shape) -> bool:
    return shape.fields is None and shape.values is None and shape.items is None


def _read(value: Json, depth: int) -> Shape:
    if not isinstance(value, dict) or depth > MAX_DEPTH + 1:
        raise _NoShapeError
    items, values = value.get("items"), value.get("values")
    fields = _read_fields(value.get("fields"), depth)
    return Shape(
        scalars=_names(value.get("scalars", []), _SCALARS),
        items=None if items is None else _read(items, depth + 1),
        fields=fields,
        required=_names(value.get("required", []), fields or {}),
        values=None if values is None else _read(values, depth + 1),
    )


def _read_fields(value: Json, depth: int) -> Mapping[str, Shape] | None:
    if value is None:
        return None
    if not isinstance(value, dict) or len(value) > MAX_FIELDS or not all(map(is_field_name, value)):
        raise _NoShapeError
    return {key: _read(each, depth + 1) for key, each in value.items()}


def _names(value: Json, known: Mapping[str, Shape] | tuple[str, ...]) -> frozenset[str]:
    if not isinstance(value, list) or not all(isinstance(name, str) and name in known for name in value):
        raise _NoShapeError
    return frozenset(value)
