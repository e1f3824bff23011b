"""A script as the check reads it: its syntax tree, its scopes, and what its dotted names mean.

Names are understood by the code that understands them in the sandbox, here on the source after the insertion of
awaits: what the guest says of a script would do, but not which of two names on one line it means.
"""

import ast
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, Self, TypeVar, overload

from portal.check.f_strings import without_f_strings
from portal.check.newer_syntax import with_older_syntax
from sandbox_runtime.guest.library_names import LibraryNames, Path
from sandbox_runtime.guest.scopes import FUNCTIONS, Binding, Function, Scope, Scopes

MAX_SOURCE_CHARACTERS: Final = 100_000
"""Longer scripts are not read: it takes as long as they are, and everybody waits for it."""


Node = TypeVar("Node", bound=ast.AST)
Other = TypeVar("Other", bound=ast.AST)

_THERE: Final = frozenset({"asyncio", "portal"})


@dataclass(frozen=True, eq=False)
class ScriptTree:
    """One script, read and not run; `paths` say what a dotted name means: `("tools", "git", "git_log")`."""

    source: str
    module: ast.Module
    nodes: Sequence[ast.AST]
    """All of them but operators and contexts, parents first."""
    scopes: Scopes
    paths: Mapping[ast.expr, Path]
    is_as_written: bool = True
    """Whether nothing had to be taken out of it to be read."""
    is_whole: bool = True
    """Whether no assignment lies in a text that this Python cannot look into."""

    @classmethod
    def read(cls, source: str, namespaces: Collection[str]) -> Self | None:
        """A script that may use these namespaces; None if it is too long, or newer than this Python."""
        if len(source) > MAX_SOURCE_CHARACTERS:
            return None
        module, is_whole = _parsed(source), True
        is_as_written = module is not None
        if module is None:
            older = without_f_strings(source)
            is_whole = source.count(":=") == older.count(":=")
            module = _parsed(with_older_syntax(older))
        if module is None:
            return None
        try:
            scopes = Scopes(module)
            names = LibraryNames(module, scopes, frozenset(namespaces))
        except RecursionError:
            return None
        paths = {**dict(_imported_for_it(scopes)), **names.paths}
        return cls(source, module, [*_walk(module)], scopes, paths, is_as_written, is_whole)

    @cached_property
    def _by_kind(self) -> Mapping[type[ast.AST], Sequence[ast.AST]]:
        found: dict[type[ast.AST], list[ast.AST]] = {}
        for node in self.nodes:
            found.setdefault(type(node), []).append(node)
        return found

    @overload
    def all_of(self, kind: type[Node], /) -> Iterator[Node]: ...
    @overload
    def all_of(self, kind: type[Node], other: type[Other], /) -> Iterator[Node | Other]: ...
    @overload
    def all_of(self, /, *kinds: type[ast.AST]) -> Iterator[Any]: ...
    def all_of(self, /, *kinds: type[ast.AST]) -> Iterator[Any]:
        """The nodes of these kinds, one kind after the other; quicker than to look at all nodes."""
        for kind in kinds:
            yield from self._by_kind.get(kind, ())

    @cached_property
    def names(self) -> Mapping[ast.Name, Scope]:
        """The names that the script reads, also as the beginning of a dotted name, and the scopes it reads them in."""
        return {root_of(mention.node): mention.scope for mention in self.scopes.mentions}

    @cached_property
    def known_names(self) -> Set[ast.Name]:
        """Those of them that begin a dotted name with a path: in `weather = await weather.forecast()` the second."""
        return {root_of(mention.node) for mention in self.scopes.mentions if mention.node in self.paths}

    @cached_property
    def functions(self) -> Mapping[str, Sequence[Function]]:
        """The script's own functions, methods and lambdas, by the name it gives them."""
        found: dict[str, list[Function]] = {}
        for node in self.all_of(ast.FunctionDef, ast.AsyncFunctionDef):
            found.setdefault(node.name, []).append(node)
        for assignment in self.all_of(ast.Assign):
            if isinstance(assignment.value, ast.Lambda):
                for target in assignment.targets:
                    if isinstance(target, ast.Name):
                        found.setdefault(target.id, []).append(assignment.value)
        return found

    @property
    def all_scopes(self) -> Sequence[Scope]:
        return (self.scopes.module, *self.scopes.of.values())

    def bindings_of(self, name: ast.Name) -> Sequence[Binding]:
        """Every place that gives a value to the variable that a name means where it is read."""
        scope = self.names.get(name)
        owner = None if scope is None else scope.owner(name.id)
        return () if owner is None else owner.bindings.get(name.id, ())

    def is_free(self, name: ast.Name) -> bool:
        """Whether nothing in the script binds the name where it is read."""
        return name in self.names and self.names[name].owner(name.id) is None


def _imported_for_it(scopes: Scopes) -> Iterator[tuple[ast.expr, Path]]:
    """What means a module that is there in the sandbox without import."""
    for mention in scopes.mentions:
        root = root_of(mention.node)
        if root.id in _THERE and mention.scope.owner(root.id) is None:
            yield mention.node, tuple(ast.unparse(mention.node).split("."))


def root_of(node: ast.expr) -> ast.Name:
    """The name that a dotted name begins with."""
    while isinstance(node, ast.Attribute):
        node = node.value
    assert isinstance(node, ast.Name)  # as of every dotted name that is mentioned
    return node


def is_generator(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether calling it runs nothing of it yet, because it yields."""
    return has_yield(function.body)


def has_yield(nodes: Iterable[ast.AST]) -> bool:
    """Whether a generator may wait in one of these of its own statements until somebody wants more of it."""
    todo = [*nodes]
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.Yield, ast.YieldFrom)):
            return True
        if not isinstance(node, FUNCTIONS):
            todo += ast.iter_child_nodes(node)
    return False


def _parsed(source: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return ast.parse(source)
            except SystemError:
                # Python 3.11 loses count of its depth when garbage that runs code is collected meanwhile; the second
                # time there is none left.
                return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError, SystemError):
        return None


def _walk(tree: ast.Module) -> Iterator[ast.AST]:
    """Every node, parents first; five times as fast as `ast.walk`, and every script waits for it."""
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        yield node
        for name in _PARTS[type(node)]:
            part = getattr(node, name)
            if part.__class__ is list:
                todo += [item for item in part if item is not None]
            elif part is not None:
                todo.append(part)


def _parts(kind: type[ast.AST]) -> tuple[str, ...]:
    """The fields that hold nodes, or lists of nodes, that anybody looks at."""
    if issubclass(
        kind, (ast.Constant, ast.Name, ast.Global, ast.Nonlocal, ast.MatchSingleton, ast.TypeIgnore)
    ):
        return ()
    is_name_a_node = kind.__name__ == "TypeAlias"
    return tuple(
        field for field in kind._fields if field not in _PLAIN or (field == "name" and is_name_a_node)
    )


# Fields that hold texts, numbers, operators and contexts.
_PLAIN: Final = frozenset(
    {
        *("arg", "asname", "attr", "conversion", "ctx", "is_async", "kwd_attrs", "level", "module", "name"),
        *("op", "ops", "rest", "simple", "str", "type_comment", "type_ignores"),
    }
)
_PARTS: Final = MappingProxyType(
    {
        kind: _parts(kind)
        for kind in vars(ast).values()
        if isinstance(kind, type) and issubclass(kind, ast.AST)
    }
)
