"""Calls whose arguments do not fit, repaired where it is certain what was meant."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from manifests.json_value import Json
from portal.library.arguments import ArgumentError, BoundArguments, bind, path_text, wire_arguments
from portal.library.function import Function, Parameter
from portal.library.schema.declared_names import declared_names
from portal.library.schema.json_kinds import kind_of
from portal.library.schema.kinds import kinds
from portal.library.schema.mending import Mend, container_in, mended
from portal.library.schema.sound_schema import SoundNode, SoundSchema
from portal.library.value_text import value_text

_MAX_DEPTH: Final = 10
_WRAPPERS: Final = frozenset(
    {
        *(
            "args",
            "arguments",
            "body",
            "data",
            "input",
            "inputs",
            "kwargs",
            "options",
            "parameters",
            "params",
        ),
        *("payload", "request"),
    }
)
"""What models call the object of all arguments, where there is none; and the function's own name."""


@dataclass(frozen=True, slots=True)
class Repair:
    """What was changed before a call was sent. Repairs with one `key` differ in their values only."""

    key: str
    message: str


@dataclass(frozen=True, slots=True)
class RepairedArguments:
    """Arguments that fit, and what it took."""

    bound: BoundArguments
    repairs: tuple[Repair, ...]


def fitted(function: Function, kwargs: dict[str, Json], *, repairs: bool) -> RepairedArguments:
    """The arguments as they are sent; with `repairs` also those that do not fit, if it is certain what was meant.

    Raises:
        ArgumentError: They do not fit.
    """
    try:
        return RepairedArguments(bind(function, kwargs), ())
    except ArgumentError:
        found = repaired(function, kwargs) if repairs else None
        if found is None:
            raise
        return found


def repaired(function: Function, kwargs: dict[str, Json]) -> RepairedArguments | None:
    """The arguments as they were meant; None if that is not certain.

    For a call that `bind` refuses. What comes back satisfies the tool's schema as `bind` holds it to that.
    """
    for arrangement in (kwargs, *_unwrapped(function, kwargs), *_wrapped(function, kwargs)):
        try:
            wire = wire_arguments(function, arrangement)
        except ArgumentError:
            continue
        found = mended(function.arguments, wire)
        if found is not None:
            moved = () if arrangement is kwargs else (_moved(function, kwargs, arrangement),)
            repairs = (*moved, *(_told(function, mend) for mend in found.mends))
            return RepairedArguments(BoundArguments(found.value), repairs)
    return None


def may_be_wrapper(function: Function, keyword: str) -> bool:
    """Whether a keyword may be meant for the object of all arguments: `f(arguments={"x": 1})`."""
    return keyword not in function.by_keyword and keyword in {*_WRAPPERS, function.name, function.tool}


def homes(function: Function, keywords: Collection[str]) -> list[Parameter]:
    """The parameters within which all these keywords have a name: they may be nested one level too shallow."""
    return [
        parameter
        for parameter in function.parameters
        if keywords
        and set(keywords) <= declared_names(function.arguments.definitions, schema_of(function, parameter))
    ]


def is_repairable(function: Function, parameter: Parameter, value: Json) -> bool:
    """Whether the value of one argument fits, or is repaired on its own."""
    if not _is_object(function, parameter):
        value = _own(parameter.name, _own(parameter.wire_name, value))
    schema = SoundSchema(schema_of(function, parameter), function.arguments.definitions)
    return mended(schema, value) is not None


def _own(key: str, value: Json) -> Json:
    """What lies within `{key: ...}`."""
    return value[key] if isinstance(value, dict) and list(value) == [key] else value


def _is_object(function: Function, parameter: Parameter) -> bool:
    allowed = kinds(function.arguments, schema_of(function, parameter))
    return allowed is None or "object" in allowed


def _unwrapped(function: Function, kwargs: dict[str, Json]) -> Iterator[dict[str, Json]]:
    """The arguments taken out of an object that they lie in and should not."""
    if len(kwargs) == 1:
        [(keyword, value)] = kwargs.items()
        inner = _object(value) if may_be_wrapper(function, keyword) else None
        if inner and all(key in function.by_keyword for key in inner):
            yield inner
    flat = {
        key: _own(key, value)
        for key, value in kwargs.items()
        if key in function.by_keyword and not _is_object(function, function.by_keyword[key])
    }
    if any(value is not kwargs[key] for key, value in flat.items()):
        yield {**kwargs, **flat}


def _wrapped(function: Function, kwargs: dict[str, Json]) -> Iterator[dict[str, Json]]:
    """The arguments put into the one parameter that they lie beside and should lie in.

    It is one that the call needs, or the only one left: else another may be meant, whatever it is called.
    """
    loose = {key: value for key, value in kwargs.items() if key not in function.by_keyword}
    given = {function.by_keyword[key].name for key in kwargs if key in function.by_keyword}
    free = [parameter for parameter in homes(function, loose) if parameter.name not in given]
    left = [parameter for parameter in function.parameters if parameter.name not in given]
    if len(free) == 1 and (free[0].required or left == free):
        yield {free[0].name: loose, **{key: value for key, value in kwargs.items() if key not in loose}}


def _object(value: Json) -> dict[str, Json]:
    whole = value if isinstance(value, dict) else container_in(value) if isinstance(value, str) else None
    return whole if isinstance(whole, dict) else {}


def schema_of(function: Function, parameter: Parameter) -> SoundNode:
    """What the schema says about one argument, whatever the others are."""
    said = [*_said_of(function.arguments, function.arguments.root, parameter.wire_name, 0, set())]
    return said[0] if len(said) == 1 else {"allOf": said} if said else True


def _said_of(
    schema: SoundSchema, node: SoundNode, name: str, depth: int, followed: set[str]
) -> Iterator[SoundNode]:
    if not isinstance(node, dict) or depth > _MAX_DEPTH:
        return
    if name in node.get("properties", {}):
        yield node["properties"][name]
    for part in node.get("allOf", ()):
        yield from _said_of(schema, part, name, depth + 1, followed)
    if "$ref" in node and node["$ref"] not in followed:
        followed.add(node["$ref"])
        yield from _said_of(schema, schema.definitions[node["$ref"]], name, depth + 1, followed)


def _moved(function: Function, kwargs: dict[str, Json], arrangement: dict[str, Json]) -> Repair:
    before, after = (f"{function.name}({', '.join(each)})" for each in (kwargs, arrangement))
    return Repair(before, f"{function.qualified}: {before} was sent as {after}")


def _told(function: Function, mend: Mend) -> Repair:
    place = path_text(function, mend.path)
    anywhere = path_text(function, tuple(step for step in mend.path if isinstance(step, str)))
    change = f"{kind_of(mend.before)} {kind_of(mend.after)}"
    message = f"{place}: {value_text(mend.before)} was sent as {_shown(mend.after)}"
    return Repair(f"{anywhere} {change}", f"{function.qualified}: {message}")


def _shown(value: Json) -> str:
    return f"[{value_text(value[0])}]" if isinstance(value, list) and len(value) == 1 else value_text(value)
