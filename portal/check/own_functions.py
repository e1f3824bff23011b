"""Which of a script's own functions a call runs, where that is plain to see."""

import ast
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Final

from manifests.names import STANDARD_LIBRARY
from portal.check.known_values import KnownValues
from portal.check.script_tree import ScriptTree
from sandbox_runtime.guest.scopes import FUNCTIONS, Function

# Decorators behind which a function, or a class, does what it says.
_PLAIN_DECORATORS: Final = frozenset(
    {
        *(("builtins", name) for name in ("classmethod", "property", "staticmethod")),
        *(("functools", name) for name in ("cache", "cached_property", "lru_cache", "wraps")),
        ("dataclasses", "dataclass"),
    }
)
# Methods with which a class says itself what its instances are, and what they have.
_TELL_OTHERWISE: Final = frozenset({"__new__", "__getattribute__", "__init_subclass__", "__set_name__"})
_MAX_BASES: Final = 10


class OwnFunctions:
    """The functions of one script, by the expressions that are called.

    A name counts if it is bound once; a method if it is the only one of its name, nothing is ever assigned to an
    attribute of that name, and what it is called of is plainly an instance of its class, or the class.
    """

    def __init__(self, script: ScriptTree, values: KnownValues) -> None:
        self._script = script
        self._values = values

    def of(self, called: ast.expr) -> Function | None:
        """The function whose body runs when that is called; of a class, its `__init__`."""
        if isinstance(called, ast.Lambda):
            return called
        found: ast.AST | None = None
        if isinstance(called, ast.Name):
            binding = self._values.binding(called)
            found = None if binding is None else binding.value or binding.node
            if isinstance(found, ast.ClassDef):
                found = None if found.bases else self._method(self._class(called), "__init__")
        elif isinstance(called, ast.Attribute):
            owner = self._class_of(called.value)
            found = None if owner is None else self._method(owner, called.attr)
        return found if isinstance(found, FUNCTIONS) and self._is_plain(found) else None

    def _class_of(self, node: ast.expr) -> ast.ClassDef | None:
        """The class that a value is an instance of, or is itself."""
        if isinstance(node, ast.Call):
            return self._class(node.func)
        if not isinstance(node, ast.Name):
            return None
        binding = self._values.binding(node)
        if binding is not None and isinstance(binding.node, ast.arg):
            return self._first_arguments.get(binding.node)
        bound = self._values.bound_once(node)
        return self._class(bound.func) if isinstance(bound, ast.Call) else self._class(node)

    def _class(self, node: ast.expr, depth: int = 0) -> ast.ClassDef | None:
        """The class that a name means, if its instances are what it says, and what its bases say."""
        binding = self._values.binding(node) if isinstance(node, ast.Name) else None
        found = None if binding is None else binding.node
        if not isinstance(found, ast.ClassDef) or not self._is_plain(found) or depth > _MAX_BASES:
            return None
        if found.keywords or _TELL_OTHERWISE & self._script.scopes.of[found].bindings.keys():
            return None
        is_clear = all(self._is_of_python(base) or self._class(base, depth + 1) for base in found.bases)
        return found if is_clear else None

    def _is_of_python(self, base: ast.expr) -> bool:
        path = self._script.paths.get(base)
        return path is not None and path[0] in STANDARD_LIBRARY

    def _method(self, owner: ast.ClassDef | None, name: str) -> Function | None:
        if {name, "__class__"} & self._script.scopes.attributes:
            return None
        for _ in range(_MAX_BASES):
            if owner is None:
                return None
            bindings = self._script.scopes.of[owner].bindings.get(name, [])
            if bindings:
                method = bindings[0].node
                is_only = len(bindings) == 1 and (
                    name == "__init__" or len(self._script.functions.get(name, ())) == 1
                )
                return (
                    method
                    if is_only and isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef))
                    else None
                )
            owner = self._class(owner.bases[0]) if len(owner.bases) == 1 else None
        return None

    def _is_plain(self, node: Function | ast.ClassDef) -> bool:
        decorators = () if isinstance(node, ast.Lambda) else node.decorator_list
        called = (getattr(each, "func", each) for each in decorators)
        return all(self._script.paths.get(each) in _PLAIN_DECORATORS for each in called)

    @cached_property
    def _first_arguments(self) -> Mapping[ast.arg, ast.ClassDef]:
        """`self` and `cls` of the methods of each class."""
        return dict(self._selves())

    def _selves(self) -> Iterator[tuple[ast.arg, ast.ClassDef]]:
        for owner in self._script.scopes.classes:
            for method in owner.body:
                if not isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    continue
                arguments = [*method.args.posonlyargs, *method.args.args]
                if arguments and not any(_is_named(each, "staticmethod") for each in method.decorator_list):
                    yield arguments[0], owner


def _is_named(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
