"""What each keyword of the sound dialect asks of a value."""

import operator
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from manifests.json_value import Json
from portal.library.schema.inspection import Inspection, Path, Rule, Violation
from portal.library.schema.json_kinds import is_number, is_same, json_key, kind_words
from portal.library.schema.sound_schema import SoundNode
from portal.library.value_text import listing, value_text

LACKS: Final = "lacks"
"""How a message begins that names nothing but properties of the schema."""


def _ref(run: Inspection, operand: str, value: Json, path: Path, _: dict[str, Any]) -> None:
    run.inspect(run.definitions[operand], value, path)


def _enum(run: Inspection, operand: list[Json], value: Json, path: Path, _: dict[str, Any]) -> None:
    if not any(is_same(member, value) for member in operand):
        run.report(path, f"is {value_text(value)}, not one of {listing(operand)}")


def _all_of(run: Inspection, operand: list[SoundNode], value: Json, path: Path, _: dict[str, Any]) -> None:
    for member in operand:
        run.inspect(member, value, path)


def _any_of(run: Inspection, operand: list[SoundNode], value: Json, path: Path, _: dict[str, Any]) -> None:
    nearest: list[Violation] = []
    for member in operand:
        found = run.alternative(member, value, path)
        if not found:
            return
        if not nearest or _closeness(found) > _closeness(nearest):
            nearest = found
    if len(nearest[0].path) > len(path) or len(operand) == 1:
        run.found += nearest
    else:
        run.report(path, f"is {value_text(value)}, which fits none of: {_kinds(run, operand)}")


def _properties(
    run: Inspection, operand: dict[str, SoundNode], value: Json, path: Path, _: dict[str, Any]
) -> None:
    if isinstance(value, dict):
        for key, schema in operand.items():
            if schema is not True and key in value:
                run.inspect(schema, value[key], (*path, key))


def _additional(run: Inspection, operand: SoundNode, value: Json, path: Path, schema: dict[str, Any]) -> None:
    if not isinstance(value, dict) or operand is True:
        return
    known = schema.get("properties", {})
    for key, child in value.items():
        if key in known:
            continue
        if operand is False:
            allowed = f"it has {listing(known)}" if known else "it must be empty"
            run.report(path, f"has no property {value_text(key)}; {allowed}")
        else:
            run.inspect(operand, child, (*path, key))


def _required(run: Inspection, operand: list[str], value: Json, path: Path, _: dict[str, Any]) -> None:
    if isinstance(value, dict):
        missing = [key for key in operand if key not in value]
        if missing:
            run.report(path, f"{LACKS} {listing(missing)}")


def _dependent_required(
    run: Inspection, operand: dict[str, list[str]], value: Json, path: Path, _: dict[str, Any]
) -> None:
    if isinstance(value, dict):
        for key, names in operand.items():
            missing = [name for name in names if name not in value] if key in value else []
            if missing:
                run.report(path, f"has {value_text(key)}, so it also needs {listing(missing)}")


def _dependent_schemas(
    run: Inspection, operand: dict[str, SoundNode], value: Json, path: Path, _: dict[str, Any]
) -> None:
    if isinstance(value, dict):
        for key, schema in operand.items():
            if key in value:
                run.inspect(schema, value, path)


def _property_names(run: Inspection, operand: SoundNode, value: Json, path: Path, _: dict[str, Any]) -> None:
    if isinstance(value, dict):
        for key in value:
            for violation in run.alternative(operand, key, path):
                run.report(path, f"has a property whose name {violation.message}")


def _items(run: Inspection, operand: SoundNode, value: Json, path: Path, schema: dict[str, Any]) -> None:
    if isinstance(value, list) and operand is not True:
        first = len(schema.get("prefixItems", ()))
        for index in range(first, len(value)):
            run.inspect(operand, value[index], (*path, index))


def _prefix_items(
    run: Inspection, operand: list[SoundNode], value: Json, path: Path, _: dict[str, Any]
) -> None:
    if isinstance(value, list):
        for index, (schema, item) in enumerate(zip(operand, value, strict=False)):
            run.inspect(schema, item, (*path, index))


def _contains(run: Inspection, operand: SoundNode, value: Json, path: Path, schema: dict[str, Any]) -> None:
    if isinstance(value, list):
        least = schema.get("minContains", 1)
        fitting = sum(not run.alternative(operand, item, path) for item in value)
        if fitting < least:
            run.report(path, f"has {fitting} items of the wanted kind, at least {least} are needed")


def _unique_items(run: Inspection, operand: bool, value: Json, path: Path, _: dict[str, Any]) -> None:
    if operand and isinstance(value, list) and len({json_key(item) for item in value}) < len(value):
        run.report(path, "has items that are the same; each may be there once")


def _multiple_of(run: Inspection, operand: float, value: Json, path: Path, _: dict[str, Any]) -> None:
    if is_number(value) and not _is_multiple(value, operand):
        run.report(path, f"is {value_text(value)}, not a multiple of {operand}")


def _bound(is_broken: Callable[[Any, Any], bool], comparison: str) -> Rule:
    """A rule on a number's value."""

    def rule(run: Inspection, operand: Any, value: Json, path: Path, _: dict[str, Any]) -> None:
        if is_number(value) and is_broken(value, operand):
            run.report(path, f"is {value_text(value)}, must be {comparison} {operand}")

    return rule


def _size(kind: type[str | list[Json] | dict[str, Json]], unit: str, *, is_least: bool) -> Rule:
    """A rule on how long a string, an array or an object is."""

    def rule(run: Inspection, operand: Any, value: Json, path: Path, _: dict[str, Any]) -> None:
        if isinstance(value, kind):
            size = len(value)
            if size < operand if is_least else size > operand:
                run.report(
                    path, f"has {size} {unit}, must have at {'least' if is_least else 'most'} {operand}"
                )

    return rule


def _is_multiple(value: float, factor: float) -> bool:
    """Floats get a little room: 19.99 is meant to be a multiple of 0.01."""
    if isinstance(value, int) and isinstance(factor, int):
        return value % factor == 0
    try:
        quotient = value / factor
        return abs(quotient - round(quotient)) <= 1e-9 * max(1.0, abs(quotient))
    except (OverflowError, ValueError):
        return True


def _closeness(found: list[Violation]) -> tuple[int, int]:
    """How near an alternative came: one that looked deeper into the value, then one with less to mend."""
    return max(len(violation.path) for violation in found), -len(found)


def _kinds(run: Inspection, alternatives: Iterable[SoundNode]) -> str:
    """What alternatives ask for, in a few words each."""
    return ", ".join(dict.fromkeys(_kind(run, schema) for schema in list(alternatives)[:12]))


def _kind(run: Inspection, schema: SoundNode) -> str:
    for _ in range(3):
        if isinstance(schema, dict) and "$ref" in schema:
            schema = run.definitions[schema["$ref"]]
    if not isinstance(schema, dict):
        return "nothing"
    if "enum" in schema:
        return listing(schema["enum"])
    if "required" in schema:
        return f"an object with {listing(schema['required'])}"
    return kind_words(schema["type"]) if "type" in schema else "another schema"


RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        "$ref": _ref,
        "enum": _enum,
        "allOf": _all_of,
        "anyOf": _any_of,
        "properties": _properties,
        "additionalProperties": _additional,
        "required": _required,
        "dependentRequired": _dependent_required,
        "dependentSchemas": _dependent_schemas,
        "propertyNames": _property_names,
        "items": _items,
        "prefixItems": _prefix_items,
        "contains": _contains,
        "uniqueItems": _unique_items,
        "multipleOf": _multiple_of,
        "minimum": _bound(operator.lt, "at least"),
        "maximum": _bound(operator.gt, "at most"),
        "exclusiveMinimum": _bound(operator.le, "more than"),
        "exclusiveMaximum": _bound(operator.ge, "less than"),
        "minLength": _size(str, "characters", is_least=True),
        "maxLength": _size(str, "characters", is_least=False),
        "minItems": _size(list, "items", is_least=True),
        "maxItems": _size(list, "items", is_least=False),
        "minProperties": _size(dict, "properties", is_least=True),
        "maxProperties": _size(dict, "properties", is_least=False),
    }
)
