"""Finds library calls whose arguments cannot fit, without running or type-checking anything.

It holds to what the broker will do with the call: what is found here, the call would have been refused for.
"""

import ast
from collections.abc import Iterator
from typing import Final

from portal.check.diagnostic import Suspicion
from portal.check.known_values import UNKNOWN, KnownValues
from portal.check.script_calls import ScriptCall
from portal.library.arguments import ArgumentError, bind
from portal.library.function import Function, Parameter
from portal.library.plain_text import visible
from portal.library.schema.inspection import Violation
from portal.library.schema.json_kinds import kind_words
from portal.library.schema.sound_schema import SoundNode, SoundSchema
from portal.library.schema.violations import violations
from portal.library.value_text import listing

_MAX_DEPTH: Final = 20


def argument_suspicions(call: ScriptCall, values: KnownValues) -> Iterator[Suspicion]:
    """What is certainly wrong with the arguments of one call."""
    function, node = call.function, call.node
    for argument in node.args:
        if not isinstance(argument, ast.Starred):
            yield _told(call, argument.lineno, f"{function.qualified} takes keyword arguments only")
            return
    given = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg is not None}
    unknown = [name for name in given if name not in function.by_keyword and not function.takes_others]
    for name in unknown:
        yield _told(call, given[name].lineno, _unknown(function, name))
    yield from _missing(call, given, unknown)
    for name, value in given.items():
        parameter = function.by_keyword.get(name)
        if parameter is not None:
            for message in _wrong(function, parameter, value, values):
                yield _told(call, value.lineno, f"{function.qualified}: {message}")


def _told(call: ScriptCall, line: int, message: str) -> Suspicion:
    return Suspicion(call.node, line, message, call.function.signature, "invalid_arguments")


def _unknown(function: Function, name: str) -> str:
    try:
        bind(function, {name: None})
    except ArgumentError as error:
        return str(error)
    return f"{function.qualified}: has no argument {name!r}"


def _missing(call: ScriptCall, given: dict[str, ast.expr], unknown: list[str]) -> Iterator[Suspicion]:
    """Required arguments that are not there; not told twice where a misspelt one stands in their place."""
    if any(keyword.arg is None for keyword in call.node.keywords):
        return
    wire = {parameter.wire_name for name, parameter in call.function.by_keyword.items() if name in given}
    missing = [
        parameter.name
        for parameter in call.function.parameters
        if parameter.required and not parameter.is_default_sent and parameter.wire_name not in wire
    ]
    if missing and not (unknown and len(missing) == 1):
        word = "argument" if len(missing) == 1 else "arguments"
        yield _told(call, call.line, f"{call.function.qualified}: lacks {word} {listing(missing)}")


def _wrong(function: Function, parameter: Parameter, node: ast.expr, values: KnownValues) -> Iterator[str]:
    """Why the value of an argument cannot fit."""
    value = values.value(node)
    if value is UNKNOWN:
        kind = values.kind(node)
        allowed = allowed_kinds(function, parameter)
        if kind is not None and allowed is not None and not fits(kind, allowed):
            yield f"{parameter.name} is {kind_words([kind])}, not {kind_words(sorted(allowed))}"
        return
    if value is None and not parameter.required and not parameter.is_nullable:
        return  # left out
    for violation in violations(function.arguments, {parameter.wire_name: value}):
        if violation.path[:1] == (parameter.wire_name,):
            yield _path_told(parameter, violation)


def _path_told(parameter: Parameter, violation: Violation) -> str:
    steps = "".join(f"[{step!r}]" for step in violation.path[1:])
    return f"{parameter.name}{visible(steps)} {violation.message}"


def allowed_kinds(function: Function, parameter: Parameter) -> set[str] | None:
    """The JSON Schema types that an argument may be of at most; None if it may be of any."""
    root = function.arguments.root
    properties = root.get("properties", {}) if isinstance(root, dict) else {}
    kinds = _kinds(function.arguments, properties.get(parameter.wire_name, True))
    return kinds if kinds is None or parameter.required else kinds | {"null"}


def fits(kind: str, allowed: set[str]) -> bool:
    """Whether some value of that type may be of an allowed one: 3.0 is an integer to JSON Schema."""
    numbers = {"integer", "number"}
    return kind in allowed or (kind in numbers and bool(allowed & numbers))


def _kinds(schema: SoundSchema, node: SoundNode, depth: int = 0) -> set[str] | None:
    """The types of values that a schema allows at most; None if it may be any."""
    if not isinstance(node, dict) or depth > _MAX_DEPTH:
        return None
    if "type" in node:
        return set(node["type"])
    if "$ref" in node:
        return _kinds(schema, schema.definitions.get(node["$ref"], True), depth + 1)
    if "anyOf" in node:
        each = [_kinds(schema, child, depth + 1) for child in node["anyOf"]]
        return None if None in each else {kind for kinds in each if kinds is not None for kind in kinds}
    return None
