"""Follows what library calls return through a script, to find what plain data does not have: attributes."""

import ast
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from portal.check.diagnostic import Suspicion
from portal.check.error_handling import gives_errors
from portal.check.script_calls import ScriptCall
from portal.check.script_tree import ScriptTree
from portal.library.function import Function
from sandbox_runtime.guest.scopes import COMPREHENSIONS, Binding

_OF_DATA: Final = frozenset(
    (*(name for kind in (dict, list, str, int, float, type(None)) for name in dir(kind)), "from_number")
)
"""Attributes of what JSON holds; the last came with the sandbox's Python."""
_ASK_FOR_KIND: Final = frozenset(
    ("builtins", name) for name in ("callable", "getattr", "hasattr", "isinstance", "issubclass", "type")
)
_GATHER: Final = ("asyncio", "gather")
_CHANGE: Final = frozenset(
    {
        *("append", "extend", "insert", "setdefault", "update"),
        *("__iadd__", "__ior__", "__setitem__"),
    }
)
_CHANGING_MODULES: Final = frozenset({"bisect", "heapq", "operator"})
_ONLY_LOOK: Final = frozenset({("operator", "itemgetter"), ("heapq", "nlargest"), ("heapq", "nsmallest")})
_CONSTRUCTORS: Final = frozenset(
    {
        *(("builtins", name) for name in ("dict", "list", "set", "sorted")),
        *(("collections", name) for name in ("Counter", "OrderedDict", "defaultdict", "deque")),
    }
)
_DISPLAYS: Final = (ast.Constant, ast.List, ast.Dict, ast.Set, *COMPREHENSIONS)
_MAX_STEPS: Final = 20_000


@dataclass(frozen=True)
class _Origin:
    """Where a value comes from: a function's result, or a part of one, which is data until somebody replaces it."""

    function: Function
    is_part: bool = False


class _NotDataError(Exception):
    """A value may be something else than a result."""


class Results:
    """Which expressions of a script can be nothing but a library function's result, or a part of one.

    `earlier` are the names that scripts bound before in the session: what those do with a result is not known.
    """

    def __init__(
        self, script: ScriptTree, calls: Mapping[ast.expr, ScriptCall], earlier: Set[str] = frozenset()
    ) -> None:
        self._script = script
        self._calls = calls
        self._earlier = earlier
        self._left = _MAX_STEPS

    def suspicions(self) -> Iterator[Suspicion]:
        """Attributes of results, which are plain data whatever they declare."""
        for node in self._script.all_of(ast.Attribute):
            if not isinstance(node.ctx, ast.Load) or node.attr in _OF_DATA:
                continue
            origin = self._origin(node.value)
            if origin is not None:
                message = f"what {origin.function.qualified} returns is plain data: it has no attribute {node.attr!r}"
                hint = "Write len(...)." if node.attr == "length" else f'Write ["{node.attr}"].'
                is_sure = not self._asks_for_kinds and not (origin.is_part and self._changes_data)
                yield Suspicion(node, node.end_lineno or node.lineno, message, hint, "unknown_field", is_sure)

    def _origin(self, node: ast.expr) -> _Origin | None:
        try:
            origins = [*self._origins(node, set())]
        except (_NotDataError, RecursionError):
            return None
        return max(origins, key=lambda origin: origin.is_part, default=None)

    def _origins(self, node: ast.expr, seen: set[Binding]) -> Iterator[_Origin]:
        """Everything that an expression may come from; each binding is followed once."""
        self._left -= 1
        if self._left < 0:
            raise _NotDataError
        if isinstance(node, ast.Await):
            yield _Origin(self._awaited(node.value))
        elif isinstance(node, ast.NamedExpr):
            yield from self._origins(node.value, seen)
        elif isinstance(node, ast.Name):
            for binding in self._bindings(node):
                if binding not in seen:
                    seen.add(binding)
                    yield from self._bound(binding, seen)
        else:
            for origin in self._origins(_container(node), seen):
                yield _Origin(origin.function, is_part=True)

    def _awaited(self, node: ast.expr) -> Function:
        gathered: list[ast.expr] = []
        if isinstance(node, ast.Call):
            is_gather = self._script.paths.get(node.func) == _GATHER
            is_plain = is_gather and not gives_errors(node)
            gathered = [_element(argument) for argument in node.args] if is_plain else [node]
        calls = [self._calls[each].function for each in gathered if each in self._calls]
        if not calls or len(calls) < len(gathered):
            raise _NotDataError
        return calls[0]

    def _bindings(self, node: ast.Name) -> list[Binding]:
        scope = None if node in self._script.known_names else self._script.names.get(node)
        owner = None if scope is None else scope.owner(node.id)
        if owner is None or owner.kind == "class" or (owner.kind == "module" and node.id in self._earlier):
            raise _NotDataError
        return owner.bindings[node.id]

    def _bound(self, binding: Binding, seen: set[Binding]) -> Iterator[_Origin]:
        if binding.value is not None:
            yield from self._origins(binding.value, seen)
        elif binding.node in self._iterated:
            for origin in self._origins(self._iterated[binding.node], seen):
                yield _Origin(origin.function, is_part=True)
        else:
            raise _NotDataError

    @cached_property
    def _iterated(self) -> Mapping[ast.AST, ast.expr]:
        """What loops and comprehensions take the values of their variables from."""
        return {loop.target: loop.iter for loop in self._script.all_of(ast.For, ast.comprehension)}

    @cached_property
    def _asks_for_kinds(self) -> bool:
        """Whether the script looks at what kind of value a result is, and may do without what it seems to need."""
        calls = (
            call for call in self._script.scopes.calls if self._script.paths.get(call.func) in _ASK_FOR_KIND
        )
        matches = (node.subject for node in self._script.all_of(ast.Match))
        asked = [*(argument for call in calls for argument in call.args), *matches]
        return any(self._origin(name) is not None for name in _names(asked))

    @cached_property
    def _changes_data(self) -> bool:
        """Whether the script puts something into containers that are not plainly its own."""
        if any(name.id in self._earlier for name in self._script.names):
            return True
        paths = self._script.paths.values()
        if any(path[0] in _CHANGING_MODULES and len(path) > 1 and path not in _ONLY_LOOK for path in paths):
            return True
        return any(not self._is_own(changed) for node in self._script.nodes for changed in _changed(node))

    def _is_own(self, node: ast.expr) -> bool:
        """True for a variable that only ever holds containers made where it is bound."""
        try:
            bindings = self._bindings(node) if isinstance(node, ast.Name) else []
        except _NotDataError:
            return False
        self._left -= len(bindings)
        if self._left < 0:
            return False
        values = [binding.value for binding in bindings if binding.node not in self._augmented]
        return bool(values) and all(self._is_new(value) for value in values)

    @cached_property
    def _augmented(self) -> Set[ast.AST]:
        return {node.target for node in self._script.all_of(ast.AugAssign)}

    def _is_new(self, node: ast.expr | None) -> bool:
        is_made = isinstance(node, ast.Call) and self._script.paths.get(node.func) in _CONSTRUCTORS
        return is_made or isinstance(node, _DISPLAYS)


def _names(nodes: Iterable[ast.AST]) -> Iterator[ast.Name]:
    """The names within some nodes, each once although a node may lie in another one."""
    seen: set[ast.AST] = set()
    todo = [*nodes]
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            todo += ast.iter_child_nodes(node)
            if isinstance(node, ast.Name):
                yield node


def _container(node: ast.expr) -> ast.expr:
    """What `node` is a part of."""
    if isinstance(node, ast.Subscript):
        return node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        is_get = node.func.attr == "get" and len(node.args) == 1
        if is_get:
            return node.func.value
    raise _NotDataError


def _element(argument: ast.expr) -> ast.expr:
    """Of `*[f(x) for x in xs]`, `f(x)`."""
    if isinstance(argument, ast.Starred) and isinstance(argument.value, (ast.ListComp, ast.GeneratorExp)):
        return argument.value.elt
    return argument


def _changed(node: ast.AST) -> Iterator[ast.expr]:
    """The containers that a node puts something into, or hands on the means to: `map(rows.append, others)`."""
    match node:
        case ast.Subscript(value=container, ctx=ast.Store() | ast.Del()):
            yield container
        case ast.Attribute(value=container) if node.attr in _CHANGE:
            yield container
        case ast.AugAssign(target=container):
            yield container
