"""Where a value of a script may end up: a graph of places that values flow between.

The graph knows no order of statements and one place per variable. It only ever errs on one side: a value that
can reach a place in some run reaches it in the graph.
"""

import ast
from typing import NamedTuple, TypeVar

from sandbox_runtime.guest.scopes import Scope

Key = TypeVar("Key")


class Value(NamedTuple):
    """What an expression gives: the node of the value itself, and the node of all that lies inside of it."""

    itself: int
    contents: int


NOTHING = 0  # the node of values that no coroutine can be
AWAITED = 1  # the node of all that may be awaited, or is handed to code that may await it
_RETURNED = 2  # the node of what plain functions return to callers that cannot be seen
_AWAIT_GIVES = 3  # the node of what async functions return to whoever awaits them out of sight
DATA = Value(NOTHING, NOTHING)


class FlowGraph:
    """Nodes are numbers; `flow` says that what is in one may be in another."""

    def __init__(self) -> None:
        self._sources: list[list[int]] = [[], [], [], []]
        self._variables: dict[tuple[Scope | None, str], Value] = {}
        self._attributes: dict[str, Value] = {}
        self._returned: dict[ast.AST, Value] = {}

    def node(self) -> int:
        self._sources.append([])
        return len(self._sources) - 1

    def fresh(self) -> Value:
        return Value(self.node(), self.node())

    def flow(self, source: int, target: int) -> None:
        if source != NOTHING and target != NOTHING:
            self._sources[target].append(source)

    def link(self, one: int, other: int) -> None:
        """Let both hold the same: two names for one container see what is put into either."""
        self.flow(one, other)
        self.flow(other, one)

    def assign(self, value: Value, place: Value) -> None:
        self.flow(value.itself, place.itself)
        self.link(value.contents, place.contents)

    def put(self, value: Value, container: Value) -> None:
        """Put a value into a container."""
        self.flow(value.itself, container.contents)
        self.link(value.contents, container.contents)

    def await_all(self, value: Value) -> None:
        self.flow(value.itself, AWAITED)
        self.flow(value.contents, AWAITED)

    def unknown(self, *, is_awaited: bool) -> Value:
        """The result of code that cannot be seen: of calling it, or of awaiting it."""
        value = self.fresh()
        for source in (_RETURNED, _AWAIT_GIVES) if is_awaited else (_RETURNED,):
            self.flow(source, value.itself)
            self.flow(source, value.contents)
        if not is_awaited:
            self.flow(value.contents, AWAITED)  # what is put into it may be seen by others who hold it
        return value

    def give_away(self, function: ast.AST) -> None:
        """Let code that cannot be seen call a function, and have what it returns."""
        value = self.returned(function)
        target = _AWAIT_GIVES if isinstance(function, ast.AsyncFunctionDef) else _RETURNED
        self.flow(value.itself, target)
        self.flow(value.contents, target)

    def variable(self, owner: Scope | None, name: str) -> Value:
        if owner is not None and owner.kind == "class":
            return self.attribute(name)
        return self._place(self._variables, (owner, name))

    def attribute(self, name: str) -> Value:
        """All attributes of one name are one place, whatever the object."""
        return self._place(self._attributes, name)

    def returned(self, function: ast.AST) -> Value:
        return self._place(self._returned, function)

    def _place(self, places: dict[Key, Value], key: Key) -> Value:
        place = places.get(key)
        if place is None:
            place = places[key] = self.fresh()
        return place

    def await_variables(self) -> None:
        for value in self._variables.values():
            self.await_all(value)

    def await_attributes(self) -> None:
        for value in self._attributes.values():
            self.await_all(value)

    def awaited(self) -> set[int]:
        """Every node whose values may be awaited."""
        found = {AWAITED}
        todo = [AWAITED]
        while todo:
            for source in self._sources[todo.pop()]:
                if source not in found:
                    found.add(source)
                    todo.append(source)
        return found


def element(value: Value) -> Value:
    """What iterating or indexing a value gives."""
    return Value(value.contents, value.contents)
