"""Where a script reads a name: whether what it holds may be changed, or handed on to who changes it."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

from portal.check.script_tree import ScriptTree, root_of
from sandbox_runtime.guest.library_names import is_library_function
from sandbox_runtime.guest.scopes import Mention, Scope

# Builtins that only look at what they are given, and methods of containers that only look at them.
_LOOK: Final = frozenset(
    ("builtins", name)
    for name in (
        *("all", "any", "bool", "dict", "enumerate", "len", "list", "max", "min", "print", "repr"),
        *("reversed", "set", "sorted", "str", "sum", "tuple"),
    )
)
_LOOKING_METHODS: Final = frozenset({"copy", "count", "get", "index", "items", "keys", "values"})


class Readings:
    """The places where the names of one script are read."""

    def __init__(self, script: ScriptTree) -> None:
        self._script = script

    def of(self, name: ast.Name) -> Sequence[Mention]:
        """Everywhere the same variable is read, also as the beginning of a dotted name."""
        scope = self._script.names.get(name)
        return () if scope is None else self._by_owner.get((scope.owner(name.id), name.id), ())

    def is_only_read(self, name: ast.Name) -> bool:
        """Whether the container that a variable holds stays as it is: it is looked at, and nobody else gets it."""
        scope = self._script.names.get(name)
        return scope is not None and (scope.owner(name.id), name.id) not in self._handed_on

    @cached_property
    def _handed_on(self) -> set[tuple[Scope | None, str]]:
        looks = self._looks
        return {
            variable
            for variable, mentions in self._by_owner.items()
            if any(mention.node not in looks for mention in mentions)
        }

    @cached_property
    def _by_owner(self) -> Mapping[tuple[Scope | None, str], Sequence[Mention]]:
        found: dict[tuple[Scope | None, str], list[Mention]] = {}
        for mention in self._script.scopes.mentions:
            name = root_of(mention.node).id
            found.setdefault((mention.scope.owner(name), name), []).append(mention)
        return found

    @cached_property
    def _looks(self) -> set[ast.AST]:
        script = self._script
        looks: set[ast.AST] = {loop.iter for loop in script.all_of(ast.For, ast.AsyncFor, ast.comprehension)}
        for condition in script.all_of(ast.If, ast.While, ast.IfExp):
            looks.update(_operands(condition.test))
        looks.update(negation.operand for negation in script.all_of(ast.UnaryOp))
        for comparison in script.all_of(ast.Compare):
            looks.update((comparison.left, *comparison.comparators))
        subscripts = script.all_of(ast.Subscript)
        looks.update(each.value for each in subscripts if isinstance(each.ctx, ast.Load))
        looks.update(part for call in script.scopes.calls for part in self._looked_at(call))
        return looks

    def _looked_at(self, call: ast.Call) -> Iterator[ast.AST]:
        path = self._script.paths.get(call.func)
        if path in _LOOK:
            yield from call.args
        elif is_library_function(path):
            yield from (keyword.value for keyword in call.keywords)
        elif isinstance(call.func, ast.Attribute) and call.func.attr in _LOOKING_METHODS:
            yield call.func


def _operands(condition: ast.expr) -> Iterator[ast.expr]:
    """What a condition looks at, which hands nothing on: of `rows or names` both."""
    todo = [condition]
    while todo:
        part = todo.pop()
        yield part
        if isinstance(part, ast.BoolOp):
            todo += part.values
