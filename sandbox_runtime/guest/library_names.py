"""What a script means by a dotted name: a function of the library, of the standard library, or its own."""

import ast
import builtins
import re
from collections.abc import Iterator
from typing import NamedTuple

from sandbox_runtime.guest.scopes import Binding, Scope, Scopes

LIBRARY = "tools"  # the package that all namespaces of the library are modules of
Path = tuple[str, ...]
# A script that uses one of these may spell a namespace in a string.
_DYNAMIC = {("builtins", name) for name in ("__import__", "eval", "exec", "globals", "locals", "vars")}


class _Meaning(NamedTuple):
    """What a name of one scope stands for: `path` if all its bindings agree, and from which statement on it does.

    `source` is what that statement evaluates before it binds the name, if that is not all of it.
    """

    path: Path | None
    is_module: bool
    statement: int
    is_last: bool
    source: ast.expr | None

    def is_unbound_at(self, scope: Scope, statement: int | None, node: ast.expr) -> bool:
        """True in `weather = weather.forecast()` and above it: the name still means the library's."""
        if statement is None or not scope.runs_at_once or not self.is_module:
            return False
        is_before = self.is_last or (self.source is not None and _is_within(node, self.source))
        return self.statement > statement or (self.statement == statement and is_before)


class LibraryNames:
    """Every dotted name of a script as the path of what it means.

    `paths` holds what is known: `("tools", "git", "git_log")`, `("json", "dumps")`, `("builtins", "len")`. A
    name that the script binds itself, here or there, has no path, nor has a function that it puts another in
    place of: `git.git_log = fake`.
    """

    def __init__(self, tree: ast.Module, scopes: Scopes, namespaces: frozenset[str]) -> None:
        self._namespaces = namespaces
        self._imports: dict[Binding, Path | None] = {}
        self._meanings: dict[tuple[Scope, str], _Meaning] = {}
        self.paths: dict[ast.expr, Path] = {}
        for mention in scopes.mentions:
            path = self._path(mention.node, mention.scope, mention.statement)
            if path is not None:
                self.paths[mention.node] = path
        self.names = frozenset(self._mentioned(tree, scopes)) & namespaces
        replaced = set(self._replaced(scopes))
        for mention in scopes.mentions:
            path = self.paths.get(mention.node)
            is_read = isinstance(mention.node.ctx, ast.Load)
            if path is not None and is_read and not replaced.isdisjoint((path[:2], path[:3])):
                del self.paths[mention.node]
        self.uses = sorted(set(self._all_uses(scopes, replaced)), key=lambda use: (use[2], use))
        self.calls = [call for call in scopes.calls if is_library_function(self.paths.get(call.func))]

    def _replaced(self, scopes: Scopes) -> Iterator[Path]:
        """The functions that the script assigns to, and namespaces in which it replaces nobody knows what."""
        if any(path[:2] == ("sys", "modules") for path in self.paths.values()):
            yield from ((LIBRARY, namespace) for namespace in self._namespaces)
        for mention in scopes.mentions:
            path = self.paths.get(mention.node)
            if path is not None and len(path) == 3 and not isinstance(mention.node.ctx, ast.Load):
                yield path
        for call in scopes.calls:
            path = self.paths.get(call.func, ("",))
            if path == ("builtins", "setattr") or path[0] == "unittest":
                yield from (self.paths[argument] for argument in call.args[:1] if argument in self.paths)

    def _all_uses(self, scopes: Scopes, replaced: set[Path]) -> Iterator[tuple[str, str, int]]:
        for mention in scopes.mentions:
            path = self.paths.get(mention.node)
            if path is not None and path not in replaced and not mention.is_guarded:
                yield from ((*use, mention.node.lineno) for use in self._uses(path))
        for found in scopes.imports:
            path = self._imported(found.path)
            if path not in replaced and not found.is_guarded:
                yield from ((*use, found.line) for use in self._uses(path))

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
        root = self._root(node, scope, statement)
        return None if root is None else (*root, *reversed(attributes))

    def _root(self, node: ast.Name, scope: Scope, statement: int | None) -> Path | None:
        name = node.id
        owner = scope.owner(name)
        if owner is not None and name in owner.bindings:
            meaning = self._meaning(owner, name)
            if meaning.path is not None or not meaning.is_unbound_at(scope, statement, node):
                return meaning.path
        if name in self._namespaces:
            return (LIBRARY, name)
        if name == LIBRARY:
            return (LIBRARY,)
        return ("builtins", name) if hasattr(builtins, name) else None

    def _meaning(self, owner: Scope, name: str) -> _Meaning:
        known = self._meanings.get((owner, name))
        if known is not None:
            return known
        bindings = owner.bindings[name]
        paths = {self._bound_path(binding) for binding in bindings}
        first = min(binding.statement for binding in bindings)
        of_first = [binding for binding in bindings if binding.statement == first]
        meaning = self._meanings[owner, name] = _Meaning(
            paths.pop() if len(paths) == 1 else None,
            all(binding.scope.kind == "module" for binding in bindings),
            first,
            all(binding.is_last for binding in of_first),
            of_first[0].source if len(of_first) == 1 else None,
        )
        return meaning

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


def _is_within(node: ast.expr, whole: ast.expr) -> bool:
    start, end = (whole.lineno, whole.col_offset), (whole.end_lineno or 0, whole.end_col_offset or 0)
    return start <= (node.lineno, node.col_offset) < end


def _words(tree: ast.Module) -> Iterator[str]:
    """Every word in the script's strings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(r"\w+", node.value)
