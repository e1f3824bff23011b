"""Resolves the names of a script: which are the library's, and which the script binds."""

import ast
import builtins
import importlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

LIBRARY = "tools"  # the package whose modules are the library's namespaces
PORTAL = "portal"
_PORTAL_CALLS = frozenset(
    """
    approve describe event event_url fetch get_prompt prompts read_resource recall resources search search_text sleep
    """.split()  # noqa: SIM905
)
"""Functions of `portal` that have to be awaited."""

PORTAL_NAMES = sorted(_PORTAL_CALLS | {"Response", "ToolError", "blocks", "emit", "run", "text"})

Path = tuple[str, ...]
"""`("tools", namespace, function)` for a library function; prefixes of it for its namespace and the package."""

_Position = tuple[int, int]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_BINDING = (*FUNCTIONS, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.MatchMapping)
TYPES = tuple(
    vars(ast)[kind] for kind in ("TypeVar", "ParamSpec", "TypeVarTuple", "TypeAlias") if kind in vars(ast)
)
"""They are evaluated only on demand. Python 3.11 has none. All but the last bind a name."""
_BINDING += TYPES[:3]
_NAMING = frozenset((ast.Name, ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal, ast.arg, *_BINDING))
"""The kinds of nodes that bind a name, or say where it is bound."""
_LEAVES = frozenset((ast.Name, ast.Constant))


@dataclass(eq=False, slots=True)
class _Binding:
    """One binding of a name; the value holds from `position` on."""

    position: _Position
    path: Path | None = None
    value: ast.expr | None = None
    module: str = ""
    """What an import binds."""
    function: ast.AST | None = None


@dataclass(eq=False)
class Scope:
    """A module or a function, and the names it binds, including those of its classes, lambdas and comprehensions."""

    node: ast.AST
    parent: "Scope | None"
    bindings: dict[str, list[_Binding]] = field(default_factory=dict)
    elsewhere: dict[str, "Scope"] = field(default_factory=dict)
    """Names that are declared `global` or `nonlocal`."""


class Names:
    """The syntax tree of a script with the parent and the scope of each node.

    `known` are names that earlier runs of the session bound. They no longer mean namespaces.
    """

    def __init__(self, tree: ast.Module, namespaces: Iterable[str], known: Iterable[str] = ()) -> None:
        self.namespaces = frozenset(namespaces)
        self.known = frozenset(known)
        self.module = Scope(tree, None)
        self.parents: dict[ast.AST, ast.AST] = {}
        self._children: dict[ast.AST, list[ast.AST]] = {}
        self._by_kind: defaultdict[type[ast.AST], list[Any]] = defaultdict(list)
        self._scopes: dict[ast.AST, Scope] = {}
        self._paths: dict[ast.expr, Path | None] = {}
        self._meanings: dict[tuple[Scope, str], Path | None] = {}
        self._firsts: dict[tuple[Scope, str], _Position] = {}
        self._perhaps = {LIBRARY, PORTAL, *self.namespaces}
        """The names that may mean something of the library. No others have a path."""
        self.hidden: dict[ast.Name, str] = {}
        """Names that stand for others: `time` in `time.get_current_time` is `time_`; `mcp__git__log` is `git.log`."""
        self._read(tree)
        self._perhaps.update(name for name in self.ids if name.startswith("mcp__"))

    @cached_property
    def ids(self) -> frozenset[str]:
        """All names in the script."""
        return frozenset(node.id for node in self.all_of(ast.Name))

    def all_of(self, *kinds: type[Any]) -> Iterator[Any]:
        """The nodes of these kinds, kind by kind, in the order of the script."""
        return chain(*[self._by_kind[kind] for kind in kinds])

    def walk(self, node: ast.AST) -> Iterator[ast.AST]:
        """A node and all below it."""
        todo = [node]
        for each in todo:
            yield each
            todo += self._children.get(each, ())

    def path(self, node: ast.expr) -> Path | None:
        """The library path of a name or dotted name, or None."""
        if isinstance(node, ast.Name) and node.id not in self._perhaps:
            return None
        if node not in self._paths:
            self._paths[node] = self._path(node)
        return self._paths[node]

    def function(self, node: ast.expr) -> Path | None:
        """The path of the library function that an expression names, or None."""
        path = self.path(node)
        return path if path is not None and len(path) == 3 and path[0] == LIBRARY else None

    def awaitable(self, node: ast.expr) -> str:
        """The name of the function, of the library or of `portal`, whose calls have to be awaited; or "".

        A function of `portal` that the script stored under its own name does not count: that is deliberate.
        """
        path = self.path(node) or ()
        if path[:1] == (PORTAL,):
            if isinstance(node, ast.Name) and self.only_value(node) is not None:
                return ""
            return ".".join(path) if len(path) == 2 and path[1] in _PORTAL_CALLS else ""
        return ".".join(path[1:]) if len(path) == 3 else ""

    def is_bound(self, node: ast.Name) -> bool:
        """Whether the script, or an earlier one of the session, binds the name."""
        return node.id in self.known or node.id in self.module.bindings or self._owner(node) is not None

    def only_value(self, node: ast.Name) -> ast.expr | None:
        """The value of a name that is bound exactly once, and not by an earlier script."""
        return self._only_binding(node).value if node.id not in self.known else None

    def is_async(self, node: ast.expr) -> bool:
        """Whether a name means an `async def` of this script, and never anything else."""
        function = self._only_binding(node).function if isinstance(node, ast.Name) else None
        return isinstance(function, ast.AsyncFunctionDef) and not function.decorator_list

    def _only_binding(self, node: ast.Name) -> _Binding:
        """The binding of a name that is bound exactly once; else an empty one."""
        owner = self._owner(node)
        bindings = owner.bindings[node.id] if owner is not None else []
        return bindings[0] if len(bindings) == 1 else _Binding((0, 0))

    def scope(self, node: ast.AST) -> Scope:
        return self._scopes[node]

    def library_path(self, path: Path) -> Path | None:
        """The library path of an imported name: `github.get_issue` is importable directly, too."""
        if path[0] in (LIBRARY, PORTAL):
            return path
        return (LIBRARY, *path) if path[0] in self.namespaces else None

    def _path(self, node: ast.expr) -> Path | None:
        if isinstance(node, ast.Attribute):
            path = self.path(node.value) or self._hidden(node)
            return None if path is None else (*path, node.attr)
        if not isinstance(node, ast.Name):
            return None
        owner = self._owner(node)
        if owner is not None:
            path = self._meaning(owner, node.id)
            # In `weather = weather.forecast()`, and before it, the name still means the namespace.
            is_of_module = owner is self._scopes[node] is self.module
            if path is not None or not is_of_module or _start(node) >= self._first(owner, node.id):
                return path
        if node.id in self.known:
            return None
        # Clients name a tool without a portal like this: `mcp__git__git_log`.
        start, namespace, function = (*node.id.split("__", 2), "", "")[:3]
        for found in (namespace, f"{namespace}_") if start == "mcp" and function else ():
            if found in self.namespaces:
                self.hidden[node] = f"{found}.{function}"
                return (LIBRARY, found, function)
        return self.library_path((node.id,))

    def _hidden(self, node: ast.Attribute) -> Path | None:
        """The path of a namespace behind the name of a Python module that has no such attribute."""
        name = node.value
        if not isinstance(name, ast.Name) or f"{name.id}_" not in self.namespaces or name.id in self.known:
            return None
        owner = self._owner(name)
        if owner is not None and any(each.module != name.id for each in owner.bindings[name.id]):
            return None
        own = getattr(builtins, name.id, None)
        with suppress(ImportError):
            own = own or importlib.import_module(name.id)
        if own is None or hasattr(own, node.attr):
            return None
        self.hidden[name] = f"{name.id}_"
        return (LIBRARY, f"{name.id}_")

    def _meaning(self, owner: Scope, name: str) -> Path | None:
        """The library path of a scope's name, if all its bindings agree."""
        if (owner, name) not in self._meanings:
            self._meanings[owner, name] = None  # ends the recursion of `a = b; b = a`
            paths = {
                self.path(binding.value) if binding.value is not None else binding.path
                for binding in owner.bindings[name]
            }
            self._meanings[owner, name] = paths.pop() if len(paths) == 1 else None
        return self._meanings[owner, name]

    def _first(self, owner: Scope, name: str) -> _Position:
        """Where a scope first binds the name. Kept: a script may bind and use it thousands of times."""
        if (owner, name) not in self._firsts:
            self._firsts[owner, name] = min(binding.position for binding in owner.bindings[name])
        return self._firsts[owner, name]

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
            self._by_kind[kind].append(node)
            if kind in _NAMING:
                self._bind_node(node, scope)
            if kind in _LEAVES:
                continue
            inner = Scope(node, scope) if kind in FUNCTIONS else scope
            children = self._children[node] = children_of(node)
            # In the order of the script, so that `global x` is processed before x is bound.
            for child in reversed(children):
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
                self._bind(scope, name, _Binding(_start(node), function=node))

    def _bind_name(self, node: ast.Name, scope: Scope) -> None:
        parent = self.parents[node]
        is_alone = isinstance(parent, (ast.Assign, ast.AnnAssign, ast.NamedExpr))
        while isinstance(parent, (ast.Tuple, ast.List, ast.Starred)):
            parent = self.parents[parent]
        source: Any = getattr(parent, "value", None) or getattr(parent, "iter", None)
        source = source or getattr(parent, "context_expr", node)
        # A comprehension binds its names before its element is evaluated.
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
            self._bind(scope, bound, _Binding(_start(node), self.library_path(path), module=".".join(path)))

    def _bind(self, scope: Scope, name: str, binding: _Binding) -> None:
        if binding.path is not None or isinstance(binding.value, (ast.Name, ast.Attribute)):
            self._perhaps.add(name)
        scope.elsewhere.get(name, scope).bindings.setdefault(name, []).append(binding)


def children_of(node: ast.AST) -> list[ast.AST]:
    """The nodes right below one: `ast.iter_child_nodes` in a third of the time, and without `ctx`."""
    children: list[ast.AST] = []
    for name in node._fields:
        value = getattr(node, name, None)
        if value.__class__ is list:
            children += [each for each in value if isinstance(each, ast.AST)]
        elif isinstance(value, ast.AST) and name != "ctx":
            children.append(value)
    return children


def _start(node: ast.AST) -> _Position:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def last_name(node: ast.expr) -> str:
    """The last part of a dotted name: `gather` of `asyncio.gather`."""
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")
