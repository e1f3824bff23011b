"""Which parts of a script fail it for certain if they fail: nothing around them catches, and they are reached.

What is found elsewhere is told and refuses nothing: a wrong call in a branch that is never taken, in a function
that is never called, or under a `try` that expects it, may be in a script that runs as it should.
"""

import ast
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, TypeAlias

from portal.check.endings import Endings
from portal.check.error_handling import ErrorHandling, gives_errors
from portal.check.known_values import KnownValues
from portal.check.script_tree import ScriptTree, is_generator
from sandbox_runtime.guest.scopes import COMPREHENSIONS, FUNCTIONS, Comprehension, Function

Fate: TypeAlias = Literal["kept", "iterated", "awaited"]
"""What becomes of an expression's value where it stands, for certain."""

_AWAITING: Final = frozenset({("asyncio", "gather"), ("asyncio", "wait_for"), ("asyncio", "shield")})
_RUN: Final = ("asyncio", "run")
_CONSUMING: Final = frozenset(
    {
        ("builtins", name)
        for name in ("all", "any", "dict", "list", "max", "min", "set", "sorted", "sum", "tuple")
    }
)
# Decorators behind which a function does what it says.
_PLAIN_DECORATORS: Final = frozenset(
    {
        *(("builtins", name) for name in ("classmethod", "property", "staticmethod")),
        *(("functools", name) for name in ("cache", "cached_property", "lru_cache", "wraps")),
    }
)


class Certainty:
    """The certain nodes of one script, for errors of one kind.

    A script that can catch such an error, somewhere, is followed strictly: into a function only where it is called,
    into a coroutine only where that is awaited, for both may be handed to what catches. In others whatever is
    mentioned is taken to run.
    """

    def __init__(self, script: ScriptTree, values: KnownValues, handling: ErrorHandling) -> None:
        self._script = script
        self._values = values
        self._handling = handling
        self._endings = Endings(script, values)
        self._is_strict = handling.is_possible
        self._certain: set[ast.AST] = set()
        self._entered: set[tuple[str, Fate]] = set()
        self._followed: set[Function] = set()
        self._todo: list[Function] = []
        self._statements: dict[type[ast.stmt], Callable[[Any], None]] = {
            ast.FunctionDef: self._definition,
            ast.AsyncFunctionDef: self._definition,
            ast.ClassDef: self._class,
            ast.If: self._if,
            ast.While: self._while,
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
            ast.Await: self._await,
            ast.Lambda: self._lambda,
            ast.Call: self._call,
            ast.IfExp: self._choice,
            ast.BoolOp: self._operands,
            **dict.fromkeys(COMPREHENSIONS, self._comprehension),
            **dict.fromkeys((ast.List, ast.Tuple, ast.Set), self._container),
            ast.Dict: self._table,
            **dict.fromkeys((ast.Starred, ast.NamedExpr), self._wrapped),
        }
        try:
            self._block(script.module.body)
            while self._todo:
                self._body(self._todo.pop())
        except RecursionError:
            self._certain.clear()  # nested deeper than can be followed

    def __contains__(self, node: ast.AST) -> bool:
        return node in self._certain

    # Statements.

    def _block(self, statements: Iterable[ast.stmt]) -> None:
        for statement in statements:
            self._certain.add(statement)
            read = self._statements.get(type(statement))
            if read is not None:
                read(statement)
            else:
                self._expressions(ast.iter_child_nodes(statement))
            if self._endings.is_end(statement):
                return

    def _definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._expressions(node.decorator_list)
        self._expressions([*node.args.defaults, *(default for default in node.args.kw_defaults if default)])
        if node.decorator_list and not self._is_strict:
            self._follow([node])  # whatever a decorator does with it

    def _class(self, node: ast.ClassDef) -> None:
        self._expressions([*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)])
        self._block(node.body)
        if not self._is_strict:
            special = (part for part in node.body if isinstance(part, FUNCTIONS) and _is_special(part))
            self._follow(special)

    def _if(self, node: ast.If) -> None:
        self._expression(node.test)
        self._branches(self._values.truth(node.test), node.body, node.orelse)

    def _while(self, node: ast.While) -> None:
        self._expression(node.test)
        truth = self._values.truth(node.test)
        self._branches(None if truth else truth, node.body, node.orelse)

    def _branches(self, truth: bool | None, body: list[ast.stmt], orelse: list[ast.stmt]) -> None:
        if truth is not False:
            self._block(body)
        if truth is not True:
            self._block(orelse)

    def _for(self, node: ast.For | ast.AsyncFor) -> None:
        self._expression(node.iter, "iterated")
        self._expression(node.target)
        if not self._values.is_empty(node.iter):
            self._block(node.body)
        self._block(node.orelse)

    def _with(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            self._expression(item.context_expr)
        if not self._handling.catches(node):
            self._block(node.body)

    def _try(self, node: ast.Try | ast.TryStar) -> None:
        if not self._handling.catches(node):
            self._block([*node.body, *node.orelse])
        for handler in node.handlers:
            self._block(handler.body)
        self._block(node.finalbody)

    def _match(self, node: ast.Match) -> None:
        self._expression(node.subject)
        for case in self._endings.possible_cases(node):
            if case.guard is not None:
                self._expression(case.guard)
            self._block(case.body)

    def _assignment(self, node: ast.Assign) -> None:
        self._expressions(node.targets)
        # A lambda with a name is entered where that is mentioned.
        if not isinstance(node.value, ast.Lambda):
            self._expression(node.value)

    # Expressions.

    def _expressions(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            if isinstance(node, ast.expr):
                self._expression(node)
            elif not isinstance(node, ast.stmt):
                self._expressions(ast.iter_child_nodes(node))

    def _expression(self, node: ast.expr, fate: Fate = "kept") -> None:
        if not isinstance(node, (ast.Call, ast.Lambda)) or fate == "awaited" or not self._is_strict:
            self._certain.add(node)
        read = self._readers.get(type(node))
        if read is not None:
            read(node, fate)
        else:
            self._mention(node)
            self._expressions(ast.iter_child_nodes(node))

    def _await(self, node: ast.Await, fate: Fate) -> None:
        self._expression(node.value, "awaited")

    def _lambda(self, node: ast.Lambda, fate: Fate) -> None:
        if not self._is_strict:
            self._expression(node.body)

    def _container(self, node: ast.List | ast.Tuple | ast.Set, fate: Fate) -> None:
        for part in node.elts:
            self._expression(part, _of_parts(fate))

    def _table(self, node: ast.Dict, fate: Fate) -> None:
        """The functions in it may be there to be chosen from; whether each one is called, nobody knows."""
        self._expressions(key for key in node.keys if key is not None)
        self._expressions(
            value
            for value in node.values
            if not isinstance(value, ast.Lambda) and _name(value) not in self._script.functions
        )

    def _wrapped(self, node: ast.Starred | ast.NamedExpr, fate: Fate) -> None:
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
        self._expression(first.iter, "iterated")
        if isinstance(node, ast.GeneratorExp) and self._is_strict and fate == "kept":
            return
        for generator in others:
            self._expression(generator.iter, "iterated")
        conditions = [condition for generator in node.generators for condition in generator.ifs]
        self._expressions(conditions)
        if any(self._values.truth(condition) is False for condition in conditions):
            return
        if any(self._values.is_empty(generator.iter) for generator in node.generators):
            return
        elements = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
        for element in elements:
            self._expression(element, _of_parts(fate))

    def _call(self, node: ast.Call, fate: Fate) -> None:
        inner = self._fate_of_arguments(node, fate)
        for argument in node.args:
            self._expression(argument, inner)
        for keyword in node.keywords:
            self._expression(keyword.value)
        name = _name(node.func)
        if name in self._script.functions:
            self._certain.add(node.func)
            self._enter(name, fate)
            self._expressions(ast.iter_child_nodes(node.func))
        else:
            self._expression(node.func)

    def _fate_of_arguments(self, node: ast.Call, fate: Fate) -> Fate:
        path = self._script.paths.get(node.func)
        if path in _CONSUMING:
            return "iterated"
        if path == _RUN:
            return "awaited"
        if path in _AWAITING:
            return "kept" if gives_errors(node) else fate
        is_task = path is None and isinstance(node.func, ast.Attribute) and node.func.attr == "create_task"
        return "awaited" if is_task and self._handling.tasks_are_grouped else "kept"

    # The script's own functions.

    def _mention(self, node: ast.expr) -> None:
        """A function that is mentioned and not called here: whoever gets it may call it where errors are caught."""
        is_read = isinstance(getattr(node, "ctx", None), ast.Load | None)
        if not self._is_strict and is_read:
            name = node.value if isinstance(node, ast.Constant) else _name(node)
            if isinstance(name, str):
                self._enter(name, "kept")

    def _enter(self, name: str, fate: Fate) -> None:
        """Follow what a call of that name runs."""
        if (name, fate) not in self._entered:
            self._entered.add((name, fate))
            self._follow(each for each in self._script.functions.get(name, ()) if self._runs(each, fate))

    def _follow(self, functions: Iterable[Function]) -> None:
        for function in functions:
            if function not in self._followed:
                self._followed.add(function)
                self._todo.append(function)

    def _runs(self, function: Function, fate: Fate) -> bool:
        """Whether calling it runs its body, under no other control than the caller's."""
        if not self._is_strict or isinstance(function, ast.Lambda):
            return True
        decorators = (getattr(each, "func", each) for each in function.decorator_list)
        if any(self._script.paths.get(each) not in _PLAIN_DECORATORS for each in decorators):
            return False
        if is_generator(function):
            return fate == "iterated"
        return fate == "awaited" or isinstance(function, ast.FunctionDef)

    def _body(self, function: Function) -> None:
        if isinstance(function, ast.Lambda):
            self._expression(function.body)
        else:
            self._block(function.body)


def _of_parts(fate: Fate) -> Fate:
    return "awaited" if fate == "awaited" else "kept"


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def _is_special(function: Function) -> bool:
    return not isinstance(function, ast.Lambda) and function.name.startswith("__")
