"""Finds library calls whose arguments cannot fit, without running or type-checking anything.

It holds to what the broker will do with the call: what is found here, the call would have been refused for.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from manifests.json_value import Json
from portal.check.diagnostic import Suspicion
from portal.check.known_values import UNKNOWN as NOT_KNOWN
from portal.check.known_values import KnownValues
from portal.check.script_calls import ScriptCall
from portal.library.arguments import ArgumentError
from portal.library.function import Function, Parameter
from portal.library.repairs import UNKNOWN, fitted

_SAMPLES: dict[str, tuple[Json, ...]] = {
    "string": ("x", "3", "true", "{}", "[]"),
    "integer": (1,),
    "number": (1.5,),
    "boolean": (True,),
    "null": (None,),
    "array": ([], [UNKNOWN]),
    "object": ({},),
}


@dataclass(frozen=True)
class ArgumentCheck:
    """Checks calls; `repairs` says whether the broker repairs arguments where it is certain what was meant."""

    values: KnownValues
    repairs: bool

    def suspicions(self, call: ScriptCall) -> Iterator[Suspicion]:
        """What is certainly wrong with the arguments of one call."""
        given: dict[str, ast.expr] = {f"*{at}": node for at, node in enumerate(call.node.args)}
        is_whole = not any(isinstance(node, ast.Starred) for node in call.node.args)
        for keyword in call.node.keywords:
            spread = {keyword.arg: keyword.value} if keyword.arg else self.values.items(keyword.value)
            given |= spread or {}
            is_whole = is_whole and spread is not None
        for name, node in given.items():
            no_json = self.values.not_json(node)
            if no_json is not None:
                message = (
                    f"{call.function.qualified}: {name} is {no_json[0]}, which is not JSON: {no_json[1]}"
                )
                yield Suspicion(call.node, node.lineno, message, call.function.signature, "invalid_arguments")
                return
        unknown = {} if is_whole else _required(call.function)
        try:
            kwargs = {
                name: self._value(node) for name, node in given.items() if not isinstance(node, ast.Starred)
            }
            fitted(call.function, unknown | kwargs, repairs=self.repairs)
        except ArgumentError as error:
            yield Suspicion(call.node, call.line, str(error), error.hint, "invalid_arguments")

    def takes(self, function: Function, parameter: Parameter, kind: str) -> bool:
        """Whether an argument may be of a JSON Schema type, or may be repaired if it is."""
        return "Literal" in parameter.annotation or any(
            self._fits(function, {**_required(function), parameter.name: sample}) for sample in _SAMPLES[kind]
        )

    def _fits(self, function: Function, kwargs: dict[str, Json]) -> bool:
        try:
            fitted(function, kwargs, repairs=self.repairs)
        except ArgumentError:
            return False
        return True

    def _value(self, node: ast.expr) -> Json:
        value = self.values.value(node)
        if value is not NOT_KNOWN:
            return value
        if isinstance(node, ast.List | ast.Tuple):
            return [self._value(each) for each in node.elts]
        if isinstance(node, ast.Dict):
            keys = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
            if all(isinstance(key, str) for key in keys):
                return {str(key): self._value(each) for key, each in zip(keys, node.values, strict=True)}
        return UNKNOWN


def _required(function: Function) -> dict[str, Json]:
    return {each.name: UNKNOWN for each in function.parameters if each.required}
