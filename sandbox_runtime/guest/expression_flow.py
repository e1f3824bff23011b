"""What each expression of a script gives, and which places its parts flow to on the way."""

import ast
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sandbox_runtime.guest import data_functions
from sandbox_runtime.guest.call_flow import CallFlow
from sandbox_runtime.guest.flow_graph import AWAITED, DATA, NOTHING, FlowGraph, Value, element
from sandbox_runtime.guest.library_names import is_library_function
from sandbox_runtime.guest.own_functions import OwnFunctions
from sandbox_runtime.guest.scopes import COMPREHENSIONS, FUNCTIONS, Comprehension, Function, Scope, Scopes

_EXACT_IN_F_STRINGS = sys.version_info >= (3, 12)  # before, what stands in an f-string has no true position


@dataclass(frozen=True)
class LibraryCall:
    """A call of a library function; `barrier` names what keeps an `await` from standing there, if anything."""

    node: ast.Call
    function: str
    barrier: str | None


class ExpressionFlow:
    """Reads expressions. It knows the scope it is in, and whether an `await` may stand there."""

    def __init__(self, scopes: Scopes, own: OwnFunctions) -> None:
        self._graph = FlowGraph()
        self._scopes = scopes
        self._own = own
        self._calls = CallFlow(self._graph, scopes, own, self._value)
        self._overloads = own.overload_operators
        self._scope = scopes.module
        self._barrier: str | None = None
        self._found: list[tuple[LibraryCall, int]] = []
        self._reflects = (False, False)
        self._readers = self._expressions()

    def _expressions(self) -> dict[type[ast.AST], Callable[[Any], Value]]:
        displays = dict.fromkeys((ast.List, ast.Tuple, ast.Set, ast.Dict), self._display)
        comprehensions = dict.fromkeys(COMPREHENSIONS, self._comprehension)
        return {
            ast.Constant: lambda node: DATA,
            ast.Name: self._name,
            ast.Attribute: self._attribute,
            ast.Subscript: self._subscript,
            ast.Call: self._call,
            ast.Await: self._await,
            ast.Yield: self._yield,
            ast.YieldFrom: self._yield,
            ast.BinOp: self._operator,
            ast.BoolOp: self._choice,
            ast.IfExp: self._choice,
            ast.NamedExpr: self._walrus,
            ast.Lambda: self._lambda,
            ast.Starred: lambda node: self._value(node.value),
            ast.JoinedStr: self._f_string,
            **displays,
            **comprehensions,
        }

    def _value(self, node: ast.expr) -> Value:
        read = self._readers.get(type(node))
        return read(node) if read is not None else self._parts(node)

    def _parts(self, node: ast.AST) -> Value:
        """Read what lies in a node that only reads it, or keeps it, as a t-string does."""
        whole = self._graph.fresh()
        for part in ast.iter_child_nodes(node):
            if isinstance(part, ast.expr):
                value = self._value(part)
                self._graph.put(value, whole)
                self._overloaded(value)
        return whole

    def _overloaded(self, value: Value) -> None:
        """An operator of the script's own may do anything with its operands."""
        if self._overloads:
            self._graph.await_all(value)

    @contextmanager
    def _inside(self, scope: Scope, barrier: str | None) -> Iterator[None]:
        before = self._scope, self._barrier
        self._scope, self._barrier = scope, barrier
        try:
            yield
        finally:
            self._scope, self._barrier = before

    def _name(self, node: ast.Name) -> Value:
        path = self._own.paths.get(node)
        if path is not None:
            on_variables, on_attributes = self._reflects
            self._reflects = (
                on_variables or path in data_functions.REFLECTS_ON_VARIABLES,
                on_attributes or path in data_functions.REFLECTS_ON_ATTRIBUTES,
            )
            return DATA
        for called in self._own.called_by(node, self._scope):
            if isinstance(called, FUNCTIONS):
                self._graph.give_away(called)  # to whoever calls it by another name
        return self._graph.variable(self._scope.owner(node.id), node.id)

    def _attribute(self, node: ast.Attribute) -> Value:
        if node in self._own.paths:
            return DATA
        owner = self._value(node.value)
        result = self._graph.fresh()
        self._graph.flow(owner.contents, result.itself)
        self._graph.link(owner.contents, result.contents)
        if node.attr in self._own.attributes:
            held = self._graph.attribute(node.attr)
            self._graph.flow(held.itself, result.itself)
            self._graph.link(held.contents, result.contents)
        for method in self._own.methods.get(node.attr, ()):
            self._graph.assign(self._graph.returned(method), result)  # a property
            self._graph.give_away(method)
        if node.attr in data_functions.OF_COROUTINES:
            self._graph.flow(owner.itself, AWAITED)
        return result

    def _subscript(self, node: ast.Subscript) -> Value:
        owner = self._value(node.value)
        self._overloaded(owner)
        self._overloaded(self._value(node.slice))
        return element(owner)

    def _call(self, node: ast.Call) -> Value:
        if isinstance(node.func, ast.Name):
            self._name_of_callee(node.func)
        path = self._own.paths.get(node.func)
        if path is None or not is_library_function(path):
            return self._calls.call(node, self._scope)
        self._calls.read_arguments(node)
        value = Value(self._graph.node(), NOTHING)
        self._found.append((LibraryCall(node, ".".join(path[1:]), self._barrier), value.itself))
        return value

    def _name_of_callee(self, node: ast.Name) -> None:
        if node in self._own.paths:
            self._name(node)

    def _await(self, node: ast.Await) -> Value:
        operand = node.value
        if isinstance(operand, ast.Call):
            result = self._calls.awaited(operand, self._scope)
            if result is not None:
                return result
        self._graph.await_all(self._value(operand))
        if isinstance(operand, ast.Call) and is_library_function(self._own.paths.get(operand.func)):
            return self._graph.fresh()
        return self._graph.unknown(is_awaited=True)

    def _yield(self, node: ast.Yield | ast.YieldFrom) -> Value:
        if node.value is not None:
            self._graph.await_all(self._value(node.value))
        return self._graph.unknown(is_awaited=True)

    def _operator(self, node: ast.BinOp) -> Value:
        whole = self._graph.fresh()
        self._graph.flow(whole.contents, whole.itself)
        left: ast.expr = node
        while isinstance(left, ast.BinOp):  # a sum of hundreds leans to the left
            self._operand(left.right, whole)
            left = left.left
        self._operand(left, whole)
        return whole

    def _operand(self, node: ast.expr, whole: Value) -> None:
        value = self._value(node)
        self._overloaded(value)
        self._graph.link(value.contents, whole.contents)

    def _choice(self, node: ast.BoolOp | ast.IfExp) -> Value:
        if isinstance(node, ast.IfExp):
            self._value(node.test)
        either = self._graph.fresh()
        for part in node.values if isinstance(node, ast.BoolOp) else (node.body, node.orelse):
            self._graph.assign(self._value(part), either)
        return either

    def _walrus(self, node: ast.NamedExpr) -> Value:
        value = self._value(node.value)
        self._assign(node.target, value)
        return value

    def _display(self, node: ast.List | ast.Tuple | ast.Set | ast.Dict) -> Value:
        whole = Value(NOTHING, self._graph.node())
        keys = node.keys if isinstance(node, ast.Dict) else ()
        for key in keys:
            if key is not None:
                self._graph.put(self._value(key), whole)
        for part in node.values if isinstance(node, ast.Dict) else node.elts:
            self._graph.put(self._value(part), whole)
        return whole

    def _comprehension(self, node: Comprehension) -> Value:
        whole = Value(NOTHING, self._graph.node())
        barrier = self._barrier
        if isinstance(node, ast.GeneratorExp):
            barrier = barrier or "a generator expression"
        first = node.generators[0]
        source = self._value(first.iter)
        with self._inside(self._scopes.of[node], barrier):
            for generator in node.generators:
                iterated = source if generator is first else self._value(generator.iter)
                self._iterate(generator.target, iterated, is_async=bool(generator.is_async))
                for condition in generator.ifs:
                    self._value(condition)
            parts = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
            for part in parts:
                self._graph.put(self._value(part), whole)
        return whole

    def _iterate(self, target: ast.expr, iterated: Value, *, is_async: bool) -> None:
        if is_async:
            self._graph.await_all(iterated)
            self._assign(target, self._graph.unknown(is_awaited=True))
        self._assign(target, element(iterated))

    def _lambda(self, node: ast.Lambda) -> Value:
        self._defaults(node)
        with self._inside(self._scopes.of[node], "a lambda"):
            value = self._value(node.body)
        self._graph.assign(value, self._graph.returned(node))
        self._graph.give_away(node)
        return DATA

    def _defaults(self, node: Function) -> None:
        scope = self._scopes.of[node]
        arguments = node.args
        by_position = [*arguments.posonlyargs, *arguments.args]
        by_position = by_position[len(by_position) - len(arguments.defaults) :]
        named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        for parameter, default in (*zip(by_position, arguments.defaults, strict=True), *named):
            if default is not None:
                self._graph.assign(self._value(default), self._graph.variable(scope, parameter.arg))

    def _f_string(self, node: ast.JoinedStr) -> Value:
        barrier = self._barrier
        if not _EXACT_IN_F_STRINGS:
            barrier = barrier or "an f-string"
        with self._inside(self._scope, barrier):
            self._parts(node)
        return DATA

    def _assign(self, target: ast.expr, value: Value) -> None:
        """Let a value flow into what stands on the left of an assignment."""
        graph = self._graph
        if isinstance(target, ast.Name):
            graph.assign(value, graph.variable(self._scope.owner(target.id), target.id))
        elif isinstance(target, (ast.Tuple, ast.List)):
            for part in target.elts:
                self._assign(part, element(value))
        elif isinstance(target, ast.Starred):
            self._assign(target.value, Value(value.contents, value.contents))
        elif isinstance(target, ast.Attribute):
            graph.put(value, self._value(target.value))
            graph.assign(value, graph.attribute(target.attr))
        elif isinstance(target, ast.Subscript):
            self._overloaded(value)
            self._value(target.slice)
            graph.put(value, self._value(target.value))
