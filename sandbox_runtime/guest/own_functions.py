"""The functions, methods and classes that a script defines itself."""

import ast
from dataclasses import dataclass, field

from sandbox_runtime.guest.library_names import Path
from sandbox_runtime.guest.scopes import FUNCTIONS, Function, Scope, Scopes

_SAME_MEANING = {("builtins", "staticmethod"), ("builtins", "classmethod"), ("dataclasses", "dataclass")}
_NO_OPERATORS = {
    "__init__",
    "__post_init__",
    "__repr__",
    "__str__",
    "__len__",
    "__iter__",
    "__next__",
    "__enter__",
    "__exit__",
    "__aenter__",
    "__aexit__",
    "__aiter__",
    "__anext__",
    "__await__",
    "__hash__",
    "__bool__",
    "__del__",
}


@dataclass
class OwnFunctions:
    """What a script defines, by name. Methods of one name are not told apart by their classes."""

    paths: dict[ast.expr, Path]
    methods: dict[str, list[Function]] = field(default_factory=dict)
    attributes: set[str] = field(default_factory=set)

    @classmethod
    def read(cls, scopes: Scopes, paths: dict[ast.expr, Path]) -> "OwnFunctions":
        own = cls(paths, attributes=set(scopes.attributes))
        for definition in scopes.classes:
            own.attributes.update(scopes.of[definition].bindings)
            for statement in definition.body:
                if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    own.methods.setdefault(statement.name, []).append(statement)
        return own

    @property
    def overload_operators(self) -> bool:
        return any(name.startswith("__") and name not in _NO_OPERATORS for name in self.methods)

    def called_by(self, callee: ast.expr, scope: Scope) -> list[Function | ast.ClassDef]:
        """What an expression may call; empty unless all that it may call is the script's own."""
        if isinstance(callee, ast.Lambda):
            return [callee]
        owner = scope.owner(callee.id) if isinstance(callee, ast.Name) else None
        if owner is None or not isinstance(callee, ast.Name):
            return []
        found: list[Function | ast.ClassDef] = []
        for binding in owner.bindings.get(callee.id, ()):
            meant = binding.value if isinstance(binding.value, ast.Lambda) else binding.node
            if isinstance(meant, ast.ClassDef) or (
                isinstance(meant, FUNCTIONS) and not self.is_decorated(meant)
            ):
                found.append(meant)
            else:
                return []
        return found

    def is_decorated(self, definition: Function | ast.ClassDef) -> bool:
        """True if its name may mean something else than what is written there."""
        decorators = [] if isinstance(definition, ast.Lambda) else definition.decorator_list
        functions = [getattr(decorator, "func", decorator) for decorator in decorators]
        return any(self.paths.get(function) not in _SAME_MEANING for function in functions)
