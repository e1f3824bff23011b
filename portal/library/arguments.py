"""Turns a script's arguments into wire arguments, and repairs them if the meaning is certain.

A repair is certain if it changes only values that do not fit, exactly one conversion fits, and the meaning is the same:

- a number, boolean, object or list in a string, if the schema takes that and no string: `"3"`, `"true"`, `"{}"`;
  an integer, if the schema takes a string
- a single item, if the schema takes a list of such: `"bug"` for `["bug"]`; but not a string that may be several:
  `"bug, ui"`
- positional arguments, in the order of the signature; one object with all arguments; a name in other case or with
  other dashes
"""

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from functools import reduce
from itertools import islice
from operator import getitem
from typing import Any, Final, TypeAlias

from manifests.json_value import UNKNOWN, Json, SchemaError, SchemaValidator, SoundNode
from manifests.kernels import JAVASCRIPT, PYTHON, KernelName
from manifests.names import normalized
from portal.base.plain_text import cut, visible
from portal.library.function import Function, Parameter, admits, data_in, root_object
from portal.library.library import nearest_names
from portal.library.notation import TYPESCRIPT
from portal.library.schema import is_kind, kind_of, kind_words
from portal.library.schema_types import carries_type, parts
from upstreams.tools import MISSING

MAX_STEPS: Final = 20_000
"""Validation steps for one call, about 0.1 s. A step applies one keyword to one value. The rest counts as valid."""

LONGEST_VALUE: Final = 80
"""Characters of one value in a message."""

POSITIONAL: Final = re.compile(r"\*[0-9]{1,3}")
"""Names a positional argument: `*0`, `*1`."""

_LONGEST_MESSAGE: Final = 2_000
_LONGEST_PATH: Final = 120
_MOST_LISTED: Final = 12

_WRAPPERS: Final = frozenset(
    "args arguments body data input inputs kwargs options parameters params payload request".split()  # noqa: SIM905
)
"""Names that models give to an object that wraps all arguments. They also use the function's own name."""

_NAMED_ONLY: Final[Mapping[KernelName, str]] = {
    PYTHON: "takes keyword arguments only",
    JAVASCRIPT: "takes one object with its arguments by name",
}
_CONTAINERS: Final[Mapping[KernelName, tuple[str, str, str, str]]] = {
    PYTHON: ("a list", "a dict", "an empty dict", "int"),
    JAVASCRIPT: ("an array", "an object", "an empty object", "integer"),
}

_MAX_TRIES: Final = 100
_MAX_ROUNDS: Final = 4
_MOST_ERRORS: Final = 1_000
_LONGEST_NUMBER: Final = 40
_MAX_CONTAINERS: Final = 5_000
_MOST_INTEGER: Final = 10**21
"""From here on, JavaScript clients also send a float."""
_TRUTHS: Final = {"True": True, "False": False}
_SINGLE: Final = re.compile(r"[_./:@#+-]*[A-Za-z0-9][A-Za-z0-9_./:@#+-]*")
_NOTHING: Final = frozenset({"empty", "false", "n/a", "na", "nil", "none", "nothing", "null", "undefined"})

Arguments: TypeAlias = dict[str, Json]
Repairs: TypeAlias = dict[str, str]
"""Descriptions of changes to arguments. Changes with the same key differ only in their values."""


class ArgumentError(Exception):
    """The arguments of a call do not fit the function. Nothing was sent. The script gets a `ToolError`."""

    code = "invalid_arguments"

    def __init__(self, function: Function, message: str, kernel: KernelName = PYTHON) -> None:
        super().__init__(cut(f"{function.qualified}: {message}", _LONGEST_MESSAGE))
        self.hint = function.brief_in(kernel)


def normalize_arguments(
    function: Function, kwargs: Arguments, *, repairs: bool, kernel: KernelName = PYTHON
) -> tuple[Arguments, Repairs]:
    """Return the arguments by wire name, and their repairs. With `repairs`, arguments that do not fit are repaired.

    Texts are in the language of the kernel.

    A positional argument is `{"*0": 3}`. `UNKNOWN` stands for a value, or a part of one, that is not known yet. Where
    the schema takes integers and no other numbers, 5.0 is sent as 5: not every server reads 5.0 as an integer.
    Raises ArgumentError: the arguments do not fit.
    """
    try:
        if any(map(POSITIONAL.fullmatch, kwargs)):
            raise ArgumentError(function, _NAMED_ONLY[kernel], kernel)
        wire, changes = bind(function, kwargs, kernel), Repairs()
    except ArgumentError:
        found = repaired(function, kwargs, kernel) if repairs else None
        if found is None:
            raise
        wire, changes = found
    if any(isinstance(each, float | list | dict) for each in wire.values()):
        with contextlib.suppress(RecursionError):
            [wire] = _with_integers([function.arguments.root], [wire], iter(range(_MAX_CONTAINERS)))
    return wire, changes


def _with_integers(schemas: Iterable[SoundNode], values: list[Any], left: Iterator[int]) -> list[Any]:
    """The values, which fit these schemas, with integers for floats such as 5.0, while containers are `left`."""
    nodes = [*parts(schemas)]
    nodes += parts(each for node in nodes for each in node.get("anyOf", ()))
    kinds = {kind for node in nodes for kind in node.get("type", ())}
    is_meant = "integer" in kinds and "number" not in kinds

    def converted(value: Any) -> Any:
        if isinstance(value, float) and is_meant and value.is_integer() and abs(value) < _MOST_INTEGER:
            return int(value)
        if not isinstance(value, list | dict) or next(left, None) is None:
            return value
        if isinstance(value, list):
            items = (
                each for node in nodes for each in (*node.get("prefixItems", ()), node.get("items", True))
            )
            return _with_integers(items, value, left)
        sound = [(node.get("properties", {}), node.get("additionalProperties", True)) for node in nodes]
        return {
            key: _with_integers([known.get(key, other) for known, other in sound], [each], left)[0]
            if isinstance(each, float | list | dict)
            else each
            for key, each in value.items()
        }

    return [*map(converted, values)]


def bind(function: Function, kwargs: Arguments, kernel: KernelName = PYTHON) -> Arguments:
    """Return the arguments by wire name, validated against the tool's reduced input schema.

    A keyword is the parameter's Python name or, for `**{"cik-A": 1}`, its wire name; never both. An optional argument
    that is None is dropped if the schema takes no null. `UNKNOWN` fits everywhere.

    Raises:
        ArgumentError: An argument is unknown, given twice, missing, or does not fit. The message names each one, with
            its value (cut to 80 characters) and what is allowed. The hint is the signature.
    """
    wire = _wire(function, kwargs, kernel)
    errors = function.arguments.validate(wire, MAX_STEPS).errors
    if errors:
        texts = dict.fromkeys(_error_text(function, error, kernel) for error in errors)
        raise ArgumentError(function, "; ".join(texts), kernel)
    return wire


def repaired(
    function: Function, kwargs: Arguments, kernel: KernelName = PYTHON
) -> tuple[Arguments, Repairs] | None:
    """Repair arguments that do not fit. None if no repair is certain."""
    found: list[tuple[Arguments, Repairs]] = []
    is_placed = sum(1 for each in kwargs if POSITIONAL.fullmatch(each)) <= 1
    for arrangement in _arrangements(function, kwargs):
        try:
            wire = _wire(function, arrangement, kernel)
            # With several positional arguments, a value that does not fit may be in the wrong place.
            fitting = (
                _repaired_value(function.arguments.root, wire, [])
                if is_placed
                else bind(function, arrangement)
            )
        except (ArgumentError, _AmbiguousError, RecursionError):
            continue
        changes = {} if arrangement == kwargs else dict([_moved(function, kwargs, arrangement, kernel)])
        changes |= dict(_changed(function, *change, kernel) for change in _changes((), wire, fitting))
        if not any(each == fitting for each, _ in found):
            found.append((fitting, changes))
    is_certain = len(found) == 1 or (found and UNKNOWN in kwargs.values())
    return found[0] if is_certain else None


def _wire(function: Function, kwargs: Arguments, kernel: KernelName) -> Arguments:
    """Return the arguments by wire name, complete. Their values are not validated.

    Raises ArgumentError: an argument is unknown, given twice, or missing.
    """
    wire: Arguments = {}
    known = function.by_keyword
    given = {each: known.get(each) or known.get(normalized(each)) for each in kwargs}
    unknown = [each for each, parameter in given.items() if parameter is None]
    if unknown and not function.others:
        raise ArgumentError(function, _unknown(function, unknown, kernel), kernel)
    for keyword, value in kwargs.items():
        parameter = given[keyword]
        name = keyword if parameter is None else parameter.wire_name
        if name in wire:
            message = f"got {value_text(name, kernel)} twice, by its Python name and by its wire name"
            raise ArgumentError(function, message, kernel)
        # Models write `assignee=None` for "no assignee", whether or not the schema takes null.
        if parameter is None or value is not None or parameter.required or parameter.is_nullable:
            wire[name] = value
    for parameter in function.parameters:
        if parameter.sent is not MISSING:
            wire.setdefault(parameter.wire_name, parameter.sent)
    missing = [each for each in function.parameters if each.required and each.wire_name not in wire]
    if missing:
        word = "argument" if len(missing) == 1 else "arguments"
        names = listing([_name(each, kernel) for each in missing], kernel)
        raise ArgumentError(function, f"lacks {word} {names}", kernel)
    return wire


def _name(parameter: Parameter, kernel: KernelName) -> str:
    return parameter.name if kernel == PYTHON else parameter.wire_name


def path_text(function: Function, path: Iterable[str | int], kernel: KernelName) -> str:
    """The place of a value in the arguments, as a script would write it: `labels[0]['name']`, `labels[0].name`."""
    first, *rest = path
    parameter = function.by_keyword.get(str(first))
    head = str(first) if parameter is None else _name(parameter, kernel)
    steps = (
        f".{step}" if kernel == JAVASCRIPT and TYPESCRIPT.plain_key.fullmatch(str(step)) else f"[{step!r}]"
        for step in rest
    )
    return cut(visible(head + "".join(steps)), _LONGEST_PATH)


def value_text(value: Json, kernel: KernelName = PYTHON) -> str:
    """A value in the language's notation, short but recognisable: scalars are cut, containers are summarised."""
    literal = repr if kernel == PYTHON else TYPESCRIPT.literal
    array, an_object, an_empty, integer = _CONTAINERS[kernel]
    if isinstance(value, str):
        return cut(visible(literal(value[: 2 * LONGEST_VALUE])), LONGEST_VALUE)
    if isinstance(value, list):
        return f"{array} of {len(value)}"
    if isinstance(value, dict):
        return f"{an_object} with {listing(value, kernel)}" if value else an_empty
    if isinstance(value, int) and value.bit_length() > 250:
        return f"a very large {integer}"
    return "a value" if value is UNKNOWN else literal(value)


def listing(values: Iterable[Json], kernel: KernelName = PYTHON) -> str:
    """The first dozen values, and whether there are more."""
    shown = [value_text(value, kernel) for value in islice(values, _MOST_LISTED + 1)]
    more = ", …" if len(shown) > _MOST_LISTED else ""
    return ", ".join(shown[:_MOST_LISTED]) + more


def nearest_error(error: SchemaError) -> SchemaError:
    """For an `anyOf` error, the error of the alternative that got deepest into the value, if one got into it.

    An alternative that lacks a constant of the value, such as another `kind`, was not meant.
    """
    while error.validator == "anyOf" and error.context:
        constants = {_alternative(each) for each in error.context if each.validator == "enum" and each.path}
        meant = [each for each in error.context if _alternative(each) not in constants]
        is_one = len({_alternative(each) for each in meant}) == 1
        nearest = max(meant or error.context, key=lambda each: len(each.path))
        if not nearest.path and len(error.validator_value) > 1 and not (is_one and constants):
            break
        error = nearest
    return error


def _alternative(error: SchemaError) -> str | int | None:
    """The alternative of `anyOf` that an error belongs to; None for `false`, whose errors do not say."""
    return error.schema_path[0] if error.schema_path else None


def _unknown(function: Function, keywords: list[str], kernel: KernelName) -> str:
    names = [_name(parameter, kernel) for parameter in function.parameters]
    near = [*dict.fromkeys(name for each in keywords[:_MOST_LISTED] for name in nearest_names(each, names))]
    known = f"near: {listing(near, kernel)}" if near else f"it takes {listing(names, kernel) or 'none'}"
    return f"has no argument {listing(keywords, kernel)}; {known}"


def _error_text(function: Function, error: SchemaError, kernel: KernelName) -> str:
    """One error, with its path as a script would write it: `labels[0]['name'] is 3, not a str`."""
    error = nearest_error(error)
    path = [*error.absolute_path]
    return f"{path_text(function, path, kernel) if path else 'the call'} {_message(error, kernel)}"


def _message(error: SchemaError, kernel: KernelName) -> str:
    value, operand = error.instance, error.validator_value
    match error.validator:
        case "type":
            return f"is {value_text(value, kernel)}, not {kind_words(operand, kernel)}"
        case "enum":
            return f"is {value_text(value, kernel)}, not one of {listing(operand, kernel)}"
        case "required":
            return f"lacks {listing((each for each in operand if each not in value), kernel)}"
        case "additionalProperties":
            known = error.schema.get("properties", {})
            allowed = f"it has {listing(known, kernel)}" if known else "it must be empty"
            others = listing((each for each in value if each not in known), kernel)
            return f"has no property {others}; {allowed}"
        case "anyOf":
            return f"is {value_text(value, kernel)}, but must be one of: {_alternatives(error, kernel)}"
        case None:
            return "is not allowed here"
    return (
        f"is {value_text(value, kernel)}, but its schema has {error.validator}: {value_text(operand, kernel)}"
    )


def _alternatives(error: SchemaError, kernel: KernelName) -> str:
    """The values that the alternatives accept, in a few words each."""
    texts = []
    for each in islice(error.context or (), _MOST_LISTED):
        if each.validator == "type":
            texts.append(kind_words(each.validator_value, kernel))
        elif each.validator in ("enum", "required"):
            texts.append(
                "an object with " * (each.validator == "required") + listing(each.validator_value, kernel)
            )
    return ", ".join(dict.fromkeys(texts)) or "the alternatives of its schema"


def _arrangements(function: Function, kwargs: Arguments) -> Iterator[Arguments]:
    """The arguments by keyword, in every way that the script may have meant them."""
    values = [value for name, value in kwargs.items() if POSITIONAL.fullmatch(name)]
    named = {name: value for name, value in kwargs.items() if not POSITIONAL.fullmatch(name)}
    named = _respelt(function, named)
    if values:
        first = function.parameters[: len(values)]
        free = [each for each in function.parameters if {each.name, each.wire_name}.isdisjoint(named)]
        # First as Python binds them. If one of those is also given by name, they fill exactly the missing ones.
        meant = first if all(each in free for each in first) else [each for each in free if each.required]
        # A lock pins the order of required parameters, but not that of others: two of them could change places. A text
        # mostly says which one is meant, if that takes texts; another value does not if another one takes it, too.
        optional = [each for each in meant if not each.required]
        if optional:
            nodes = root_object(function.arguments.root).get("properties", {})
            takers = [each for each in free if admits(nodes.get(each.wire_name, True), values[-1])]
            if not (isinstance(values[-1], str) and optional[-1] in takers):
                optional += (each for each in takers if not each.required and each not in meant)
        if len(values) == len(meant) and len(optional) <= 1:
            yield dict(zip((each.name for each in meant), values, strict=True)) | named
    else:
        yield named
        wrappers = {*_WRAPPERS, function.name, function.tool} - function.by_keyword.keys()
        values = [value for name, value in named.items() if name in wrappers]
    if len(values) == len(kwargs) == 1:
        yield from _unwrapped(function, values[0])


def _respelt(function: Function, kwargs: Arguments) -> Arguments:
    """Correct names that differ from one parameter's only in case or dashes: `maxResults`, `max-results`."""

    alike: dict[str, list[str]] = {}
    for each in function.parameters:
        alike.setdefault(_plain(each.name), []).append(each.name)

    def meant(name: str) -> str:
        found = [] if name in function.by_keyword else alike.get(_plain(name), [])
        return found[0] if len(found) == 1 else name

    respelt = {meant(name): value for name, value in kwargs.items()}
    return respelt if len(respelt) == len(kwargs) else kwargs


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name).casefold()


def _unwrapped(function: Function, value: Json) -> Iterator[Arguments]:
    """The arguments, taken out of an object that wraps them."""
    inner = data_in(value) if isinstance(value, str) else value
    if inner is UNKNOWN:
        inner = {each.name: UNKNOWN for each in function.parameters if each.required}
    if isinstance(inner, dict) and inner:
        inner = _respelt(function, inner)
        if all(key in function.by_keyword for key in inner):
            yield inner


class _AmbiguousError(Exception):
    """No conversion makes the value fit, or more than one does."""


def _repaired_value(schema: SoundNode, value: Any, tried: list[SoundNode]) -> Any:
    """The only conversion of the value that fits. Raises _AmbiguousError: none or several fit, or too many `tried`."""
    for _ in range(_MAX_ROUNDS):
        tried.append(schema)
        findings = SchemaValidator(schema).validate(value, MAX_STEPS, most=_MOST_ERRORS)
        if len(tried) > _MAX_TRIES or not findings.is_complete:
            raise _AmbiguousError
        if not findings.errors:
            return value
        holder: Any = [deepcopy(value)]
        mistyped = {tuple(each.path) for each in findings.errors if each.validator == "type"}
        for error in findings.errors:
            if error.validator != "type" and tuple(error.path) in mistyped:
                continue  # what else is wrong with a value depends on its type
            place: list[str | int] = [0, *error.path]
            reduce(getitem, place[:-1], holder)[place[-1]] = _remedy(error, tried)
        [value] = holder
    raise _AmbiguousError


def _remedy(error: SchemaError, tried: list[SoundNode]) -> Json:
    if error.validator == "type":
        ways = [(error.schema, each) for each in _conversions(error)]
    elif error.validator == "anyOf":
        ways = [(each, error.instance) for each in error.validator_value]
    else:
        raise _AmbiguousError
    fitting = []
    for schema, value in ways:
        with contextlib.suppress(_AmbiguousError):
            candidate = _repaired_value(schema, value, tried)
            if candidate not in fitting:
                fitting.append(candidate)
    if len(fitting) != 1 or len(tried) > _MAX_TRIES:
        raise _AmbiguousError
    return fitting[0]


def _conversions(error: SchemaError) -> Iterator[Json]:
    """Conversions of a value whose type the schema does not take."""
    value, wanted, schema = error.instance, error.validator_value, error.schema
    if isinstance(value, str):
        data: Json = _TRUTHS.get(value, data_in(value))
        is_short = isinstance(data, dict | list) or len(value) <= _LONGEST_NUMBER
        if data is not None and not isinstance(data, str) and is_short and is_kind(data, wanted):
            yield data
    elif "string" in wanted and type(value) is int and {"format", "pattern"}.isdisjoint(schema):
        yield str(value)
    # An item of a list is not wrapped: ["Ann", "30"] may mean [["Ann", "30"]].
    is_item = bool(error.path) and isinstance(error.path[-1], int)
    takes_list = "array" in wanted and "prefixItems" not in schema
    if takes_list and not is_item and _is_single(value, schema.get("items", True)):
        yield [value]


def _is_single(value: Json, items: SoundNode) -> bool:
    """Whether a value is certainly one item of a list: it is not itself a list and does not mean an empty one."""
    if isinstance(value, dict):
        return bool(value) and carries_type(items)
    if isinstance(value, str) and not (isinstance(items, dict) and value in items.get("enum", ())):
        return _SINGLE.fullmatch(value) is not None and value.casefold() not in _NOTHING
    return bool(value) and not isinstance(value, list)  # False and 0 may mean none


def _changes(path: tuple[str | int, ...], before: Any, after: Any) -> Iterator[tuple[Any, Any, Any]]:
    """The smallest parts that changed: path, value before, value after."""
    if type(before) is type(after) and isinstance(before, dict | list) and len(before) == len(after):
        for key in before if isinstance(before, dict) else range(len(before)):
            yield from _changes((*path, key), before[key], after[key])
    elif type(before) is not type(after) or before != after:
        yield path, before, after


def _changed(
    function: Function, path: tuple[str | int, ...], before: Json, after: Json, kernel: KernelName
) -> tuple[str, str]:
    anywhere = path_text(function, [step for step in path if isinstance(step, str)], kernel)
    was, sent = value_text(before, kernel), value_text(after, kernel)
    sent = f"[{was}]" if after == [before] else sent
    kind = f"{function.qualified} {anywhere} {kind_of(before)} {kind_of(after)}"
    return kind, f"{function.qualified}: {path_text(function, path, kernel)}: {was} was sent as {sent}"


def _moved(
    function: Function, kwargs: Arguments, arrangement: Arguments, kernel: KernelName
) -> tuple[str, str]:
    shown = [
        value_text(value, kernel) if POSITIONAL.fullmatch(name) else name for name, value in kwargs.items()
    ]
    sent = ", ".join(path_text(function, [each], kernel) for each in arrangement)
    form = "{}({})" if kernel == PYTHON else "{}({{{}}})"
    before, after = f"{function.name}({', '.join(shown)})", form.format(function.name, sent)
    kind = f"{function.qualified} {[*kwargs]} {after}"
    return kind, f"{function.qualified}: {before} was sent as {after}"
