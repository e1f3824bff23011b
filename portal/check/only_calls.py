"""What the parameters of a script's own functions hold, where only one place of the script calls them."""

import ast
from collections.abc import Iterator, Mapping
from functools import cached_property

from portal.check.script_tree import ScriptTree, root_of


class OnlyCalls:
    """The only calls of one script's functions, which nobody else can call: they have no decorator, and their names
    stand nowhere but in the one call.
    """

    def __init__(self, script: ScriptTree) -> None:
        self._script = script

    def argument(self, parameter: ast.arg) -> ast.expr | None:
        """What the parameter holds at each call, as it is written there, or its default."""
        return self._arguments.get(parameter)

    @cached_property
    def _arguments(self) -> Mapping[ast.arg, ast.expr]:
        called = {call.func: call for call in self._script.scopes.calls}
        found: dict[ast.arg, ast.expr] = {}
        for function, mentions in self._mentions.items():
            call = called.get(mentions[0]) if len(mentions) == 1 else None
            if call is not None and not function.decorator_list:
                found.update(_given(function, call))
        return found

    @cached_property
    def _mentions(self) -> Mapping[ast.FunctionDef | ast.AsyncFunctionDef, list[ast.expr]]:
        """Where the functions are mentioned that are the only thing of their name."""
        found: dict[ast.FunctionDef | ast.AsyncFunctionDef, list[ast.expr]] = {}
        for mention in self._script.scopes.mentions:
            bindings = self._script.bindings_of(root_of(mention.node))
            # A method is called by its name as an attribute as well.
            is_function = len(bindings) == 1 and bindings[0].scope.kind != "class"
            function = bindings[0].node if is_function else None
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                found.setdefault(function, []).append(mention.node)
        return found


def _given(
    function: ast.FunctionDef | ast.AsyncFunctionDef, call: ast.Call
) -> Iterator[tuple[ast.arg, ast.expr]]:
    """The parameters with what a call gives for them; none if it spreads what only the running script knows."""
    arguments = function.args
    if any(isinstance(each, ast.Starred) for each in call.args) or any(
        keyword.arg is None for keyword in call.keywords
    ):
        return
    by_position = [*arguments.posonlyargs, *arguments.args]
    first_default = len(by_position) - len(arguments.defaults)
    given = dict(zip(by_position[first_default:], arguments.defaults, strict=True))
    given.update(
        (parameter, default)
        for parameter, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if default is not None
    )
    given.update(zip(by_position, call.args, strict=False))
    by_name = {parameter.arg: parameter for parameter in (*arguments.args, *arguments.kwonlyargs)}
    for keyword in call.keywords:
        if keyword.arg in by_name:
            given[by_name[keyword.arg]] = keyword.value
    yield from given.items()
