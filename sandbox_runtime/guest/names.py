"""What the names of a script mean: which are the library's, and which the script binds itself."""

import ast
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field
from typing import Any

LIBRARY = "tools"  # the package whose modules are the library's namespaces
Path = tuple[str, ...]
"""A library function is `("tools", namespace, function)`; its namespace and the package are the beginnings of that."""

_Position = tuple[int, int]
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_NOTHING: Set[str] = frozenset()
# A comprehension's first iterable is evaluated outside of it: that it is taken for inside makes no difference here.
_INNER: dict[type, Set[str]] = {
    ast.Lambda: {"body"},
    **dict.fromkeys((ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef), frozenset({"body"})),
    **dict.fromkeys(_COMPREHENSIONS, frozenset({"elt", "key", "value", "generators"})),
}
"""The fields of a node that are read in a scope of their own."""

_BINDING = frozenset(
    {
        *(ast.Name, ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal),
        *(ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.MatchMapping),
        *_INNER,
    }
)


@dataclass(eq=False, slots=True)
class _Binding:
    """One place that gives a name a value, which it has from `position` on."""

    position: _Position
    path: Path | None = None
    value: ast.expr | None = None


@dataclass(eq=False)
class Scope:
    """A module, function, class or comprehension, and the names it binds."""

    node: ast.AST
    parent: "Scope | None"
    bindings: dict[str, list[_Binding]] = field(default_factory=dict)
    elsewhere: dict[str, "Scope"] = field(default_factory=dict)

    @property
    def is_class(self) -> bool:
        return isinstance(self.node, ast.ClassDef)

    @property
    def is_comprehension(self) -> bool:
        return isinstance(self.node, _COMPREHENSIONS)

    @property
    def runs_in_order(self) -> bool:
        """Whether it runs where it stands, not when something is called later."""
        scope = self
        while scope.parent is not None and scope.is_comprehension:
            scope = scope.parent
        return scope.parent is None


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
        self._meanings: dict[tuple[Scope, str], tuple[Path | None, _Position]] = {}
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

    def _path(self, node: ast.expr) -> Path | None:
        attributes: list[str] = []
        while isinstance(node, ast.Attribute):
            attributes.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return None
        root = self._root(node)
        return None if root is None else (*root, *reversed(attributes))

    def _root(self, node: ast.Name) -> Path | None:
        owner = self._owner(node)
        if owner is not None:
            path, first = self._meaning(owner, node.id)
            # In `weather = weather.forecast()`, and above it, the name still means the namespace.
            is_earlier = owner.parent is None and (node.lineno, node.col_offset) < first
            if path is not None or not is_earlier or not self._scopes[node].runs_in_order:
                return path
        if node.id in self.known:
            return None
        if node.id == LIBRARY:
            return (LIBRARY,)
        return (LIBRARY, node.id) if node.id in self.namespaces else None

    def _meaning(self, owner: Scope, name: str) -> tuple[Path | None, _Position]:
        """What a name of a scope means if all its bindings agree, and from where on it is bound."""
        known = self._meanings.get((owner, name))
        if known is None:
            bindings = owner.bindings[name]
            first = min(binding.position for binding in bindings)
            self._meanings[owner, name] = None, first  # while `a = b; b = a` is followed
            paths = {self._bound(binding) for binding in bindings}
            known = self._meanings[owner, name] = (paths.pop() if len(paths) == 1 else None), first
        return known

    def _bound(self, binding: _Binding) -> Path | None:
        if isinstance(binding.value, (ast.Name, ast.Attribute)):
            return self.path(binding.value)
        return binding.path

    def _owner(self, node: ast.Name) -> Scope | None:
        first = scope = self._scopes[node]
        while True:
            if node.id in scope.elsewhere:
                scope = scope.elsewhere[node.id]
                return scope if node.id in scope.bindings else None
            if node.id in scope.bindings and (scope is first or not scope.is_class):
                return scope
            if scope.parent is None:
                return None
            scope = scope.parent

    # Reading the tree.

    def _read(self, tree: ast.Module) -> None:
        todo: list[tuple[ast.AST, Scope]] = [(statement, self.module) for statement in reversed(tree.body)]
        parents, scopes, by_kind = self.parents, self._scopes, self._by_kind
        parents.update(dict.fromkeys(tree.body, tree))
        while todo:
            node, scope = todo.pop()
            kind = node.__class__
            scopes[node] = scope
            if kind in by_kind:
                by_kind[kind].append(node)
            else:
                by_kind[kind] = [node]
            inner, opened = _NOTHING, scope
            if kind in _BINDING:
                inner, opened = self._bind_parts(node, scope)
            # In the order of the script, so that `global x` is read before x is bound.
            for name in _PARTS[kind]:
                part = getattr(node, name)
                for child in reversed(part) if part.__class__ is list else (part,):
                    if child is not None:
                        parents[child] = node
                        todo.append((child, opened if name in inner else scope))

    def _bind_parts(self, node: ast.AST, scope: Scope) -> tuple[Set[str], Scope]:
        """Bind what a node binds. Returns the fields that are read in a scope of their own, and that scope."""
        if isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Load):
                self._bind_name(node, scope)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            self._bind_imports(node, scope)
        elif isinstance(node, ast.Global):
            scope.elsewhere.update(dict.fromkeys(node.names, self.module))
        elif isinstance(node, ast.Nonlocal) and scope.parent is not None:
            scope.elsewhere.update(dict.fromkeys(node.names, scope.parent))
        else:
            name = getattr(node, "rest" if isinstance(node, ast.MatchMapping) else "name", None)
            if name:
                self._bind(scope, name, _Binding(_start(node)))
        inner = _INNER.get(node.__class__, _NOTHING)
        opened = Scope(node, scope) if inner else scope
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            for parameter in _parameters(node.args):
                self._bind(opened, parameter, _Binding(_start(node)))
        return inner, opened

    def _bind_name(self, node: ast.Name, scope: Scope) -> None:
        parent = self.parents[node]
        while isinstance(parent, (ast.Tuple, ast.List, ast.Starred)):
            parent = self.parents[parent]
        value: ast.expr | None = None
        position = (node.lineno, node.col_offset)
        source = next(
            (
                getattr(parent, name)
                for name in ("value", "iter", "context_expr")
                if getattr(parent, name, None)
            ),
            None,
        )
        if isinstance(source, ast.expr) and parent is not source:
            position = (source.end_lineno or 0, source.end_col_offset or 0)
            if (
                isinstance(parent, (ast.Assign, ast.AnnAssign, ast.NamedExpr))
                and self.parents[node] is parent
            ):
                value = source
        if isinstance(parent, ast.NamedExpr):
            while scope.is_comprehension and scope.parent is not None:
                scope = scope.parent
        self._bind(scope, node.id, _Binding(position, value=value))

    def _bind_imports(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
        start: Path = ()
        if isinstance(node, ast.ImportFrom):
            start = tuple((node.module or "").split(".")) if node.level == 0 else ("",)
        for alias in node.names:
            name = tuple(alias.name.split(".")) if not start else (*start, alias.name)
            bound = alias.asname or (alias.name if start else name[0])
            path = name if alias.asname or start else name[:1]
            self._bind(scope, bound, _Binding(_start(node), self.library_path(path)))

    def library_path(self, path: Path) -> Path | None:
        """What an imported name is in the library: `github.get_issue` is imported from there, too."""
        if path[0] == LIBRARY:
            return path
        return (LIBRARY, *path) if path[0] in self.namespaces else None

    def _bind(self, scope: Scope, name: str, binding: _Binding) -> None:
        owner = scope.elsewhere.get(name, scope)
        owner.bindings.setdefault(name, []).append(binding)


def _parameters(arguments: ast.arguments) -> list[str]:
    every = (
        *arguments.posonlyargs,
        *arguments.args,
        *arguments.kwonlyargs,
        arguments.vararg,
        arguments.kwarg,
    )
    return [parameter.arg for parameter in every if parameter is not None]


def _start(node: ast.AST) -> _Position:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def _parts(kind: type[ast.AST]) -> tuple[str, ...]:
    """The fields of a node that hold nodes, the last one first. An operator or a context is of no use to anybody."""
    if kind.__name__ in ("Constant", "Name", "Global", "Nonlocal", "MatchSingleton"):
        return ()
    is_name_a_node = kind.__name__ == "TypeAlias"
    return tuple(
        name for name in reversed(kind._fields) if name not in _PLAIN or (name == "name" and is_name_a_node)
    )


_PLAIN = frozenset(
    """
    arg asname attr conversion ctx id is_async kind kwd_attrs level lineno module name op ops rest simple str tag
    type_comment type_ignores
    """.split()  # noqa: SIM905
)
_PARTS = {
    kind: _parts(kind) for kind in vars(ast).values() if isinstance(kind, type) and issubclass(kind, ast.AST)
}
