"""The library calls of a script, matched with the functions they call."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from portal.check.script_tree import ScriptTree
from portal.library.function import Function
from sandbox_runtime.guest.library_names import is_library_function


@dataclass(frozen=True)
class ScriptCall:
    """One call of a library function, whatever becomes of what it returns."""

    node: ast.Call
    function: Function

    @property
    def line(self) -> int:
        return self.node.lineno


def script_calls(script: ScriptTree, functions: Mapping[str, Function]) -> Mapping[ast.expr, ScriptCall]:
    """By the expression of the call; `functions` are by their qualified names."""
    calls: dict[ast.expr, ScriptCall] = {}
    for node in script.scopes.calls:
        function = meant_function(script, node.func, functions)
        if function is not None:
            calls[node] = ScriptCall(node, function)
    return calls


def meant_function(script: ScriptTree, node: ast.expr, functions: Mapping[str, Function]) -> Function | None:
    """The library function that an expression means."""
    path = script.paths.get(node)
    return functions.get(".".join(path[1:])) if path is not None and is_library_function(path) else None
