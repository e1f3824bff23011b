"""A script's keyword arguments to the arguments that go on the wire."""

from dataclasses import dataclass

from manifests.json_value import Json
from portal.library.function import NO_DEFAULT, Function, Parameter
from portal.library.nearest_names import nearest_names
from portal.library.plain_text import cut, visible
from portal.library.schema.inspection import Path, Violation
from portal.library.schema.violations import violations
from portal.library.value_text import listing, value_text

_LONGEST_PATH = 120
_LONGEST_MESSAGE = 2_000


@dataclass(frozen=True, slots=True)
class BoundArguments:
    """Arguments as the upstream knows them: its own names, checked against its own schema."""

    wire: dict[str, Json]


class ArgumentError(Exception):
    """The arguments of a call do not fit the function; nothing was sent. For the script, a `ToolError`."""

    code = "invalid_arguments"

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def bind(function: Function, kwargs: dict[str, Json]) -> BoundArguments:
    """Rename keywords back to wire names and check them against the tool's input schema.

    A keyword may be the parameter's Python name or, for `**{"cik-A": 1}`, its wire name; never both. An
    optional argument that is None, where the schema takes no null, is left out. Values are checked against
    the schema in the sound dialect: `pattern`, `format` and keywords under a negation are left to the
    upstream (see `sound_schema`), whatever is refused here breaks the tool's own schema.

    Raises:
        ArgumentError: An argument is unknown, given twice, missing, or does not fit; the message names each
            one, with the value (cut to 80 characters) and what is allowed, and the hint is the signature.
    """
    wire = wire_arguments(function, kwargs)
    found = violations(function.arguments, wire)
    if found:
        raise _error(function, "; ".join(_told(function, violation) for violation in found))
    return BoundArguments(wire)


def wire_arguments(function: Function, kwargs: dict[str, Json]) -> dict[str, Json]:
    """The arguments by their wire names, complete, their values not looked at.

    Raises:
        ArgumentError: An argument is unknown, given twice, or missing.
    """
    wire = _renamed(function, kwargs)
    for parameter in function.parameters:
        if (
            parameter.is_default_sent
            and parameter.wire_name not in wire
            and parameter.default is not NO_DEFAULT
        ):
            wire[parameter.wire_name] = parameter.default
    missing = [each.name for each in function.parameters if each.required and each.wire_name not in wire]
    if missing:
        raise _error(function, f"lacks {'argument' if len(missing) == 1 else 'arguments'} {listing(missing)}")
    return wire


def _renamed(function: Function, kwargs: dict[str, Json]) -> dict[str, Json]:
    wire: dict[str, Json] = {}
    for keyword, value in kwargs.items():
        parameter = function.by_keyword.get(keyword)
        if parameter is None and not function.takes_others:
            raise _error(function, _unknown(function, keyword))
        name = keyword if parameter is None else parameter.wire_name
        if name in wire:
            raise _error(function, f"got {value_text(name)} twice, by its Python name and by its own")
        if parameter is None or not _is_omitted(parameter, value):
            wire[name] = value
    return wire


def _is_omitted(parameter: Parameter, value: Json) -> bool:
    """Models write `assignee=None` for "no assignee", whether or not the schema takes null."""
    return value is None and not parameter.required and not parameter.is_nullable


def _unknown(function: Function, keyword: str) -> str:
    names = [parameter.name for parameter in function.parameters]
    near = nearest_names(keyword, names)
    if near:
        return f"has no argument {value_text(keyword)}; near: {listing(near)}"
    return f"has no argument {value_text(keyword)}; it takes {listing(names) if names else 'none'}"


def _told(function: Function, violation: Violation) -> str:
    """One violation, its path written as a script would: `labels[0]['name'] is 3, not a str`."""
    if not violation.path:
        return f"the call {violation.message}"
    return f"{path_text(function, violation.path)} {violation.message}"


def path_text(function: Function, path: Path) -> str:
    """Where a value of the arguments sits, as a script would write it: `labels[0]['name']`."""
    first = function.by_keyword.get(str(path[0]))
    head = first.name if first is not None else str(path[0])
    rest = "".join(f"[{step!r}]" for step in path[1:])
    return cut(visible(head + rest), _LONGEST_PATH)


def _error(function: Function, message: str) -> ArgumentError:
    return ArgumentError(cut(f"{function.qualified}: {message}", _LONGEST_MESSAGE), hint=function.signature)
