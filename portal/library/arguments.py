"""A script's arguments to the arguments that go on the wire."""

from collections.abc import Iterable
from itertools import islice
from typing import Final

from manifests.json_value import Json
from manifests.schema_validation import UNKNOWN, SchemaError
from portal.library.function import NO_DEFAULT, Function
from portal.library.library import nearest_names
from portal.library.plain_text import cut, visible
from portal.library.schema import kind_words

MAX_STEPS: Final = 20_000
"""Uses of a schema's keyword on a value of one call, a tenth of a second; what lies beyond counts as right."""

LONGEST_VALUE: Final = 80
"""Characters of one value in a message."""

_LONGEST_MESSAGE: Final = 2_000
_LONGEST_PATH: Final = 120
_MOST_LISTED: Final = 12


class ArgumentError(Exception):
    """The arguments of a call do not fit the function; nothing was sent. For the script, a `ToolError`."""

    code = "invalid_arguments"

    def __init__(self, function: Function, message: str) -> None:
        super().__init__(cut(f"{function.qualified}: {message}", _LONGEST_MESSAGE))
        self.hint = function.signature


def bind(function: Function, kwargs: dict[str, Json]) -> dict[str, Json]:
    """The arguments by the upstream's own names, checked against the tool's input schema.

    A keyword may be the parameter's Python name or, for `**{"cik-A": 1}`, its wire name; never both. An
    optional argument that is None, where the schema takes no null, is left out. Values are checked against
    the reduced schema (`portal.library.schema`): `pattern`, `format` and keywords under a negation are left to the
    upstream, whatever is refused here breaks the tool's own schema. `UNKNOWN` fits everywhere.

    Raises:
        ArgumentError: An argument is unknown, given twice, missing, or does not fit; the message names each
            one, with the value (cut to 80 characters) and what is allowed, and the hint is the signature.
    """
    wire = wire_arguments(function, kwargs)
    errors = function.arguments.look_at(wire, MAX_STEPS).errors
    if errors:
        raise ArgumentError(function, "; ".join(dict.fromkeys(_told(function, error) for error in errors)))
    return wire


def wire_arguments(function: Function, kwargs: dict[str, Json]) -> dict[str, Json]:
    """The arguments by their wire names, complete, their values not looked at.

    Raises:
        ArgumentError: An argument is unknown, given twice, or missing.
    """
    wire: dict[str, Json] = {}
    for keyword, value in kwargs.items():
        parameter = function.by_keyword.get(keyword)
        if parameter is None and function.others is None:
            raise ArgumentError(function, _unknown(function, keyword))
        name = keyword if parameter is None else parameter.wire_name
        if name in wire:
            raise ArgumentError(function, f"got {value_text(name)} twice, by its Python name and by its own")
        # Models write `assignee=None` for "no assignee", whether or not the schema takes null.
        if parameter is None or value is not None or parameter.required or parameter.is_nullable:
            wire[name] = value
    for parameter in function.parameters:
        if parameter.is_default_sent and parameter.default is not NO_DEFAULT:
            wire.setdefault(parameter.wire_name, parameter.default)
    missing = [each.name for each in function.parameters if each.required and each.wire_name not in wire]
    if missing:
        word = "argument" if len(missing) == 1 else "arguments"
        raise ArgumentError(function, f"lacks {word} {listing(missing)}")
    return wire


def path_text(function: Function, path: Iterable[str | int]) -> str:
    """Where a value of the arguments sits, as a script would write it: `labels[0]['name']`."""
    first, *rest = path
    parameter = function.by_keyword.get(str(first))
    head = str(first) if parameter is None else parameter.name
    return cut(visible(head + "".join(f"[{step!r}]" for step in rest)), _LONGEST_PATH)


def value_text(value: Json) -> str:
    """A value in Python's notation, enough to recognise it: scalars cut, containers by what they hold."""
    if isinstance(value, str):
        return cut(visible(repr(value[: 2 * LONGEST_VALUE])), LONGEST_VALUE)
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return f"a dict with {listing(value)}" if value else "an empty dict"
    if isinstance(value, int) and value.bit_length() > 250:
        return "a very large int"
    return "a value" if value is UNKNOWN else repr(value)


def listing(values: Iterable[Json]) -> str:
    """The first dozen values, and whether there are more."""
    shown = [value_text(value) for value in islice(values, _MOST_LISTED + 1)]
    more = ", …" if len(shown) > _MOST_LISTED else ""
    return ", ".join(shown[:_MOST_LISTED]) + more


def nearest_error(error: SchemaError) -> SchemaError:
    """Of alternatives that all fail, what the one says that came nearest, if it got to look into the value."""
    while error.validator == "anyOf" and error.context:
        nearest = max(error.context, key=lambda each: len(each.path))
        if not nearest.path and len(error.validator_value) > 1:
            break
        error = nearest
    return error


def _unknown(function: Function, keyword: str) -> str:
    names = [parameter.name for parameter in function.parameters]
    near = nearest_names(keyword, names)
    if near:
        return f"has no argument {value_text(keyword)}; near: {listing(near)}"
    return f"has no argument {value_text(keyword)}; it takes {listing(names) if names else 'none'}"


def _told(function: Function, error: SchemaError) -> str:
    """One error, its path written as a script would: `labels[0]['name'] is 3, not a str`."""
    error = nearest_error(error)
    path = [*error.absolute_path]
    return f"{path_text(function, path) if path else 'the call'} {_message(error)}"


def _message(error: SchemaError) -> str:
    value, operand = error.instance, error.validator_value
    match error.validator:
        case "type":
            return f"is {value_text(value)}, not {kind_words(operand)}"
        case "enum":
            return f"is {value_text(value)}, not one of {listing(operand)}"
        case "required":
            return f"lacks {listing(each for each in operand if each not in value)}"
        case "additionalProperties":
            known = error.schema.get("properties", {})
            allowed = f"it has {listing(known)}" if known else "it must be empty"
            return f"has no property {listing(each for each in value if each not in known)}; {allowed}"
        case "anyOf":
            return f"is {value_text(value)}, which fits none of: {_alternatives(error)}"
        case None:
            return "is not allowed here"
    return f"is {value_text(value)}, but its schema says {error.validator}: {value_text(operand)}"


def _alternatives(error: SchemaError) -> str:
    """What alternatives ask for, in a few words each."""
    told: dict[str, None] = {}
    for each in islice(error.context or (), _MOST_LISTED):
        match each.validator:
            case "type":
                told[kind_words(each.validator_value)] = None
            case "enum":
                told[listing(each.validator_value)] = None
            case "required":
                told[f"an object with {listing(each.validator_value)}"] = None
    return ", ".join(told) or "its alternatives"
