"""What a call does with the values it is given, and what it returns."""

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from sandbox_runtime.guest import data_functions
from sandbox_runtime.guest.flow_graph import AWAITED, NOTHING, FlowGraph, Value, element
from sandbox_runtime.guest.library_names import Path
from sandbox_runtime.guest.own_functions import OwnFunctions
from sandbox_runtime.guest.scopes import Function, Scope, Scopes, parameters


@dataclass
class Arguments:
    """The values a call is given; `spread` is what lies in its `*` and `**` arguments."""

    positional: list[Value] = field(default_factory=list)
    named: dict[str, Value] = field(default_factory=dict)
    spread: list[Value] = field(default_factory=list)

    def all(self) -> list[Value]:
        return [*self.positional, *self.named.values(), *self.spread]


class CallFlow:
    """Lets values flow through calls; `value` says what an argument's expression gives."""

    def __init__(
        self, graph: FlowGraph, scopes: Scopes, own: OwnFunctions, value: Callable[[ast.expr], Value]
    ) -> None:
        self._graph = graph
        self._scopes = scopes
        self._own = own
        self._value = value

    def call(self, node: ast.Call, scope: Scope) -> Value:
        """What the call gives, while its arguments flow to where it takes them."""
        path = self._own.paths.get(node.func)
        called = self._own.called_by(node.func, scope)
        if called:
            return self._merged(self._own_call(callee, self._arguments(node)) for callee in called)
        if data_functions.only_reads(path):
            return self._reading_call(node, path, scope)
        if isinstance(node.func, ast.Attribute) and path is None:
            return self._method_call(node, node.func, scope)
        if not isinstance(node.func, ast.Name):
            self._value(node.func)
        is_awaited = path == ("asyncio", "run")
        return self._unknown_call(self._arguments(node), is_awaited=is_awaited)

    def awaited(self, node: ast.Call, scope: Scope) -> Value | None:
        """What awaiting the call gives, if all that it may call are the script's own async functions."""
        called = self._own.called_by(node.func, scope)
        functions = [callee for callee in called if isinstance(callee, ast.AsyncFunctionDef)]
        if not called or len(functions) < len(called):
            return None
        arguments = self._arguments(node)
        for function in functions:
            self._bind(function, arguments)
        return self._merged(self._graph.returned(function) for function in functions)

    def read_arguments(self, node: ast.Call) -> None:
        """Let a function of the library have the arguments, which it only reads."""
        self._arguments(node)

    def _arguments(self, node: ast.Call) -> Arguments:
        arguments = Arguments()
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                arguments.spread.append(element(self._value(argument.value)))
            else:
                arguments.positional.append(self._value(argument))
        for keyword in node.keywords:
            if keyword.arg is None:
                arguments.spread.append(element(self._value(keyword.value)))
            else:
                arguments.named[keyword.arg] = self._value(keyword.value)
        return arguments

    def _merged(self, values: Iterable[Value]) -> Value:
        merged = self._graph.fresh()
        for value in values:
            self._graph.assign(value, merged)
        return merged

    def _unknown_call(self, arguments: Arguments, *, is_awaited: bool = False) -> Value:
        for value in arguments.all():
            self._graph.await_all(value)
        return self._graph.unknown(is_awaited=is_awaited)

    # The script's own functions and classes.

    def _own_call(self, callee: Function | ast.ClassDef, arguments: Arguments) -> Value:
        if isinstance(callee, ast.ClassDef):
            return self._instance(callee, arguments)
        self._bind(callee, arguments)
        if isinstance(callee, ast.AsyncFunctionDef):
            self._graph.give_away(callee)  # to whoever awaits the coroutine
            return Value(NOTHING, self._graph.node())
        return self._graph.returned(callee)

    def _bind(self, function: Function, arguments: Arguments, skipped: int = 0) -> None:
        """Assign arguments to parameters; the first `skipped` parameters are bound already."""
        graph, given = self._graph, function.args
        scope = self._scopes.of[function]
        places = [graph.variable(scope, parameter.arg) for parameter in (*given.posonlyargs, *given.args)]
        named = {parameter.arg: graph.variable(scope, parameter.arg) for parameter in parameters(function)}
        rest = [named.pop(parameter.arg) for parameter in (given.vararg, given.kwarg) if parameter]
        for index, value in enumerate(arguments.positional, skipped):
            self._pass(value, places[index] if index < len(places) else None, rest)
        for name, value in arguments.named.items():
            self._pass(value, named.get(name), rest)
        for value in arguments.spread:
            for place in named.values():
                graph.assign(value, place)
            self._pass(value, None, rest)

    def _pass(self, value: Value, place: Value | None, rest: list[Value]) -> None:
        """Give a parameter its value, or `*args` and `**kwargs` if no parameter takes it."""
        if place is not None:
            self._graph.assign(value, place)
        else:
            for container in rest:
                self._graph.put(value, container)

    def _instance(self, definition: ast.ClassDef, arguments: Arguments) -> Value:
        """A new object of a class: its `__init__` takes the arguments, or its fields do."""
        instance = Value(NOTHING, self._graph.node())
        names = self._scopes.of[definition].bindings
        makers = self._own.methods.get("__init__", [])
        makers = [method for method in makers if method in definition.body] or makers
        for method in makers:
            self._bind(method, arguments, skipped=1)
        if not makers and (definition.bases or not names):
            self._unknown_call(arguments)
        for value in arguments.all():
            self._graph.put(value, instance)
            for name in names:
                self._graph.assign(value, self._graph.attribute(name))
        return instance

    # Python's own functions.

    def _reading_call(self, node: ast.Call, path: Path | None, scope: Scope) -> Value:
        arguments = self._arguments(node)
        result = self._graph.fresh()
        self._graph.flow(result.contents, result.itself)
        for value in arguments.all():
            self._graph.link(value.contents, result.contents)
        for value in arguments.named.values():
            self._graph.flow(value.itself, result.contents)  # dict(a=value)
        for value in (*arguments.positional[1:], *arguments.spread):
            self._graph.flow(value.itself, result.itself)  # next(values, default)
        applied = [keyword.value for keyword in node.keywords if keyword.arg == "key"]
        if path in data_functions.CALLERS:
            applied += node.args[:1]
        for function in applied:
            self._apply(function, arguments, result, scope)
        return result

    def _apply(self, function: ast.expr, arguments: Arguments, result: Value, scope: Scope) -> None:
        """Call a function with what lies in the arguments, as `map` does."""
        given = Arguments(spread=[element(value) for value in arguments.all()])
        called = self._own.called_by(function, scope)
        for callee in called:
            self._graph.put(self._own_call(callee, given), result)
        known = isinstance(function, ast.Constant) or data_functions.only_reads(self._own.paths.get(function))
        if not called and not known:
            for value in given.spread:
                self._graph.await_all(value)

    # Methods of whatever object.

    def _method_call(self, node: ast.Call, method: ast.Attribute, scope: Scope) -> Value:
        graph = self._graph
        owner = self._value(method.value)
        arguments = self._arguments(node)
        results = [self._own_method_call(own, arguments) for own in self._own.methods.get(method.attr, ())]
        result = graph.fresh()
        graph.flow(owner.contents, result.itself)
        graph.link(owner.contents, result.contents)
        if method.attr in data_functions.OF_COROUTINES:
            graph.flow(owner.itself, AWAITED)
        is_unclear = self._is_from_earlier(method.value, scope) and method.attr in data_functions.UNCLEAR
        if method.attr in data_functions.WRITERS and not is_unclear:
            for value in arguments.all():
                graph.put(value, owner)
        elif method.attr in data_functions.READERS:
            for value in arguments.all():
                graph.link(value.contents, owner.contents)
                graph.flow(value.itself, result.itself)  # values.get(key, default)
        elif not results:
            graph.flow(owner.contents, AWAITED)
            gives = method.attr in data_functions.GIVE_AWAITED
            results.append(self._unknown_call(arguments, is_awaited=gives))
        return self._merged([result, *results])

    def _is_from_earlier(self, node: ast.expr, scope: Scope) -> bool:
        """True for a variable of an earlier run of the session, of which nothing is known."""
        return isinstance(node, ast.Name) and node not in self._own.paths and scope.owner(node.id) is None

    def _own_method_call(self, method: Function, arguments: Arguments) -> Value:
        if self._own.is_decorated(method):
            return self._unknown_call(arguments)
        self._bind(method, arguments)  # as a static method, or called on its class
        self._bind(method, arguments, skipped=1)
        return self._own_call(method, Arguments())
