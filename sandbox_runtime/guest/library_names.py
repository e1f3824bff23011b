"""What a script means by a dotted name: a function of the library, of the standard library, or its own."""

import ast
import builtins
import re
from collections.abc import Iterator

from sandbox_runtime.guest.scopes import Binding, Scope, Scopes

LIBRARY = "tools"  # the package that all namespaces of the library are modules of
Path = tuple[str, ...]
# A script that uses one of these may spell a namespace in a string.
_DYNAMIC = {("builtins", name) for name in ("__import__", "eval", "exec", "globals", "locals", "vars")}


class LibraryNames:
    """Every dotted name of a script as the path of what it means.

    `paths` holds what is known: `("tools", "git", "git_log")`, `("json", "dumps")`, `("builtins", "len")`. A
    name that the script binds itself, here or there, has no path.
    """

    def __init__(self, tree: ast.Module, scopes: Scopes, namespaces: frozenset[str]) -> None:
        self._namespaces = namespaces
        self._imports: dict[Binding, Path | None] = {}
        self.paths: dict[ast.expr, Path] = {}
        uses: set[tuple[int, str, str]] = set()
        for mention in scopes.mentions:
            path = self._path(mention.node, mention.scope, mention.statement)
            if path is not None:
                self.paths[mention.node] = path
                if not mention.is_guarded:
                    uses.update((mention.node.lineno, *use) for use in self._uses(path))
        for found in scopes.imports:
            if not found.is_guarded:
                uses.update((found.line, *use) for use in self._uses(self._imported(found.path)))
        self.uses = [(namespace, function, line) for line, namespace, function in sorted(uses)]
        self.calls = [call for call in scopes.calls if is_library_function(self.paths.get(call.func))]
        self.names = frozenset(self._mentioned(tree, scopes)) & namespaces

    def _uses(self, path: Path) -> Iterator[tuple[str, str]]:
        """The function that a path leads to, or an empty one in a namespace that does not exist."""
        if path[0] != LIBRARY or len(path) == 1 or any(part.startswith("__") for part in path[:3]):
            return
        if len(path) > 2 or path[1] not in self._namespaces:
            yield path[1], path[2] if len(path) > 2 else ""

    def _mentioned(self, tree: ast.Module, scopes: Scopes) -> Iterator[str]:
        """What could name a namespace; rather one too many than one too few."""
        paths = [*self.paths.values(), *(self._imported(found.path) for found in scopes.imports)]
        for node in self.paths:
            if isinstance(node, ast.Name):
                yield node.id
        yield from (path[1] for path in paths if path[0] == LIBRARY and len(path) > 1)
        if any(path == (LIBRARY,) or path[0] == "importlib" or path in _DYNAMIC for path in paths):
            yield from _words(tree)

    def _path(self, node: ast.expr, scope: Scope, statement: int | None) -> Path | None:
        attributes: list[str] = []
        while isinstance(node, ast.Attribute):
            attributes.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return None
        root = self._root(node.id, scope, statement)
        return None if root is None else (*root, *reversed(attributes))

    def _root(self, name: str, scope: Scope, statement: int | None) -> Path | None:
        owner = scope.owner(name)
        bindings = owner.bindings.get(name, []) if owner else []
        paths = {self._bound_path(binding) for binding in bindings}
        if len(paths) == 1 and bindings:
            found = paths.pop()
            if found is not None or not self._is_unbound_yet(bindings, scope, statement):
                return found
        elif paths and not self._is_unbound_yet(bindings, scope, statement):
            return None
        if name in self._namespaces:
            return (LIBRARY, name)
        if name == LIBRARY:
            return (LIBRARY,)
        return ("builtins", name) if hasattr(builtins, name) else None

    def _is_unbound_yet(self, bindings: list[Binding], scope: Scope, statement: int | None) -> bool:
        """True in `weather = weather.forecast()` and above it: the name still means the library's."""
        return (
            statement is not None
            and scope.runs_at_once
            and all(
                binding.scope.kind == "module"
                and (binding.statement > statement or (binding.statement == statement and binding.is_last))
                for binding in bindings
            )
        )

    def _bound_path(self, binding: Binding) -> Path | None:
        if binding in self._imports:
            return self._imports[binding]
        self._imports[binding] = None  # what `a = b; b = a` means is nobody's
        path = self._imported(binding.imported) if binding.imported else None
        if isinstance(binding.value, (ast.Name, ast.Attribute)):
            path = self._path(binding.value, binding.scope, None)
        self._imports[binding] = path
        return path

    def _imported(self, path: Path) -> Path:
        return (LIBRARY, *path) if path[0] in self._namespaces else path


def is_library_function(path: Path | None) -> bool:
    return path is not None and path[0] == LIBRARY and len(path) == 3


def _words(tree: ast.Module) -> Iterator[str]:
    """Every word in the script's strings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(r"\w+", node.value)
