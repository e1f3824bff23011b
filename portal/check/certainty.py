"""Which parts of a script fail it for certain if they fail: they are reached, and nothing around them catches.

What is found elsewhere is told and refuses nothing. A part is certain only if it can be followed from the beginning of
the script: into a function where that is called, into a coroutine where it is awaited, into a generator where it is
iterated over. A branch whose condition only the running script knows counts as reached.
"""

import ast
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, TypeAlias

from portal.check.endings import Endings, defaults
from portal.check.error_handling import ErrorHandling, gives_errors
from portal.check.held_values import HeldValues
from portal.check.known_values import KnownValues
from portal.check.own_functions import OwnFunctions
from portal.check.script_tree import ScriptTree, has_yield, is_generator
from sandbox_runtime.guest.scopes import COMPREHENSIONS, Comprehension, Function

Fate: TypeAlias = Literal["kept", "started", "iterated", "awaited"]
"""What becomes of an expression's value where it stands, for sure; of what is started, at least one item is taken."""

_PASS_ON: Final = frozenset(
    ("asyncio", name) for name in ("create_task", "ensure_future", "gather", "shield", "wait_for")
)
"""Await, where they are awaited, what they are given."""

_RUN: Final = ("asyncio", "run")
_MAP: Final = ("builtins", "map")
_CONSUMING: Final[dict[tuple[str, ...], Fate]] = {
    **{("builtins", name): "started" for name in ("all", "any")},
    **{
        ("builtins", name): "iterated"
        for name in ("dict", "list", "max", "min", "set", "sorted", "sum", "tuple")
    },
}


class Certainty:
    """The certain nodes of one script that hides no ends, for errors of one kind."""

    def __init__(
        self, script: ScriptTree, values: KnownValues, handling: ErrorHandling, functions: OwnFunctions
    ) -> None:
        self._script = script
        self._values = values
        self._handling = handling
        self._functions = functions
        self._held = HeldValues(script, values)
        self._endings = Endings(script, values)
        self._certain: set[ast.AST] = set()
        self._followed: set[tuple[Function, Fate]] = set()
        self._todo: list[tuple[Function, Fate]] = []
        self._returned: Fate = "kept"
        self._ends_at_yield = False
        self._statements: dict[type[ast.stmt], Callable[[Any], None]] = {
            ast.FunctionDef: self._definition,
            ast.AsyncFunctionDef: self._definition,
            ast.ClassDef: self._class,
            ast.Return: self._return,
            ast.Assert: self._assert,
            ast.If: self._branches,
            ast.While: self._branches,
            ast.For: self._for,
            ast.AsyncFor: self._for,
            ast.With: self._with,
            ast.AsyncWith: self._with,
            ast.Try: self._try,
            ast.TryStar: self._try,
            ast.Match: self._match,
            ast.Assign: self._assignment,
        }
        self._readers: dict[type[ast.expr], Callable[[Any, Fate], None]] = {
            ast.Name: self._name,
            ast.Await: self._await,
            ast.Lambda: self._lambda,
            ast.Call: self._call,
            ast.IfExp: self._choice,
            ast.BoolOp: self._operands,
            ast.Starred: self._starred,
            ast.NamedExpr: self._named,
            **dict.fromkeys(COMPREHENSIONS, self._comprehension),
            **dict.fromkeys((ast.List, ast.Tuple, ast.Set), self._container),
        }
        try:
            self._follow_all()
        except RecursionError:
            self._certain.clear()  # nested deeper than can be followed

    def __contains__(self, node: ast.AST) -> bool:
        return node in self._certain

    def _follow_all(self) -> None:
        self._block(self._script.module.body)
        while self._todo:
            self._body(*self._todo.pop())

    # Statements.

    def _block(self, statements: Iterable[ast.stmt]) -> None:
        for statement in statements:
            self._certain.add(statement)
            read = self._statements.get(type(statement))
            if read is not None:
                read(statement)
            else:
                self._expressions(ast.iter_child_nodes(statement))
            if self._endings.is_end(statement) or (self._ends_at_yield and has_yield([statement])):
                return

    def _definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._expressions(node.decorator_list)
        self._expressions(defaults(node.args))

    def _class(self, node: ast.ClassDef) -> None:
        self._expressions([*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)])
        self._block(node.body)

    def _return(self, node: ast.Return) -> None:
        if node.value is not None:
            self._expression(node.value, self._returned)

    def _assert(self, node: ast.Assert) -> None:
        self._expression(node.test)  # and not the message, which a right script never comes to

    def _branches(self, node: ast.If | ast.While) -> None:
        self._expression(node.test)
        truth = self._values.truth(node.test)
        if truth is not False:
            self._block(node.body)
        if truth is not True:
            self._block(node.orelse)

    def _for(self, node: ast.For | ast.AsyncFor) -> None:
        self._expression(node.iter, "started" if self._endings.may_leave(node.body) else "iterated")
        self._expression(node.target)
        if self._values.length(node.iter) != 0:
            self._block(node.body)
        self._block(node.orelse)

    def _with(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            self._expression(item.context_expr)
        self._guarded(node, node.body)

    def _try(self, node: ast.Try | ast.TryStar) -> None:
        """What handles an error is not certain: a right script may well do without."""
        self._guarded(node, [*node.body, *node.orelse])
        self._block(node.finalbody)

    def _guarded(self, node: ast.Try | ast.TryStar | ast.With | ast.AsyncWith, body: list[ast.stmt]) -> None:
        if not self._handling.catches_any(node):
            self._block(body)
        elif not self._handling.catches(node):
            self._beginning(body[0], may_read=not self._handling.catches_absence(node))

    def _beginning(self, statement: ast.stmt, *, may_read: bool) -> None:
        """The call that a statement begins with: whatever comes later, an error before it may be caught."""
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            self._certain.add(statement)
        is_simple = isinstance(statement, (ast.Expr, ast.Assign, ast.AnnAssign, ast.Return))
        value = getattr(statement, "value", None) if is_simple else None
        call = value.value if isinstance(value, ast.Await) else value
        plain = (ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Load, ast.keyword, *([ast.Name] * may_read))
        if isinstance(call, ast.Call) and call.func in self._script.paths:
            parts = [part for each in (*call.args, *call.keywords) for part in ast.walk(each)]
            if all(isinstance(part, plain) for part in parts):
                self._certain |= {statement, call.func}
                self._certain |= {value, call} if isinstance(value, ast.Await) else set()

    def _match(self, node: ast.Match) -> None:
        self._expression(node.subject)
        for case in self._endings.possible_cases(node):
            if case.guard is not None:
                self._expression(case.guard)
            self._block(case.body)

    def _assignment(self, node: ast.Assign) -> None:
        self._expressions(node.targets)
        is_unpacked = any(isinstance(target, (ast.List, ast.Tuple)) for target in node.targets)
        self._expression(node.value, "started" if is_unpacked else "kept")

    # Expressions.

    def _expressions(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            if isinstance(node, ast.expr):
                self._expression(node)
            elif not isinstance(node, ast.stmt):
                self._expressions(ast.iter_child_nodes(node))

    def _expression(self, node: ast.expr, fate: Fate = "kept") -> None:
        # A library call that is not awaited is never sent.
        if fate != "kept" or not isinstance(node, (ast.Call, ast.Lambda)):
            self._certain.add(node)
        read = self._readers.get(type(node))
        if read is not None:
            read(node, fate)
        else:
            self._expressions(ast.iter_child_nodes(node))

    def _name(self, node: ast.Name, fate: Fate) -> None:
        if fate != "kept":
            bound, appends = self._held.made(node)
            if bound is not None:
                self._expression(bound, fate)
                for append in appends:
                    if append.func in self._certain:
                        self._expression(append.args[0], _of_parts(fate))

    def _await(self, node: ast.Await, fate: Fate) -> None:
        self._expression(node.value, "awaited")

    def _lambda(self, node: ast.Lambda, fate: Fate) -> None:
        self._expressions(defaults(node.args))

    def _container(self, node: ast.List | ast.Tuple | ast.Set, fate: Fate) -> None:
        for part in node.elts:
            self._expression(part, _of_parts(fate))

    def _starred(self, node: ast.Starred, fate: Fate) -> None:
        self._expression(node.value, "awaited" if fate == "awaited" else "iterated")

    def _named(self, node: ast.NamedExpr, fate: Fate) -> None:
        self._expression(node.value, fate)

    def _choice(self, node: ast.IfExp, fate: Fate) -> None:
        self._expression(node.test)
        truth = self._values.truth(node.test)
        if truth is not False:
            self._expression(node.body, fate)
        if truth is not True:
            self._expression(node.orelse, fate)

    def _operands(self, node: ast.BoolOp, fate: Fate) -> None:
        for operand in node.values:
            self._expression(operand, fate)
            truth = self._values.truth(operand)
            if truth is not None and truth == isinstance(node.op, ast.Or):
                return

    def _comprehension(self, node: Comprehension, fate: Fate) -> None:
        first, *others = node.generators
        if isinstance(node, ast.GeneratorExp) and fate == "kept":
            self._expression(first.iter)
            return
        self._expression(first.iter, "started" if fate == "started" else "iterated")
        conditions = [condition for generator in node.generators for condition in generator.ifs]
        is_empty = any(self._values.length(generator.iter) == 0 for generator in node.generators)
        if is_empty or any(self._values.truth(condition) is False for condition in conditions):
            return
        for generator in others:
            self._expression(generator.iter, "iterated")
        self._expressions(conditions)
        elements = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
        for element in elements:
            self._expression(element, _of_parts(fate))

    def _call(self, node: ast.Call, fate: Fate) -> None:
        inner = self._fate_of_arguments(node, fate)
        for argument in node.args:
            self._expression(argument, inner)
        for keyword in node.keywords:
            self._expression(keyword.value)
        self._expression(node.func)
        self._enter(node.func, fate)
        is_map = self._script.paths.get(node.func) == _MAP and len(node.args) > 1
        if is_map and fate != "kept" and self._values.length(node.args[1]) != 0:
            self._enter(node.args[0], _of_parts(fate))

    def _fate_of_arguments(self, node: ast.Call, fate: Fate) -> Fate:
        path = self._script.paths.get(node.func, ())
        if path == _RUN or self._handling.is_task_of_group(node):
            return "awaited"
        if path in _PASS_ON:
            return "awaited" if fate == "awaited" and not gives_errors(node) else "kept"
        return _CONSUMING.get(path, "kept") if len(node.args) == 1 else "kept"

    # The script's own functions.

    def _enter(self, called: ast.expr, fate: Fate) -> None:
        """Follow what a call runs; `fate` is that of what it returns."""
        function = self._functions.of(called)
        if function is not None and _runs(function, fate) and (function, fate) not in self._followed:
            self._followed.add((function, fate))
            self._todo.append((function, fate))

    def _body(self, function: Function, fate: Fate) -> None:
        if isinstance(function, ast.Lambda):
            self._expression(function.body, fate)
            return
        is_plain = isinstance(function, ast.FunctionDef) and not is_generator(function)
        self._returned = fate if is_plain else "kept"
        self._ends_at_yield = fate == "started"
        self._block(function.body)


def _runs(function: Function, fate: Fate) -> bool:
    """Whether a call runs the body, if that is the fate of what it returns."""
    if isinstance(function, ast.Lambda):
        return True
    if is_generator(function):
        return fate in ("started", "iterated")
    return fate == "awaited" or isinstance(function, ast.FunctionDef)


def _of_parts(fate: Fate) -> Fate:
    return "awaited" if fate == "awaited" else "kept"
