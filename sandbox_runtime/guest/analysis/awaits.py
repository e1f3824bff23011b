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
    **dict.fromkeys(("list", "tuple", "set", "dict", "sorted", "reversed", "iter"), 0),
    **dict.fromkeys(("enumerate", "zip"), 1),
    **dict.fromkeys(("next", "max", "min"), -1),
}
"""Builtins that return the items of their arguments, and the number of containers that they add."""

_STORING: Final = {
    **dict.fromkeys(("append", "appendleft", "add", "insert", "setdefault"), 1),
    **dict.fromkeys(("extend", "update"), 0),
}
"""Methods that store their arguments, and the number of containers that they add."""

_TAKING: Final = {
    **dict.fromkeys(("get", "pop", "popleft"), -1),
    **dict.fromkeys(("values", "copy"), 0),
    "items": 1,
}
"""Methods that return stored items, and the number of containers that they add."""

_OF_COROUTINES: Final = frozenset({"send", "throw", "close"})

_AWAITING_MODULES: Final = frozenset(
    """
    asyncio collections contextlib copy functools inspect itertools more_itertools operator queue types weakref
    """.split()  # noqa: SIM905
)
"""Modules whose functions await or return their arguments."""

_REMEDIES = {
    "a lambda": "Use an `async def`.",
    "a generator expression": "Use a list comprehension.",
    "a class body": "Call it before the class.",
}
_MAX_NOTICES = 5
_MAX_CALLS = 3  # named in one notice


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

    A call is followed through variables, attributes, containers and the script's own functions. Variables with the same
    name count as one, so at worst a missing `await` is not found.
    """
    calls = {
        node: ".".join(path[1:])
        for node in names.all_of(ast.Call)
        if (path := names.function(node.func)) is not None
    }
    if all(isinstance(names.parents[node], ast.Await) for node in calls):
        return []
    flow = _Flow(names, calls)
    return [
        ForgottenCall(node, function, _sync_scope_of(names, node), _DATA in uses)
        for node, function in calls.items()
        if _AWAITED not in (uses := flow.uses_of(node))
    ]


class _Flow:
    """Where the values of a script's library calls go."""

    def __init__(self, names: Names, calls: Mapping[ast.Call, str]) -> None:
        self._names = names
        self._calls = calls
        self._loads: dict[str, list[ast.expr]] = {}
        """Where each name is read; that of an attribute begins with a dot, that of a coroutine ends with `()`."""
        for node in (*names.all_of(ast.Name), *names.all_of(ast.Attribute)):
            if isinstance(node.ctx, ast.Load):
                key = node.id if isinstance(node, ast.Name) else f".{node.attr}"
                self._loads.setdefault(key, []).append(node)
        for awaited in names.all_of(ast.Await):
            if isinstance(awaited.value, ast.Call):
                self._loads.setdefault(f"{last_name(awaited.value.func)}()", []).append(awaited)
        self._own: dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]] = {}
        for definition in names.all_of(ast.FunctionDef, ast.AsyncFunctionDef):
            self._own.setdefault(definition.name, []).append(definition)
        self._imported = set(_imported(names))
        self._known: dict[_Use, frozenset[_Use]] = {}

    def uses_of(self, call: ast.Call) -> set[_Use]:
        """_DATA and _AWAITED, as far as its value is used so."""
        found: set[_Use] = set()
        for use in set(self._follow(call, 0)):
            found |= {use} if use in (_DATA, _AWAITED) else self._uses_of_name(use)
        return found

    def _uses_of_name(self, name: _Use) -> frozenset[_Use]:
        if name not in self._known:
            found: set[_Use] = set()
            todo, seen = [name], {name}
            while todo:
                key, depth = todo.pop()
                for load in self._loads.get(key, ()):
                    for use in self._follow(load, depth):
                        if use in (_DATA, _AWAITED):
                            found.add(use)
                        elif use not in seen:
                            seen.add(use)
                            todo.append(use)
                if _AWAITED in found:
                    break
            self._known[name] = frozenset(found)
        return self._known[name]

    def _follow(self, node: ast.AST, depth: int) -> Iterator[_Use]:
        """The uses of a value that lies in `depth` containers in what an expression evaluates to."""
        while 0 <= depth <= _MAX_DEPTH:
            child, node = node, self._names.parents[node]
            if isinstance(node, ast.NamedExpr):
                yield from _stored(node.target, depth)
            outer = self._outer(node, child, depth)
            if outer is None:
                yield from self._end(node, child, depth)
                return
            node, depth = outer
        yield _AWAITED

    def _outer(self, node: ast.AST, child: ast.AST, depth: int) -> tuple[ast.AST, int] | None:
        """The expression that holds the value next, and in how many containers; None where it ends."""
        if isinstance(node, _HOLDING):
            is_kept = self._unpacked(node, child) is None and child not in _keys(node)
            return (node, depth + 1) if is_kept else None
        if isinstance(node, (ast.BoolOp, ast.NamedExpr, ast.keyword)):
            return node, depth
        if isinstance(node, ast.IfExp):
            return (node, depth) if child is not node.test else None
        return self._taken(node, child, depth) if depth else None

    def _taken(self, node: ast.AST, child: ast.AST, depth: int) -> tuple[ast.AST, int] | None:
        """The same of a part that is taken from a container."""
        if isinstance(node, ast.BinOp):
            return node, depth
        if isinstance(node, ast.Starred):
            return node, depth - 1
        if isinstance(node, ast.Subscript) and child is node.value:
            return node, depth - (0 if isinstance(node.slice, ast.Slice) else 1)
        if isinstance(node, ast.Attribute) and node.attr in _TAKING:
            call = self._names.parents[node]
            return (call, depth + _TAKING[node.attr]) if isinstance(call, ast.Call) else None
        if isinstance(node, ast.Call) and child is not node.func and self._is_builtin(node.func):
            more = _KEEPING.get(last_name(node.func))
            return (node, depth + more) if more is not None else None
        return None

    def _end(self, node: ast.AST, child: ast.AST, depth: int) -> Iterator[_Use]:
        """The uses of a value where no expression holds it any more."""
        if isinstance(node, ast.Call):
            yield from self._passed(node, child, depth)
        elif (targets := self._targets(node, child, depth)) is not None:
            for target, deep in targets:
                yield from _stored(target, deep)
        elif isinstance(node, ast.Return):
            function = self._names.scope(node).node
            if isinstance(function, ast.AsyncFunctionDef) and not depth:
                yield f"{function.name}()", depth
            else:
                yield _DATA if isinstance(function, ast.Module) else _AWAITED
        elif isinstance(node, ast.Attribute) and (depth or _is_of_coroutine(node.attr)):
            if node.attr not in _STORING:
                yield _AWAITED
        elif isinstance(node, (ast.Match, ast.withitem)):
            yield _DATA if child in self._calls else _AWAITED
        else:
            yield _DATA if isinstance(node, _USING) else _AWAITED

    def _targets(self, node: ast.AST, child: ast.AST, depth: int) -> list[tuple[ast.expr, int]] | None:
        """What a value is assigned to, and in how many containers it lies there; None if it is not."""
        if isinstance(node, ast.Assign):
            return [(target, depth) for target in node.targets]
        if isinstance(node, ast.AnnAssign) or (isinstance(node, ast.AugAssign) and depth):
            return [(node.target, depth)]
        if isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)) and child is node.iter and depth:
            return [(node.target, depth - 1)]
        target = self._unpacked(node, child) if isinstance(node, _HOLDING) else None
        return None if target is None else [(target, depth)]

    def _passed(self, call: ast.Call, child: ast.AST, depth: int) -> Iterator[_Use]:
        """The uses of a value that is an argument of a call, or what is called."""
        name, function = last_name(call.func), call.func
        if child is function:
            yield _AWAITED if depth else _DATA
        elif name in self._own and self._is_own(function):
            for definition in self._own[name]:
                yield _parameter(definition, call, child, depth)
        elif isinstance(function, ast.Attribute) and name in _STORING:
            more = 1 if isinstance(child, ast.keyword) else _STORING[name]
            yield from _stored(function.value, depth + more) if depth or more else (_DATA,)
        else:
            yield _DATA if self._reads(call, depth) else _AWAITED

    def _reads(self, call: ast.Call, depth: int) -> bool:
        """Whether a call certainly uses its arguments as data."""
        root, name = call.func, last_name(call.func)
        if self._is_builtin(root):
            return name in _READING or (name in _KEEPING and not depth)
        while isinstance(root, (ast.Attribute, ast.Await)):
            root = root.value
        is_imported = isinstance(root, ast.Name) and root.id in self._imported and not depth
        is_of_data = isinstance(root, (ast.Constant, ast.JoinedStr)) or root in self._calls
        return call in self._calls or is_imported or is_of_data

    def _is_own(self, function: ast.expr) -> bool:
        """Whether a function of that name is the script's own: what another object's method does, nobody knows."""
        is_method = isinstance(function, ast.Attribute) and getattr(function.value, "id", "") in (
            "self",
            "cls",
        )
        return is_method or (isinstance(function, ast.Name) and self._names.function(function) is None)

    def _is_builtin(self, function: ast.expr) -> bool:
        return isinstance(function, ast.Name) and not self._names.is_bound(function)

    def _unpacked(self, node: ast.AST, child: ast.AST) -> ast.expr | None:
        """The target of `a, b = f(), g()` that a part of the right side is assigned to."""
        assignment = self._names.parents[node]
        if not isinstance(node, (ast.Tuple, ast.List)) or not isinstance(assignment, ast.Assign):
            return None
        target = assignment.targets[0]
        names = target.elts if isinstance(target, (ast.Tuple, ast.List)) else []
        is_spread = any(isinstance(part, ast.Starred) for part in (*names, *node.elts))
        if len(assignment.targets) > 1 or len(names) != len(node.elts) or is_spread:
            return None
        return names[node.elts.index(child)] if isinstance(child, ast.expr) else None


_HOLDING: Final = (
    *(ast.List, ast.Set, ast.Tuple, ast.Dict),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)
_USING: Final = (
    *(ast.Expr, ast.Subscript, ast.Attribute, ast.FormattedValue, ast.Starred, ast.IfExp, ast.UnaryOp),
    *(ast.For, ast.AsyncFor, ast.comprehension, ast.If, ast.While, ast.Assert, ast.AugAssign),
    *(ast.Compare, ast.BinOp),
)
"""What an expression may stand in where its value is used as data."""


def _keys(node: ast.AST) -> list[ast.expr | None]:
    if isinstance(node, ast.DictComp):
        return [node.key]
    return node.keys if isinstance(node, ast.Dict) else []


def _is_of_coroutine(attribute: str) -> bool:
    return attribute in _OF_COROUTINES or attribute.startswith("__")


def _stored(target: ast.expr, depth: int) -> Iterator[_Use]:
    """The names of what a value in so many containers is assigned to."""
    if isinstance(target, ast.Name):
        yield target.id, depth
    elif isinstance(target, ast.Attribute):
        yield f".{target.attr}", depth
    elif isinstance(target, (ast.Subscript, ast.Starred)):
        yield from _stored(target.value, depth + 1)
    elif isinstance(target, (ast.Tuple, ast.List)):
        if depth == 0:
            yield _DATA
        for part in target.elts if depth else ():
            yield from _stored(part, depth - 1)
    else:
        yield _AWAITED


def _parameter(
    definition: ast.FunctionDef | ast.AsyncFunctionDef, call: ast.Call, child: ast.AST, depth: int
) -> _Use:
    """What an argument is called in a function of the script."""
    given = definition.args
    positional = [each.arg for each in (*given.posonlyargs, *given.args)]
    if positional[:1] in (["self"], ["cls"]):
        del positional[0]
    if isinstance(child, ast.keyword):
        if child.arg in (*positional, *(each.arg for each in given.kwonlyargs)):
            return child.arg or "", depth
        return (given.kwarg.arg, depth + 1) if given.kwarg and child.arg else _AWAITED
    index = call.args.index(child) if isinstance(child, ast.expr) else 0
    if any(isinstance(argument, ast.Starred) for argument in call.args[: index + 1]):
        return _AWAITED
    if index < len(positional):
        return positional[index], depth
    return (given.vararg.arg, depth + 1) if given.vararg else _AWAITED


def _imported(names: Names) -> Iterator[str]:
    """The names of modules, and of what is imported from them, that do not await what they are given."""
    for alias in names.all_of(ast.alias):
        statement = names.parents[alias]
        module = statement.module if isinstance(statement, ast.ImportFrom) else alias.name
        if (module or "").partition(".")[0] not in _AWAITING_MODULES:
            yield alias.asname or alias.name.partition(".")[0]


def _sync_scope_of(names: Names, node: ast.AST) -> str:
    """The enclosing scope of a node that allows no `await`; "" if one is allowed."""
    while not isinstance(node, (ast.Module, ast.AsyncFunctionDef)):
        inner, node = node, names.parents[node]
        if isinstance(node, ast.Lambda) and inner is node.body:
            return "a lambda"
        if isinstance(node, ast.GeneratorExp) and inner is not node.generators[0]:
            return "a generator expression"
        if isinstance(node, ast.ClassDef) and inner in node.body:
            return "a class body"
        if isinstance(node, ast.FunctionDef) and inner in node.body:
            return f"`def {node.name}`"
    return ""


def with_awaits(text: str, names: Names, calls: Iterable[ast.Call]) -> str:
    """The text with an `await` before each call, in parentheses where its result is used further.

    `await f()["rows"]` would await an item of the result, so it becomes `(await f())["rows"]`.
    """
    lines = [line.encode() for line in text.split("\n")]

    def between(outer: ast.Await, call: ast.Call) -> bytes:
        return lines[outer.lineno - 1][outer.col_offset : call.col_offset].strip()

    insertions: list[tuple[int, int, bytes]] = []
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
    # From the end, so that insertions do not move later positions.
    for line, column, inserted in sorted(insertions, reverse=True):
        before = lines[line - 1]
        lines[line - 1] = before[:column] + inserted + before[column:]
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
    """Notices about inserted awaits: one per line, for the first lines."""
    by_line: dict[int, list[str]] = {}
    for call in sorted(calls, key=lambda call: (call.node.lineno, call.node.col_offset)):
        by_line.setdefault(call.node.lineno, []).append(f"{call.function}(...)")
    notices = [
        f"line {line}: `await` was inserted before {' and '.join(functions[:_MAX_CALLS])}"
        for line, functions in by_line.items()
    ]
    if len(notices) > _MAX_NOTICES:
        notices[_MAX_NOTICES - 1 :] = [f"`await` was inserted before {len(calls)} library calls in all"]
    return notices
