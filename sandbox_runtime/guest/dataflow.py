"""Follows the values of library calls through a script, to see which of them may still be awaited."""

import ast
from collections.abc import Callable, Iterable
from typing import Any

from sandbox_runtime.guest.expression_flow import ExpressionFlow, LibraryCall
from sandbox_runtime.guest.flow_graph import element
from sandbox_runtime.guest.library_names import LibraryNames
from sandbox_runtime.guest.own_functions import OwnFunctions
from sandbox_runtime.guest.scopes import Scopes


class DataFlow(ExpressionFlow):
    """Reads a whole script once and knows then which of its library calls nothing will ever await."""

    def __init__(self, tree: ast.Module, scopes: Scopes, names: LibraryNames) -> None:
        super().__init__(scopes, OwnFunctions.read(scopes, names.paths))
        self._function: ast.AST | None = None
        self._runs = self._statements()
        self._block(tree.body)

    def forgotten(self) -> list[LibraryCall]:
        """The calls whose coroutine cannot reach an `await`, in the order of the text."""
        on_variables, on_attributes = self._reflects
        if on_variables:
            self._graph.await_variables()
        if on_attributes:
            self._graph.await_attributes()
        awaited = self._graph.awaited()
        calls = [call for call, node in self._found if node not in awaited]
        return sorted(calls, key=lambda call: (call.node.lineno, call.node.col_offset))

    def _statements(self) -> dict[type[ast.stmt], Callable[[Any], None]]:
        return {
            ast.Assign: self._assignment,
            ast.AnnAssign: self._annotated,
            ast.AugAssign: self._augmented,
            ast.FunctionDef: self._definition,
            ast.AsyncFunctionDef: self._definition,
            ast.ClassDef: self._class,
            ast.Return: self._return,
            ast.If: self._if,
            ast.For: self._for,
            ast.AsyncFor: self._for,
            ast.While: self._while,
            ast.With: self._with,
            ast.AsyncWith: self._with,
            ast.Try: self._try,
            ast.TryStar: self._try,
            ast.Match: self._match,
        }

    def _block(self, statements: Iterable[ast.stmt]) -> None:
        for statement in statements:
            run = self._runs.get(type(statement))
            if run is not None:
                run(statement)
            elif type(statement).__name__ != "TypeAlias":
                self._parts(statement)

    def _assignment(self, node: ast.Assign) -> None:
        target, value = node.targets[0], node.value
        if len(node.targets) == 1 and isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            stars = any(isinstance(part, ast.Starred) for part in (*target.elts, *value.elts))
            if len(target.elts) == len(value.elts) and not stars:
                for part, given in zip(target.elts, value.elts, strict=True):
                    self._assign(part, self._value(given))
                return
        given_value = self._value(value)
        for target in node.targets:
            self._assign(target, given_value)

    def _annotated(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._assign(node.target, self._value(node.value))

    def _augmented(self, node: ast.AugAssign) -> None:
        value = self._value(node.value)
        self._overloaded(value)
        self._assign(node.target, value._replace(itself=value.contents))

    def _definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for decorator in node.decorator_list:
            self._value(decorator)
        self._defaults(node)
        if self._own.is_decorated(node) or self._scope.kind == "class":
            self._graph.give_away(node)
        is_async = isinstance(node, ast.AsyncFunctionDef)
        function, self._function = self._function, node
        with self._inside(self._scopes.of[node], None if is_async else f"the plain `def {node.name}`"):
            self._block(node.body)
        self._function = function

    def _class(self, node: ast.ClassDef) -> None:
        for decorator in node.decorator_list:
            self._value(decorator)
        is_generic = bool(getattr(node, "type_params", ()))
        with self._inside(self._scope, "a generic class" if is_generic else self._barrier):
            for part in (*node.bases, *(keyword.value for keyword in node.keywords)):
                self._value(part)
        with self._inside(self._scopes.of[node], "a class body"):
            self._block(node.body)

    def _return(self, node: ast.Return) -> None:
        if node.value is None:
            return
        value = self._value(node.value)
        if self._function is not None:
            self._graph.assign(value, self._graph.returned(self._function))

    def _if(self, node: ast.If) -> None:
        while True:
            self._value(node.test)
            self._block(node.body)
            if len(node.orelse) != 1 or not isinstance(node.orelse[0], ast.If):
                return self._block(node.orelse)
            node = node.orelse[0]  # an `elif`, of which there may be hundreds

    def _while(self, node: ast.While) -> None:
        self._value(node.test)
        self._block(node.body)
        self._block(node.orelse)

    def _for(self, node: ast.For | ast.AsyncFor) -> None:
        self._iterate(node.target, self._value(node.iter), is_async=isinstance(node, ast.AsyncFor))
        self._block(node.body)
        self._block(node.orelse)

    def _with(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            value = self._value(item.context_expr)
            if isinstance(node, ast.AsyncWith):
                self._graph.await_all(value)
                value = self._graph.unknown(is_awaited=True)
            if item.optional_vars is not None:
                self._assign(item.optional_vars, value)
                self._assign(item.optional_vars, element(value))
        self._block(node.body)

    def _try(self, node: ast.Try) -> None:
        self._block(node.body)
        for handler in node.handlers:
            if handler.type is not None:
                self._value(handler.type)
            self._block(handler.body)
        self._block(node.orelse)
        self._block(node.finalbody)

    def _match(self, node: ast.Match) -> None:
        subject = self._value(node.subject)
        for case in node.cases:
            for part in ast.walk(case.pattern):
                captured = part.rest if isinstance(part, ast.MatchMapping) else getattr(part, "name", None)
                if isinstance(captured, str):
                    place = self._graph.variable(self._scope.owner(captured), captured)
                    self._graph.assign(subject, place)
                    self._graph.assign(element(subject), place)
            if case.guard is not None:
                self._value(case.guard)
            self._block(case.body)
