"""Calls whose arguments do not fit, repaired where it is certain what was meant.

A repair is certain if nothing but what does not fit is changed, exactly one remedy fits, and it means the same:

- a number, a boolean, an object or a list in a text, where that is wanted and a text is not: `"3"`, `"true"`, `"{}"`;
  an integer, where a text is wanted
- a single item, where a list of such is wanted: `"bug"` for `["bug"]`; but no text that may be several: `"bug, ui"`
- arguments by position, in the order of the signature; one object with all of them; a name in other case or with
  other dashes
"""

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from manifests.json_value import Json
from manifests.schema_validation import UNKNOWN as UNKNOWN
from manifests.schema_validation import SchemaError, SchemaValidator, SoundNode
from portal.library.arguments import (
    MAX_STEPS,
    ArgumentError,
    bind,
    path_text,
    value_text,
    wire_arguments,
)
from portal.library.function import Function
from portal.library.results import data_in
from portal.library.schema import is_kind, kind_of

POSITIONAL: Final = re.compile(r"\*[0-9]{1,3}")
"""How an argument by position is named on its way here: `*0`, `*1`."""

_WRAPPERS: Final = frozenset(
    "args arguments body data input inputs kwargs options parameters params payload request".split()  # noqa: SIM905
)
"""What models call the object of all arguments, where there is none; and the function's own name."""

_MAX_TRIES: Final = 100
_MAX_ROUNDS: Final = 4
_MOST_MENDED: Final = 1_000
_LONGEST_NUMBER: Final = 40
_TRUTHS: Final = {"True": True, "False": False}
_SINGLE: Final = re.compile(r"[A-Za-z0-9_./:@#+-]*[A-Za-z0-9][A-Za-z0-9_./:@#+-]*")
_NOTHING: Final = frozenset({"empty", "false", "n/a", "na", "nil", "none", "nothing", "null", "undefined"})


@dataclass(frozen=True, slots=True)
class Repair:
    """What was changed before a call was sent. Repairs with one `key` differ in their values only."""

    key: str
    message: str


@dataclass(frozen=True, slots=True)
class FittedArguments:
    """Arguments by the upstream's own names, which fit its schema, and what it took."""

    wire: dict[str, Json]
    repairs: tuple[Repair, ...] = ()


def fitted(function: Function, kwargs: dict[str, Json], *, repairs: bool) -> FittedArguments:
    """The arguments as they are sent; with `repairs` also those that do not fit, if it is certain what was meant.

    Arguments by position are `{"*0": 3}`. `UNKNOWN` stands for values, or parts of them, that are not known yet.

    Raises:
        ArgumentError: They do not fit.
    """
    try:
        if any(map(POSITIONAL.fullmatch, kwargs)):
            raise ArgumentError(function, "takes keyword arguments only")
        return FittedArguments(bind(function, kwargs))
    except ArgumentError:
        found = repaired(function, kwargs) if repairs else None
        if found is None:
            raise
        return found


def repaired(function: Function, kwargs: dict[str, Json]) -> FittedArguments | None:
    """The arguments as they were meant; None if that is not certain. For a call that does not fit as it is."""
    found: list[FittedArguments] = []
    is_placed = sum(1 for each in kwargs if POSITIONAL.fullmatch(each)) <= 1
    for arrangement in _arrangements(function, kwargs):
        try:
            wire = wire_arguments(function, arrangement)
            # By position, what is wrong with one of several values may be its place.
            fitting = (
                _Mending().mended(function.arguments.root, wire) if is_placed else bind(function, arrangement)
            )
        except (ArgumentError, _UnsureError, RecursionError):
            continue
        told = [] if arrangement is kwargs else [_moved(function, kwargs, arrangement)]
        told += [_changed(function, *change) for change in _changes((), wire, fitting)]
        if not any(each.wire == fitting for each in found):
            found.append(FittedArguments(fitting, tuple(told)))
    is_certain = len(found) == 1 or (found and UNKNOWN in kwargs.values())
    return found[0] if is_certain else None


def _arrangements(function: Function, kwargs: dict[str, Json]) -> Iterator[dict[str, Json]]:
    """The arguments as they are, and as they may have been meant to be put."""
    by_position = [value for name, value in kwargs.items() if POSITIONAL.fullmatch(name)]
    named = {name: value for name, value in kwargs.items() if not POSITIONAL.fullmatch(name)}
    if by_position:
        named = _respelt(function, named)
        taken = [each for each in function.parameters if {each.name, each.wire_name} & named.keys()]
        first = [*function.parameters][: len(by_position)]
        # As Python binds them; or, beside a name for one of the first, exactly what is still missing.
        missing = [each for each in function.parameters if each.required and each not in taken]
        meant = missing if any(each in taken for each in first) else first
        if len(by_position) == len(meant):
            yield dict(zip((each.name for each in meant), by_position, strict=True)) | named
        if len(by_position) == 1 and not named:
            yield from _unwrapped(function, by_position[0])
        return
    respelt = _respelt(function, named)
    yield kwargs if respelt == kwargs else respelt
    [(name, value), *others] = named.items() if named else [("", None)]
    if not others and name not in function.by_keyword and name in {*_WRAPPERS, function.name, function.tool}:
        yield from _unwrapped(function, value)


def _respelt(function: Function, kwargs: dict[str, Json]) -> dict[str, Json]:
    """Names that differ from one parameter's in case or dashes only, as that is called: `maxResults`, `max-results`."""
    plain: dict[str, list[str]] = {}
    for parameter in function.parameters:
        plain.setdefault(_plain(parameter.name), []).append(parameter.name)
    meant = {name: plain.get(_plain(name), []) for name in kwargs if name not in function.by_keyword}
    respelt = {name: others[0] for name, others in meant.items() if len(others) == 1}
    is_free = len({*respelt.values()} - kwargs.keys()) == len(respelt)
    return {respelt.get(name, name): value for name, value in kwargs.items()} if is_free else kwargs


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name).casefold()


def _unwrapped(function: Function, value: Json) -> Iterator[dict[str, Json]]:
    """The arguments taken out of an object that they lie in and should not."""
    inner = data_in(value) if isinstance(value, str) else value
    if inner is UNKNOWN:
        inner = {each.name: UNKNOWN for each in function.parameters if each.required}
    if isinstance(inner, dict) and inner:
        inner = _respelt(function, inner)
        if all(key in function.by_keyword for key in inner):
            yield inner


class _UnsureError(Exception):
    """There is no way to make a value fit, or more than one."""


class _Mending:
    """One value on its way into one schema, remedy by remedy."""

    def __init__(self) -> None:
        self._left = _MAX_TRIES

    def mended(self, schema: SoundNode, value: Any) -> Any:
        """The one way in which the value fits.

        Raises:
            _UnsureError: There is none, or several.
        """
        for _ in range(_MAX_ROUNDS):
            self._left -= 1
            findings = SchemaValidator(schema).look_at(value, MAX_STEPS, most=_MOST_MENDED)
            if self._left < 0 or not findings.is_whole:
                raise _UnsureError
            if not findings.errors:
                return value
            for error in findings.errors:
                value = _replaced(value, [*error.path], self._remedy(error))
        raise _UnsureError

    def _remedy(self, error: SchemaError) -> Json:
        """What the value of an error becomes."""
        if error.validator == "type":
            tried = [(error.schema, each) for each in _conversions(error)]
        elif error.validator == "anyOf":
            tried = [(each, error.instance) for each in error.validator_value]
        else:
            raise _UnsureError
        fitting = []
        for schema, value in tried:
            with contextlib.suppress(_UnsureError):
                mended = self.mended(schema, value)
                if mended not in fitting:
                    fitting.append(mended)
        if len(fitting) != 1 or self._left < 0:
            raise _UnsureError
        return fitting[0]


def _replaced(value: Any, path: list[str | int], part: Json) -> Any:
    """The value with another one at a place of it; the original stays as it is."""
    if not path:
        return part
    copy = value.copy()
    copy[path[0]] = _replaced(value[path[0]], path[1:], part)
    return copy


def _conversions(error: SchemaError) -> Iterator[Json]:
    """What a value that is of none of the wanted types may stand for."""
    value, wanted, schema = error.instance, error.validator_value, error.schema
    if isinstance(value, str):
        data: Json = _TRUTHS.get(value, data_in(value))
        is_short = isinstance(data, dict | list) or len(value) <= _LONGEST_NUMBER
        if data is not None and not isinstance(data, str) and is_short and is_kind(data, wanted):
            yield data
    elif "string" in wanted and type(value) is int and {"format", "pattern"}.isdisjoint(schema):
        yield str(value)
    # What is in a list already may be meant as a whole: ["Ann", "30"] for [["Ann", "30"]].
    is_item = bool(error.path) and isinstance(error.path[-1], int)
    if (
        "array" in wanted
        and not is_item
        and "prefixItems" not in schema
        and _is_single(value, schema.get("items", True))
    ):
        yield [value]


def _is_single(value: Json, items: SoundNode) -> bool:
    """Whether a value is one item of a list for certain, and no list in itself, nor stands for an empty one."""
    if isinstance(value, dict):
        return bool(value) and isinstance(items, dict)
    if isinstance(value, str) and not (isinstance(items, dict) and value in items.get("enum", ())):
        return _SINGLE.fullmatch(value) is not None and value.casefold() not in _NOTHING
    return value is not None and not isinstance(value, list)


def _changes(
    path: tuple[str | int, ...], before: Any, after: Any
) -> Iterator[tuple[tuple[str | int, ...], Any, Any]]:
    """The smallest parts that were changed, by their places."""
    if type(before) is not type(after) or not isinstance(before, dict | list) or len(before) != len(after):
        if before is not after and (type(before) is not type(after) or before != after):
            yield path, before, after
        return
    for key in before if isinstance(before, dict) else range(len(before)):
        yield from _changes((*path, key), before[key], after[key])


def _changed(function: Function, path: tuple[str | int, ...], before: Json, after: Json) -> Repair:
    anywhere = path_text(function, [step for step in path if isinstance(step, str)])
    told = f"[{value_text(before)}]" if after == [before] else value_text(after)
    message = f"{path_text(function, path)}: {value_text(before)} was sent as {told}"
    return Repair(f"{anywhere} {kind_of(before)} {kind_of(after)}", f"{function.qualified}: {message}")


def _moved(function: Function, kwargs: dict[str, Json], arrangement: dict[str, Json]) -> Repair:
    shown = [value_text(value) if POSITIONAL.fullmatch(name) else name for name, value in kwargs.items()]
    before, after = (f"{function.name}({', '.join(each)})" for each in (shown, arrangement))
    return Repair(f"{[*kwargs]} {after}", f"{function.qualified}: {before} was sent as {after}")
