"""Follows a value from the name it is held by back to where it was made, if nobody else can have touched it."""

import ast
from collections.abc import Mapping, Sequence
from functools import cached_property

from portal.check.known_values import KnownValues
from portal.check.script_tree import ScriptTree


class HeldValues:
    """The names of one script that hold a coroutine, a task or a list of such, until they are awaited."""

    def __init__(self, script: ScriptTree, values: KnownValues) -> None:
        self._script = script
        self._values = values

    def made(self, name: ast.Name) -> tuple[ast.expr | None, Sequence[ast.Call]]:
        """What makes the value that a name is read for: what it is bound to, and what is appended to that before.

        Nothing, if the name is read elsewhere as well: a task may be cancelled there, a list be emptied.
        """
        scope = self._script.names.get(name)
        others = [mention for mention in self._values.readings.of(name) if mention.node is not name]
        appends = [self._appends[mention.node] for mention in others if mention.node in self._appends]
        if len(appends) < len(others) or any(mention.scope is not scope for mention in others):
            return None, ()
        return self._values.bound_once(name), [each for each in appends if each.lineno < name.lineno]

    @cached_property
    def _appends(self) -> Mapping[ast.expr, ast.Call]:
        """The calls `name.append(value)` that stand alone as statements, by what they call."""
        calls = (node.value for node in self._script.all_of(ast.Expr) if isinstance(node.value, ast.Call))
        return {
            call.func: call
            for call in calls
            if isinstance(call.func, ast.Attribute) and call.func.attr == "append" and len(call.args) == 1
        }
