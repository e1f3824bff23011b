"""Inserts missing awaits into a script's text, with notices.

The analysis is syntactic. A call gets its `await` if every use of its value is known and uses it as data. If a use may
await it, the script is not changed. A call that is used as data all the same raises an error (`calls.Call`).
"""

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from sandbox_runtime.guest.analysis.names import Names, last_name

_Use: TypeAlias = tuple[str, int]
"""A name that refers to a call, and the number of containers around the call: 1 for an item of a list."""

_DATA: Final[_Use] = "", 0
"""The value is used as data."""

_AWAITED: Final[_Use] = "", 1
"""The value is awaited, or passed to code that may await it."""

_MAX_DEPTH: Final = 4

_READING: Final = frozenset("print str repr format len int float bool abs round isinstance range".split())  # noqa: SIM905
"""Builtins that use their arguments as data."""

_KEEPING: Final = {
    **dict.fromkeys(("list", "tuple", "set", "sorted", "reversed", "iter"), 0),
    **dict.fromkeys(("enumerate", "zip"), 1),
    **dict.fromkeys(("max", "min"), -1),
}
"""Builtins that return the items of their arguments, and the number of containers that they add."""

_OF_COROUTINES: Final = frozenset({"send", "throw", "close", "__await__"})

_AWAITING_MODULES: Final = frozenset(
    """
    argparse asyncio bisect builtins collections contextlib contextvars copy dataclasses functools heapq inspect
    itertools more_itertools operator queue types typing unittest weakref
    """.split()  # noqa: SIM905
)
"""Modules whose functions await or return their arguments."""

_REMEDIES = {
    "a condition": "Write `await portal.approve(...)`.",
    "a lambda": "Use an `async def`.",
    "a generator expression": "Use a list comprehension.",
    "a class body": "Call it before the class.",
}
_MAX_NOTICES = 5
_MAX_LINES = 10


@dataclass(frozen=True, eq=False)
class ForgottenCall:
    """One call of a library function, `github.get_issue`, that nothing awaits."""

    node: ast.Call
    function: str
    sync_scope: str = ""
    """The enclosing scope that allows no `await`, like "a lambda"; "" if one can be inserted."""
    is_used: bool = True
    """Whether its value is used as data."""

    @property
    def remedy(self) -> str:
        return _REMEDIES.get(self.sync_scope, "Make it an `async def` and await its calls.")


def forgotten_calls(names: Names) -> list[ForgottenCall]:
    """The library calls that nothing awaits.

    Variables with the same name count as one, so at worst a missing `await` is not found.
    """
    calls = {node: name for node in names.all_of(ast.Call) if (name := names.awaitable(node.func))}
    if all(isinstance(names.parents[node], ast.Await) for node in calls):
        return []
    flow = _Flow(names, calls)
    return [
        ForgottenCall(node, function, _sync_scope_of(names, node, function), _DATA in uses)
        for node, function in calls.items()
        if _AWAITED not in (uses := flow.uses_of(node))
    ]


class _Flow:
    """Follows the values of library calls through expressions, plain variables and results of async functions."""

    def __init__(self, names: Names, calls: Mapping[ast.Call, str]) -> None:
        self._names = names
        self._calls = calls
        self._loads: dict[str, list[ast.expr]] = {}
        """The reads of each name, and as `f()` the awaited calls of a function with that name."""
        for node in names.all_of(ast.Name):
            if isinstance(node.ctx, ast.Load):
                self._loads.setdefault(node.id, []).append(node)
        for awaited in names.all_of(ast.Await):
            if isinstance(awaited.value, ast.Call):
                self._loads.setdefault(f"{last_name(awaited.value.func)}()", []).append(awaited)
        self._imported = set(_imported(names))
        self._known: dict[_Use, frozenset[_Use]] = {}

    def uses_of(self, call: ast.Call) -> set[_Use]:
        """The uses of a call's value: _DATA, _AWAITED, both or none."""
        found: set[_Use] = set()
        for use in self._follow(call, 0):
            found |= {use} if use in (_DATA, _AWAITED) else self._uses_of_name(use)
        return found

    def _uses_of_name(self, name: _Use) -> frozenset[_Use]:
        if name not in self._known:
            found: set[_Use] = set()
            todo, seen = [name], {name}
            while todo and _AWAITED not in found:
                key, depth = todo.pop()
                uses = {use for load in self._loads.get(key, ()) for use in self._follow(load, depth)}
                found |= uses & {_DATA, _AWAITED}
                todo += uses - seen - found
                seen |= uses
            self._known[name] = frozenset(found)
        return self._known[name]

    def _follow(self, node: ast.AST, depth: int) -> Iterator[_Use]:
        """The uses of a value that is `depth` containers deep in an expression."""
        child, node = node, self._names.parents[node]
        while depth <= _MAX_DEPTH:
            if isinstance(node, _CONTAINERS):
                depth += 1
            elif isinstance(node, ast.NamedExpr):
                yield from _stored(node.target, depth)
            elif depth and isinstance(node, (ast.Starred, ast.Subscript)) and child is node.value:
                depth -= not isinstance(getattr(node, "slice", None), ast.Slice)
            elif depth and (builtin := self._builtin(node)) in _KEEPING:
                depth += _KEEPING[builtin]
            elif not self._is_passed_on(node, child, depth):
                yield from self._end(node, child, depth)
                return
            child, node = node, self._names.parents[node]
        yield _AWAITED

    def _is_passed_on(self, node: ast.AST, child: ast.AST, depth: int) -> bool:
        """Whether an expression has the value of a part of it."""
        if isinstance(node, ast.IfExp):
            return child is not node.test
        return isinstance(node, (ast.BoolOp, ast.keyword)) or (depth > 0 and isinstance(node, ast.BinOp))

    def _end(self, node: ast.AST, child: ast.AST, depth: int) -> Iterator[_Use]:
        """The uses of a value that no further expression contains."""
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _stored(target, depth)
        elif isinstance(node, ast.AnnAssign) or (depth and isinstance(node, ast.AugAssign)):
            yield from _stored(node.target, depth)
        elif depth and isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)) and child is node.iter:
            yield from _stored(node.target, depth - 1)
        elif isinstance(node, ast.Call):
            yield _DATA if self._reads(node, child, depth) else _AWAITED
        elif isinstance(node, ast.Return):
            function = self._names.scope(node).node
            if isinstance(function, ast.AsyncFunctionDef) and not depth:
                yield f"{function.name}()", depth
            else:
                yield _DATA if isinstance(function, ast.Module) else _AWAITED
        elif isinstance(node, ast.Attribute):
            yield _AWAITED if depth or node.attr in _OF_COROUTINES else _DATA
        elif isinstance(node, (ast.Match, ast.withitem)):
            yield _DATA if child in self._calls else _AWAITED
        else:
            yield _DATA if isinstance(node, _USING) else _AWAITED

    def _reads(self, call: ast.Call, child: ast.AST, depth: int) -> bool:
        """Whether a call uses an argument, or the called value, as data."""
        root = call.func
        if builtin := self._builtin(call):
            return builtin in _READING or (not depth and builtin in _KEEPING)
        if call in self._calls:
            return True
        if child is root or depth:
            return not depth
        while isinstance(root, (ast.Attribute, ast.Await)):
            root = root.value
        is_imported = isinstance(root, ast.Name) and root.id in self._imported
        is_of_data = isinstance(root, (ast.Constant, ast.JoinedStr)) or root in self._calls
        return is_imported or is_of_data

    def _builtin(self, node: ast.AST) -> str:
        """The builtin that an expression calls, or ""."""
        function = node.func if isinstance(node, ast.Call) else None
        return function.id if isinstance(function, ast.Name) and not self._names.is_bound(function) else ""


_CONTAINERS: Final = (
    *(ast.List, ast.Set, ast.Tuple, ast.Dict),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)
_USING: Final = (
    *(ast.Expr, ast.Subscript, ast.FormattedValue, ast.Starred, ast.UnaryOp, ast.Compare, ast.BinOp),
    *(ast.For, ast.AsyncFor, ast.comprehension, ast.If, ast.IfExp, ast.While, ast.Assert, ast.AugAssign),
)
"""Nodes that use an expression in them as data."""


def _stored(target: ast.expr, depth: int) -> Iterator[_Use]:
    """The names to which a value at this depth is assigned."""
    if isinstance(target, ast.Name):
        yield target.id, depth
    elif isinstance(target, (ast.Subscript, ast.Starred)):
        yield from _stored(target.value, depth + 1)
    elif isinstance(target, (ast.Tuple, ast.List)):
        if depth == 0:
            yield _DATA
        for part in target.elts if depth else ():
            yield from _stored(part, depth - 1)
    else:
        yield _AWAITED


def _imported(names: Names) -> Iterator[str]:
    """The names of imported modules and functions that do not await their arguments."""
    for alias in names.all_of(ast.alias):
        statement = names.parents[alias]
        module = statement.module if isinstance(statement, ast.ImportFrom) else alias.name
        if (module or "").partition(".")[0] not in _AWAITING_MODULES:
            yield alias.asname or alias.name.partition(".")[0]


def is_condition(names: Names, node: ast.AST) -> bool:
    """Whether the value is a condition right where it is created. No `await` is guessed for an approval used so."""
    child, node = node, names.parents[node]
    while isinstance(node, (ast.BoolOp, ast.UnaryOp, ast.Compare, ast.NamedExpr)):
        child, node = node, names.parents[node]
    return child is getattr(node, "test", None) or child in getattr(node, "ifs", ())


def _sync_scope_of(names: Names, node: ast.AST, function: str) -> str:
    """The enclosing scope of a call that allows no `await`; "" if one is allowed."""
    if function == "portal.approve" and is_condition(names, node):
        return "a condition"
    while not isinstance(node, (ast.Module, ast.AsyncFunctionDef)):
        inner, node = node, names.parents[node]
        if isinstance(node, ast.Lambda) and inner is node.body:
            return "a lambda"
        if isinstance(node, ast.GeneratorExp) and inner is not node.generators[0]:
            return "a generator expression"
        if inner in getattr(node, "ifs", ()) and isinstance(names.parents[node], ast.GeneratorExp):
            return "a generator expression"
        if isinstance(node, ast.ClassDef) and inner in node.body:
            return "a class body"
        if isinstance(node, ast.FunctionDef) and inner in node.body:
            return f"`def {node.name}`"
    return ""


def with_awaits(text: str, names: Names, calls: Iterable[ast.Call]) -> str:
    """The text with `await` before each call, in parentheses if its result is used further, and with hidden names.

    `await f()["rows"]` would await an item of the result, so it becomes `(await f())["rows"]`.
    """
    lines = [line.encode() for line in text.split("\n")]

    def between(outer: ast.Await, call: ast.Call) -> bytes:
        return lines[outer.lineno - 1][outer.col_offset : call.col_offset].strip()

    insertions: list[tuple[int, int, bytes]] = []
    replaced: dict[tuple[int, int], int] = {}  # the number of bytes before an insertion that it replaces
    for node in calls:
        assert node.end_lineno is not None and node.end_col_offset is not None
        end = node.end_lineno, node.end_col_offset
        outer = _misplaced(names, node)
        if outer is not None and between(outer, node) == b"await":
            insertions += [(outer.lineno, outer.col_offset, b"("), (*end, b")")]
        elif _is_followed(names, node):
            insertions += [(node.lineno, node.col_offset, b"(await "), (*end, b")")]
        else:
            insertions.append((node.lineno, node.col_offset, b"await "))
    for name, meant in names.hidden.items():
        assert name.end_lineno is not None and name.end_col_offset is not None
        insertions.append((name.end_lineno, name.end_col_offset, meant.encode()))
        replaced[name.end_lineno, name.end_col_offset] = name.end_col_offset - name.col_offset
    # From the end, so that insertions do not move later positions.
    for line, column, inserted in sorted(insertions, reverse=True):
        before = lines[line - 1]
        start = column - replaced.get((line, column), 0)
        lines[line - 1] = before[:start] + inserted + before[column:]
    return b"\n".join(lines).decode()


def _is_followed(names: Names, node: ast.expr) -> bool:
    """Whether a `.name`, `[...]` or `(...)` follows an expression."""
    parent = names.parents[node]
    if isinstance(parent, ast.Call):
        return parent.func is node
    return isinstance(parent, (ast.Attribute, ast.Subscript)) and parent.value is node


def _misplaced(names: Names, node: ast.expr) -> ast.Await | None:
    """The `await` before an expression that takes a part of the call's result."""
    while _is_followed(names, node):
        parent = names.parents[node]
        assert isinstance(parent, ast.expr)
        node = parent
    parent = names.parents[node]
    return parent if isinstance(parent, ast.Await) else None


def await_notices(calls: Sequence[ForgottenCall]) -> list[str]:
    """One notice about inserted awaits, with the first lines."""
    lines = sorted({call.node.lineno for call in calls})
    shown = ", ".join(map(str, lines[:_MAX_LINES])) + (", …" if len(lines) > _MAX_LINES else "")
    return [f"`await` was inserted: line {shown}"] if lines else []


def hidden_notices(names: Names) -> list[str]:
    """Notices about names that were read as other names."""
    found = {f"`{name.id}` means {meant}" for name, meant in names.hidden.items()}
    return sorted(found)[:_MAX_NOTICES]
