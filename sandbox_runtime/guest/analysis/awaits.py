"""Inserts missing awaits into a script's text, with notices.

The analysis is syntactic. An await that it misses raises an error when the call's value is used (`calls.Call`).
"""

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sandbox_runtime.guest.analysis.names import Names, last_name

_AWAITING = frozenset(
    """
    gather wait wait_for shield create_task ensure_future as_completed run run_until_complete
    run_coroutine_threadsafe isawaitable iscoroutine
    """.split()  # noqa: SIM905
)
"""Functions and methods that await, or may await, their arguments."""

_KEEPING = frozenset(
    """
    list tuple set dict sorted reversed enumerate zip iter next map filter chain deque islice max min
    append appendleft add extend insert setdefault update put put_nowait heappush heappop SimpleNamespace
    """.split()  # noqa: SIM905
)
"""Functions and methods that return or store their arguments."""

_CONTAINERS = (
    ast.List,
    ast.Tuple,
    ast.Set,
    ast.Dict,
    ast.IfExp,
    ast.BoolOp,
    ast.BinOp,
    ast.NamedExpr,
    ast.keyword,
)
_MAKING = {
    ast.ListComp: "elt",
    ast.SetComp: "elt",
    ast.GeneratorExp: "elt",
    ast.DictComp: "value",
    ast.Lambda: "body",
}
_USING = (
    *(ast.Expr, ast.Subscript, ast.Attribute, ast.For, ast.AsyncFor, ast.comprehension, ast.FormattedValue),
    *(ast.Compare, ast.UnaryOp, ast.BinOp, ast.If, ast.While),
)
_READ: tuple[type[ast.AST], ...] = (
    *(ast.Await, ast.Call, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr),
    *(ast.For, ast.AsyncFor, ast.comprehension, ast.Return, ast.Yield),
)
_REMEDIES = {
    "a lambda": "Use an `async def`.",
    "a generator expression": "Use a list comprehension.",
    "a class body": "Call it before the class.",
}
_MAX_NOTICES = 5
_MAX_CALLS = 3  # named in one notice
_Value: TypeAlias = str | ast.expr
"""The origin of a value: a name of the script, or a library call."""


@dataclass(frozen=True, eq=False)
class ForgottenCall:
    """A library call, like `github.get_issue(...)`, that nothing awaits."""

    node: ast.Call
    function: str
    sync_scope: str = ""
    """The enclosing scope that allows no `await`, like "a lambda"; "" if one can be inserted."""
    is_used: bool = True
    """Whether its value is used in place. Otherwise code that the analysis does not see may await it."""

    @property
    def remedy(self) -> str:
        return _REMEDIES.get(self.sync_scope, "Make it an `async def` and await its calls.")


def forgotten_calls(names: Names) -> list[ForgottenCall]:
    """The library calls that nothing awaits.

    A call may be awaited in place, gathered, or made a task, also through variables, containers and the script's own
    functions. Variables with the same name count as one, so at worst a missing `await` is not found.
    """
    calls = {
        node: ".".join(path[1:])
        for node in names.all_of(ast.Call)
        if (path := names.function(node.func)) is not None
    }
    if all(isinstance(names.parents[node], ast.Await) for node in calls):
        return []
    awaited = _Awaited(names, calls).values
    return [
        ForgottenCall(node, function, _sync_scope_of(names, node), isinstance(names.parents[node], _USING))
        for node, function in calls.items()
        if node not in awaited
    ]


class _Awaited:
    """Everything that a script awaits, directly or through names."""

    def __init__(self, names: Names, calls: Iterable[ast.Call]) -> None:
        self._names = names
        self._calls = frozenset(calls)
        self._links: dict[str, set[_Value]] = {}
        self._own: dict[str, list[list[str]]] = {}
        for definition in names.all_of(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef):
            self._own.setdefault(definition.name, []).append(_positional(definition))
        self.values: set[_Value] = set()
        for node in names.all_of(*_READ):
            self._read(node)
        todo = list(self.values)
        while todo:
            value = todo.pop()
            new = self._links.get(value, set()) - self.values if isinstance(value, str) else set()
            self.values |= new
            todo += new

    def _read(self, node: ast.AST) -> None:
        if isinstance(node, ast.Await):
            self.values |= self._values(node.value)
        elif isinstance(node, ast.Call) and node not in self._calls:
            self._read_call(node)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self._link(target, node.value)
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) and node.value is not None:
            self._link(node.target, node.value)
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)) and node.iter not in self._calls:
            self._link(node.target, node.iter)
        elif isinstance(node, (ast.Return, ast.Yield)) and node.value is not None:
            function = self._names.scope(node).node
            if isinstance(function, ast.FunctionDef) or isinstance(node, ast.Yield):
                self._link(getattr(function, "name", ""), node.value)  # the caller of the function awaits it

    def _read_call(self, node: ast.Call) -> None:
        name = last_name(node.func)
        if name in _AWAITING:
            self.values |= self._values(*node.args, *node.keywords)
        elif name in _KEEPING and isinstance(node.func, ast.Attribute):
            for argument in (*node.args, *node.keywords):
                self._link(node.func.value, argument)
        for positional in self._own.get(name, ()):
            for index, argument in enumerate(node.args):
                for parameter in positional[index : index + 1] or positional[-1:]:
                    self._link(parameter, argument)
        for keyword in node.keywords:
            self._link(keyword.arg or "", keyword.value)

    def _link(self, target: str | ast.expr, value: ast.AST) -> None:
        """Record that awaiting the target awaits the parts of the value."""
        for name in [target] if isinstance(target, str) else self._values(target):
            if isinstance(name, str):
                self._links.setdefault(name, set()).update(self._values(value))

    def _values(self, *nodes: ast.AST) -> set[_Value]:
        """The names and calls that values consist of, without those they are only computed from."""
        found: set[_Value] = set()
        todo = [*nodes]
        while todo:
            part = todo.pop()
            if part in self._calls:
                found.add(part)
            elif isinstance(part, ast.Name):
                found.add(part.id)
            elif isinstance(part, ast.Attribute):
                found.add(part.attr)
            elif isinstance(part, (ast.Subscript, ast.Starred, ast.Await)):
                todo += (
                    [] if part.value in self._calls else [part.value]
                )  # a part of its result is not a call
            elif isinstance(part, ast.Call):
                todo += self._passed(part)
            elif type(part) in _MAKING:
                todo.append(getattr(part, _MAKING[type(part)]))
            elif isinstance(part, _CONTAINERS):
                todo += ast.iter_child_nodes(part)
        return found

    def _passed(self, call: ast.Call) -> list[ast.AST]:
        """The values that a call outside the library may return: its arguments, or what its object stores."""
        name = last_name(call.func)
        passed: list[ast.AST] = [call.func]
        if isinstance(call.func, ast.Attribute):
            held = call.func.value
            passed += [] if held in self._calls or getattr(held, "id", "") in ("self", "cls") else [held]
        if name == "map":
            passed += call.args[:1]
        elif name in _KEEPING or name in _AWAITING:
            is_awaiting = name in _AWAITING
            passed += [argument for argument in call.args if is_awaiting or argument not in self._calls]
            passed += call.keywords
        return passed


def _positional(definition: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> list[str]:
    """The names of positional parameters; surplus arguments go to the last one."""
    if isinstance(definition, ast.ClassDef):
        for part in definition.body:
            if isinstance(part, ast.FunctionDef) and part.name == "__init__":
                return _positional(part)
        fields = [part.target for part in definition.body if isinstance(part, ast.AnnAssign)]
        return [name.id for name in fields if isinstance(name, ast.Name)]
    given = definition.args
    names = [each.arg for each in (*given.posonlyargs, *given.args, given.vararg) if each is not None]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


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
