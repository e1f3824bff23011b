"""What the names of a script mean: which are the library's, and which the script binds itself."""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

LIBRARY = "tools"  # the package whose modules are the library's namespaces
Path = tuple[str, ...]
"""A library function is `("tools", namespace, function)`; its namespace and the package are the beginnings of that."""

_Position = tuple[int, int]
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_BINDING = (*_FUNCTIONS, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.MatchMapping)


@dataclass(eq=False, slots=True)
class _Binding:
    """One place that gives a name a value, which it has from `position` on."""

    position: _Position
    path: Path | None = None
    value: ast.expr | None = None


@dataclass(eq=False)
class Scope:
    """A module or a function, and the names it binds. What a class, lambda or comprehension binds counts as its own."""

    node: ast.AST
    parent: "Scope | None"
    bindings: dict[str, list[_Binding]] = field(default_factory=dict)
    elsewhere: dict[str, "Scope"] = field(default_factory=dict)
    """Names that are declared `global` or `nonlocal`."""


class Names:
    """The syntax tree of a script with the parent and the scope of each node.

    `known` are names that were bound before the script, by an earlier run of
    the session: they are no namespaces any more.
    """

    def __init__(self, tree: ast.Module, namespaces: Iterable[str], known: Iterable[str] = ()) -> None:
        self.namespaces = frozenset(namespaces)
        self.known = frozenset(known)
        self.module = Scope(tree, None)
        self.parents: dict[ast.AST, ast.AST] = {}
        self._by_kind: dict[type[ast.AST], list[Any]] = {}
        self._scopes: dict[ast.AST, Scope] = {}
        self._paths: dict[ast.expr, Path | None] = {}
        self._meanings: dict[tuple[Scope, str], Path | None] = {}
        self._read(tree)

    def all_of(self, *kinds: type[Any]) -> Iterator[Any]:
        """The nodes of these kinds, one kind after the other, each in the order of the script."""
        for kind in kinds:
            yield from self._by_kind.get(kind, ())

    def path(self, node: ast.expr) -> Path | None:
        """What a name or a dotted name means, if it is the library's."""
        if node not in self._paths:
            self._paths[node] = self._path(node)
        return self._paths[node]

    def function(self, node: ast.expr) -> Path | None:
        """The path of the library function that an expression names."""
        path = self.path(node)
        return path if path is not None and len(path) == 3 else None

    def is_bound(self, node: ast.Name) -> bool:
        """Whether the script, or one before it, binds the name."""
        return node.id in self.known or self._owner(node) is not None

    def only_value(self, node: ast.Name) -> ast.expr | None:
        """What the script assigns to a name that it binds once, and no script before it did."""
        owner = self._owner(node)
        bindings = owner.bindings[node.id] if owner is not None and node.id not in self.known else []
        return bindings[0].value if len(bindings) == 1 else None

    def scope(self, node: ast.AST) -> Scope:
        return self._scopes[node]

    def library_path(self, path: Path) -> Path | None:
        """What an imported name is in the library: `github.get_issue` is imported from there, too."""
        if path[0] == LIBRARY:
            return path
        return (LIBRARY, *path) if path[0] in self.namespaces else None

    def _path(self, node: ast.expr) -> Path | None:
        if isinstance(node, ast.Attribute):
            path = self.path(node.value)
            return None if path is None else (*path, node.attr)
        if not isinstance(node, ast.Name):
            return None
        owner = self._owner(node)
        if owner is not None:
            path = self._meaning(owner, node.id)
            # In `weather = weather.forecast()`, and above it, the name still means the namespace.
            first = min(binding.position for binding in owner.bindings[node.id])
            is_earlier = owner is self._scopes[node] is self.module and _start(node) < first
            if path is not None or not is_earlier:
                return path
        return None if node.id in self.known else self.library_path((node.id,))

    def _meaning(self, owner: Scope, name: str) -> Path | None:
        """What a name of a scope means if all its bindings agree."""
        if (owner, name) not in self._meanings:
            self._meanings[owner, name] = None  # while `a = b; b = a` is followed
            paths = {
                self.path(binding.value) if binding.value is not None else binding.path
                for binding in owner.bindings[name]
            }
            self._meanings[owner, name] = paths.pop() if len(paths) == 1 else None
        return self._meanings[owner, name]

    def _owner(self, node: ast.Name) -> Scope | None:
        scope: Scope | None = self._scopes[node]
        while scope is not None:
            scope = scope.elsewhere.get(node.id, scope)
            if node.id in scope.bindings:
                return scope
            scope = scope.parent
        return None

    def _read(self, tree: ast.Module) -> None:
        todo: list[tuple[ast.AST, Scope]] = [(tree, self.module)]
        while todo:
            node, scope = todo.pop()
            kind = node.__class__
            self._scopes[node] = scope
            self._by_kind.setdefault(kind, []).append(node)
            inner = Scope(node, scope) if kind in _FUNCTIONS else scope
            self._bind_node(node, scope)
            # In the order of the script, so that `global x` is read before x is bound.
            for child in reversed([*ast.iter_child_nodes(node)]):
                self.parents[child] = node
                todo.append((child, inner))

    def _bind_node(self, node: ast.AST, scope: Scope) -> None:
        if isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Load):
                self._bind_name(node, scope)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            self._bind_imports(node, scope)
        elif isinstance(node, ast.Global):
            scope.elsewhere.update(dict.fromkeys(node.names, self.module))
        elif isinstance(node, ast.Nonlocal) and scope.parent is not None:
            scope.elsewhere.update(dict.fromkeys(node.names, scope.parent))
        elif isinstance(node, ast.arg):
            self._bind(scope, node.arg, _Binding(_start(node)))
        elif isinstance(node, _BINDING):
            name = node.rest if isinstance(node, ast.MatchMapping) else node.name
            if name:
                self._bind(scope, name, _Binding(_start(node)))

    def _bind_name(self, node: ast.Name, scope: Scope) -> None:
        parent = self.parents[node]
        is_alone = isinstance(parent, (ast.Assign, ast.AnnAssign, ast.NamedExpr))
        while isinstance(parent, (ast.Tuple, ast.List, ast.Starred)):
            parent = self.parents[parent]
        source = next(
            (s for name in ("value", "iter", "context_expr") if (s := getattr(parent, name, None))), node
        )
        # A comprehension binds its names before what stands in front of it is evaluated.
        is_ahead = isinstance(parent, ast.comprehension)
        position = (0, 0) if is_ahead else (source.end_lineno or 0, source.end_col_offset or 0)
        self._bind(scope, node.id, _Binding(position, value=source if is_alone else None))

    def _bind_imports(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
        start: Path = ()
        if isinstance(node, ast.ImportFrom):
            start = tuple((node.module or "").split(".")) if node.level == 0 else ("",)
        for alias in node.names:
            name = tuple(alias.name.split(".")) if not start else (*start, alias.name)
            bound = alias.asname or (alias.name if start else name[0])
            path = name if alias.asname or start else name[:1]
            self._bind(scope, bound, _Binding(_start(node), self.library_path(path)))

    def _bind(self, scope: Scope, name: str, binding: _Binding) -> None:
        scope.elsewhere.get(name, scope).bindings.setdefault(name, []).append(binding)


def _start(node: ast.AST) -> _Position:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def last_name(node: ast.expr) -> str:
    """The last part of a dotted name: `gather` of `asyncio.gather`."""
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")
