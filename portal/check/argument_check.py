"""Finds library calls whose arguments cannot fit, without running or type-checking anything.

It holds to what the broker will do with the call: what is found here, the call would have been refused for.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from portal.check.diagnostic import Suspicion
from portal.check.known_values import UNKNOWN, KnownValues
from portal.check.script_calls import ScriptCall
from portal.library.arguments import ArgumentError, bind
from portal.library.function import Function, Parameter
from portal.library.plain_text import visible
from portal.library.repairs import homes, is_repairable, may_be_wrapper, repaired, schema_of
from portal.library.schema.inspection import Violation
from portal.library.schema.json_kinds import kind_words
from portal.library.schema.kinds import fits, kinds, mendable_kinds
from portal.library.schema.sound_schema import SoundNode, SoundSchema
from portal.library.schema.violations import violations
from portal.library.value_text import listing

Given: TypeAlias = Mapping[str, ast.expr]
"""The arguments of a call by their keywords."""


@dataclass(frozen=True)
class ArgumentCheck:
    """Checks calls; `repairs` says whether the broker repairs arguments where it is certain what was meant."""

    values: KnownValues
    repairs: bool

    def suspicions(self, call: ScriptCall) -> Iterator[Suspicion]:
        """What is certainly wrong with the arguments of one call."""
        for argument in call.node.args:
            if not isinstance(argument, ast.Starred):
                yield _told(call, argument.lineno, f"{call.function.qualified} takes keyword arguments only")
                return
        given, is_whole = self._given(call)
        found = [*self._problems(call, given, is_whole)]
        if found and self.repairs:
            found = [*self._after_repair(call, given, is_whole, found)]
        yield from found

    def _given(self, call: ScriptCall) -> tuple[Given, bool]:
        """The arguments that are plain to see, and whether they are all."""
        given: dict[str, ast.expr] = {}
        is_whole = True
        for keyword in call.node.keywords:
            spread = {keyword.arg: keyword.value} if keyword.arg else self.values.items(keyword.value)
            given |= spread or {}
            is_whole = is_whole and spread is not None
        return given, is_whole

    def takes(self, function: Function, parameter: Parameter, kind: str) -> bool:
        """Whether an argument may be of a JSON Schema type, or may be repaired if it is."""
        find = mendable_kinds if self.repairs else kinds
        allowed = find(function.arguments, schema_of(function, parameter))
        return allowed is None or fits(kind, allowed) or (kind == "null" and not parameter.required)

    def _problems(self, call: ScriptCall, given: Given, is_whole: bool) -> Iterator[Suspicion]:
        """What is wrong with these arguments as they stand."""
        function = call.function
        unknown = _unknown_names(function, given)
        found = [_told(call, given[name].lineno, _unknown(function, name)) for name in unknown]
        if is_whole:
            found += _missing(call, given, unknown)
        for name, value in given.items():
            parameter = function.by_keyword.get(name)
            if parameter is not None:
                for message in self._wrong(function, parameter, value):
                    found.append(_told(call, value.lineno, f"{function.qualified}: {message}"))
        yield from found or (self._wrong_together(call, given) if is_whole else ())

    def _wrong_together(self, call: ScriptCall, given: Given) -> Iterator[Suspicion]:
        """Why arguments that fit each on its own, and are the same in every run, do not fit together."""
        kwargs = {name: self.values.value(node) for name, node in given.items()}
        if UNKNOWN not in kwargs.values():
            try:
                bind(call.function, kwargs)
            except ArgumentError as error:
                yield _told(call, call.line, str(error))

    def _after_repair(
        self, call: ScriptCall, given: Given, is_whole: bool, found: list[Suspicion]
    ) -> Iterator[Suspicion]:
        """What is left of what was found when the broker has put the arguments where they belong."""
        function = call.function
        if is_whole and self._is_repaired(function, given):
            return
        inner = _unwrapped(function, given) if is_whole else given
        if inner is not given:
            found = [*self._problems(call, inner, is_whole)]
        if not self._may_be_rearranged(function, inner, _unknown_names(function, inner)):
            yield from found

    def _is_repaired(self, function: Function, given: Given) -> bool:
        """Whether the call, the same in every run, is repaired in every run."""
        kwargs = {name: self.values.value(node) for name, node in given.items()}
        return UNKNOWN not in kwargs.values() and repaired(function, kwargs) is not None

    def _may_be_rearranged(self, function: Function, given: Given, unknown: list[str]) -> bool:
        """Whether what the script computes may be such that arguments it has no parameter for find their place."""
        if all(self.values.value(node) is not UNKNOWN for node in given.values()):
            return False
        is_wrapper = len(given) == 1 and any(may_be_wrapper(function, name) for name in given)
        return is_wrapper or any(parameter.name not in given for parameter in homes(function, unknown))

    def _wrong(self, function: Function, parameter: Parameter, node: ast.expr) -> Iterator[str]:
        """Why the value of an argument cannot fit."""
        no_json = self.values.not_json(node)
        if no_json is not None:
            yield f"{parameter.name} is {no_json[0]}, which is not JSON: {no_json[1]}"
            return
        value = self.values.value(node)
        if value is UNKNOWN:
            kind = self.values.kind(node)
            if (
                kind is None
                or self.takes(function, parameter, kind)
                or self._may_be_nested(parameter, node, kind)
            ):
                return
            allowed = kinds(function.arguments, schema_of(function, parameter)) or ()
            yield f"{parameter.name} is {kind_words([kind])}, not {kind_words(sorted(allowed))}"
            return
        if value is None and not parameter.required and not parameter.is_nullable:
            return  # left out
        if self.repairs and is_repairable(function, parameter, value):
            return
        alone: SoundNode = {"properties": {parameter.wire_name: schema_of(function, parameter)}}
        schema = SoundSchema(alone, function.arguments.definitions)
        for violation in violations(schema, {parameter.wire_name: value}):
            yield _path_told(parameter, violation)

    def _may_be_nested(self, parameter: Parameter, node: ast.expr, kind: str) -> bool:
        """Whether it may turn out as `{"name": value}`, the argument within itself."""
        if not self.repairs or kind != "object":
            return False
        if not isinstance(node, ast.Dict):
            return True
        keys = [getattr(key, "value", None) for key in node.keys]
        return keys in ([parameter.name], [parameter.wire_name]) or None in keys


def _unwrapped(function: Function, given: Given) -> Given:
    """The arguments written within one object: `f(arguments={"x": x})`."""
    [name] = given if len(given) == 1 else [""]
    inner = given[name] if may_be_wrapper(function, name) else None
    if not isinstance(inner, ast.Dict) or not inner.keys:
        return given
    keys = [key.value if isinstance(key, ast.Constant) else None for key in inner.keys]
    if not all(isinstance(key, str) and key in function.by_keyword for key in keys):
        return given
    return {str(key): value for key, value in zip(keys, inner.values, strict=True)}


def _unknown_names(function: Function, given: Given) -> list[str]:
    return [name for name in given if name not in function.by_keyword and not function.takes_others]


def _told(call: ScriptCall, line: int, message: str) -> Suspicion:
    return Suspicion(call.node, line, message, call.function.signature, "invalid_arguments")


def _unknown(function: Function, name: str) -> str:
    try:
        bind(function, {name: None})
    except ArgumentError as error:
        return str(error)
    return f"{function.qualified}: has no argument {name!r}"


def _missing(call: ScriptCall, given: Given, unknown: list[str]) -> Iterator[Suspicion]:
    """Required arguments that are not there; not told twice where a misspelt one stands in their place."""
    wire = {parameter.wire_name for name, parameter in call.function.by_keyword.items() if name in given}
    missing = [
        parameter.name
        for parameter in call.function.parameters
        if parameter.required and not parameter.is_default_sent and parameter.wire_name not in wire
    ]
    if missing and not (unknown and len(missing) == 1):
        word = "argument" if len(missing) == 1 else "arguments"
        yield _told(call, call.line, f"{call.function.qualified}: lacks {word} {listing(missing)}")


def _path_told(parameter: Parameter, violation: Violation) -> str:
    steps = "".join(f"[{step!r}]" for step in violation.path[1:])
    return f"{parameter.name}{visible(steps)} {violation.message}"
