"""What a script's expressions are known to be without running it: whole values, or at least their kind."""

import ast
import math
import sys
from collections.abc import Mapping, Set
from enum import Enum
from functools import cached_property
from typing import Any, Final

from manifests.json_value import Json
from portal.check.assignments import assigned
from portal.check.not_json import made_by, written
from portal.check.only_calls import OnlyCalls
from portal.check.plain_operations import answered, combined, compared
from portal.check.readings import Readings
from portal.check.script_tree import ScriptTree
from portal.check.tampering import may_tamper
from sandbox_runtime.guest.scopes import Binding


class Unknown(Enum):
    """The type of `UNKNOWN`."""

    UNKNOWN = "unknown"


UNKNOWN: Final = Unknown.UNKNOWN

# What these builtins return, whatever they are given, in JSON Schema's words.
_RETURNS: Final = {
    "str": "string",
    "repr": "string",
    "len": "integer",
    "sorted": "array",
    "list": "array",
    "dict": "object",
}
_DISPLAYS: Final[dict[type[ast.expr], str]] = {
    ast.JoinedStr: "string",
    ast.List: "array",
    ast.ListComp: "array",
    ast.Tuple: "array",
    ast.Dict: "object",
    ast.DictComp: "object",
}
_CONTAINERS: Final = (ast.List, ast.Tuple, ast.Dict)
_CONSTANTS: Final = {("typing", "TYPE_CHECKING"): False, ("builtins", "__debug__"): True}
_RANGE: Final = ("builtins", "range")
_BOOL: Final = ("builtins", "bool")
_EMPTY: Final = frozenset(("builtins", name) for name in ("dict", "frozenset", "list", "set", "tuple"))
_LEN: Final = ("builtins", "len")
_VIEWS: Final = frozenset({"items", "keys", "values"})
_DICT: Final = ("builtins", "dict")
_MAX_DEPTH: Final = 50
_MOST_PARTS: Final = 100
"""Items of a container that are known by its name; each place that reads it looks at all of them."""


class KnownValues:
    """The constants of one script.

    A name is known if the script binds it once, and nothing can bind it out of sight: `earlier` are the names that
    scripts bound before in the session, whose functions may do it again. Annotations are not believed: Python does
    not hold a script to them.
    """

    def __init__(self, script: ScriptTree, earlier: Set[str] = frozenset()) -> None:
        self._script = script
        self._earlier = earlier
        self._only_calls = OnlyCalls(script)
        self._targets: dict[ast.AST, ast.expr] = {}
        self._bound: dict[ast.expr, Json | Unknown] = {}
        self.readings = Readings(script)
        functions = script.all_of(ast.FunctionDef, ast.AsyncFunctionDef)
        for body in (script.module.body, *(function.body for function in functions)):
            self._targets.update(assigned(body))

    @cached_property
    def may_tamper(self) -> bool:
        """Whether the script may change out of sight what its names mean, so that no name's value is known."""
        return may_tamper(self._script)

    def value(self, node: ast.expr, depth: int = 0) -> Json | Unknown:
        """The JSON value of an expression, if it is the same in every run."""
        if depth > _MAX_DEPTH:
            return UNKNOWN
        if isinstance(node, ast.Constant):
            return node.value if _is_json(node.value) else UNKNOWN
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            number = self.value(node.operand, depth + 1)
            return -number if isinstance(number, int | float) else UNKNOWN
        if isinstance(node, ast.Name):
            return self._held(node, depth + 1)
        if isinstance(node, (ast.List, ast.Tuple)):
            items = [self.value(item, depth + 1) for item in node.elts]
            return UNKNOWN if UNKNOWN in items else items
        if isinstance(node, ast.Dict):
            return self._dict(node, depth + 1)
        if isinstance(node, ast.Call):
            return UNKNOWN if node.keywords else self._returned(node, depth + 1)
        if isinstance(node, ast.BinOp):
            return self._combined(node, depth + 1)
        if isinstance(node, ast.Subscript):
            return _item(self.value(node.value, depth + 1), self.value(node.slice, depth + 1))
        return UNKNOWN

    def length(self, node: ast.expr, depth: int = 0) -> int | None:
        """How many values there are to iterate over, if that is the same in every run."""
        path = self._script.paths.get(node.func) if isinstance(node, ast.Call) else None
        if isinstance(node, ast.Call) and path == _RANGE and not node.keywords:
            bounds = [self.value(argument, depth + 1) for argument in node.args]
            return _range_length(bounds) if all(type(bound) is int for bound in bounds) else None
        called = getattr(node, "func", None)
        is_view = isinstance(called, ast.Attribute) and called.attr in _VIEWS
        value = self.value(called.value if isinstance(called, ast.Attribute) and is_view else node, depth + 1)
        return len(value) if isinstance(value, str | list | dict) else None

    def items(self, node: ast.expr, depth: int = 0) -> Mapping[str, ast.expr] | None:
        """What `**node` spreads, if that is plain to see: a dict as it is written, and not changed since."""
        if isinstance(node, ast.Name):
            bound = self.bound_once(node) if depth < _MAX_DEPTH else None
            return (
                self.items(bound, depth + 1) if bound is not None and self._is_as_bound(node, bound) else None
            )
        if isinstance(node, ast.Dict):
            keys = [None if key is None else self.value(key) for key in node.keys]
            values = node.values
        elif isinstance(node, ast.Call) and self._script.paths.get(node.func) == _DICT and not node.args:
            keys = [keyword.arg for keyword in node.keywords]
            values = [keyword.value for keyword in node.keywords]
        else:
            return None
        return (
            {str(key): value for key, value in zip(keys, values, strict=True)} if _are_names(keys) else None
        )

    def kind(self, node: ast.expr, depth: int = 0) -> str | None:
        """The JSON Schema type of an expression's value, where that is plain to see."""
        if isinstance(node, ast.Name):
            bound = self.bound_once(node)
            return None if bound is None or depth > _MAX_DEPTH else self.kind(bound, depth + 1)
        if isinstance(node, ast.Call):
            path = self._script.paths.get(node.func, ())
            is_builtin = len(path) == 2 and path[0] == "builtins" and path[1] not in self._earlier
            return _RETURNS.get(path[1]) if is_builtin else None
        return _DISPLAYS.get(type(node))

    def not_json(self, node: ast.expr, depth: int = 0) -> tuple[str, str] | None:
        """What an expression is that is no JSON, and what to write instead, where that is plain to see."""
        if isinstance(node, ast.Name):
            bound = self.bound_once(node)
            return None if bound is None or depth > _MAX_DEPTH else self.not_json(bound, depth + 1)
        if isinstance(node, ast.Call):
            path = self._script.paths.get(node.func, ())
            return made_by(path) if self._earlier.isdisjoint(path) else None
        return written(node)

    def truth(self, node: ast.expr, depth: int = 0) -> bool | None:
        """How a condition turns out in every run; None if that is not known."""
        if depth > _MAX_DEPTH:
            return None
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self.truth(node.operand, depth + 1)
            return None if inner is None else not inner
        if isinstance(node, ast.BoolOp):
            decisive = isinstance(node.op, ast.Or)
            parts = [self.truth(part, depth + 1) for part in node.values]
            return decisive if decisive in parts else None if None in parts else not decisive
        if isinstance(node, ast.Compare):
            return self._comparison(node, depth + 1)
        if isinstance(node, ast.IfExp):
            turn = self.truth(node.test, depth + 1)
            taken = node.body if turn else node.orelse
            return None if turn is None else self.truth(taken, depth + 1)
        value = self._constant(node, depth)
        return None if value is UNKNOWN else bool(value)

    def bound_once(self, node: ast.Name) -> ast.expr | None:
        """What a name was bound to before this place, and to nothing else ever."""
        binding = None if self.may_tamper else self.binding(node)
        if binding is not None and isinstance(binding.node, ast.arg):
            return self._only_calls.argument(binding.node)
        value = None if binding is None else self._targets.get(binding.node)
        return value if value is not None and value.lineno < node.lineno else None

    def binding(self, name: ast.Name) -> Binding | None:
        """Where a name gets its only value, unless a `global` or `nonlocal` binds it from another scope."""
        bindings = self._script.bindings_of(name)
        if len(bindings) != 1 or name.id in bindings[0].scope.elsewhere:
            return None
        is_earlier = bindings[0].scope.kind == "module" and name.id in self._earlier
        return None if is_earlier else bindings[0]

    def _held(self, name: ast.Name, depth: int) -> Json | Unknown:
        bound = self.bound_once(name)
        if bound is None:
            return UNKNOWN
        if bound not in self._bound:
            self._bound[bound] = UNKNOWN  # should a function call itself with what it was given
            self._bound[bound] = self.value(bound, depth)
        value = self._bound[bound]
        is_changed = isinstance(value, list | dict) and not self._is_as_bound(name, bound)
        return UNKNOWN if is_changed else value

    def _returned(self, call: ast.Call, depth: int) -> Json | Unknown:
        """What a call without keywords returns: of a builtin, or of a text's method."""
        path = self._script.paths.get(call.func, ())
        if path == _LEN and len(call.args) == 1:
            length = self.length(call.args[0], depth)
            return UNKNOWN if length is None else length
        if path == _BOOL and len(call.args) == 1:
            truth = self.truth(call.args[0], depth)
            return UNKNOWN if truth is None else truth
        if path in _EMPTY and not call.args and path[1] not in self._earlier:
            return {} if path == _DICT else []
        if not isinstance(call.func, ast.Attribute):
            return UNKNOWN
        given = [self.value(part, depth) for part in (call.func.value, *call.args)]
        answer = None if UNKNOWN in given else answered(given[0], call.func.attr, given[1:])
        return UNKNOWN if answer is None else answer

    def _combined(self, node: ast.BinOp, depth: int) -> Json | Unknown:
        one, other = self.value(node.left, depth), self.value(node.right, depth)
        both = None if UNKNOWN in (one, other) else combined(node.op, one, other)
        return both if both is not None and _is_json(both) else UNKNOWN

    def _is_as_bound(self, name: ast.Name, container: ast.expr) -> bool:
        """Whether the container that a name holds is what it was bound to, and small enough to look at each time."""
        parts = _parts(container)
        if len(parts) > _MOST_PARTS or any(map(self._is_container, parts)):
            return False  # what lies within may have changed
        return self.readings.is_only_read(name)

    def _is_container(self, part: ast.expr) -> bool:
        made = isinstance(part, (ast.Call, ast.Subscript)) and isinstance(self.value(part), list | dict)
        return made or isinstance(part, _CONTAINERS)

    def _constant(self, node: ast.expr, depth: int) -> Json | Unknown:
        path = self._script.paths.get(node)
        if path in _CONSTANTS:
            return _CONSTANTS[path]
        if isinstance(node, ast.Name) and node.id == "__name__":
            return "__main__"
        if isinstance(node, ast.Set):  # to look for something in it
            items = [self.value(item, depth) for item in node.elts]
            return UNKNOWN if UNKNOWN in items else items
        return self.value(node, depth)

    def _comparison(self, node: ast.Compare, depth: int) -> bool | None:
        """Of `1 < x < 5` the first part that does not hold, if all before it are known."""
        left = node.left
        for how, right in zip(node.ops, node.comparators, strict=True):
            one, other = self._constant(left, depth), self._constant(right, depth)
            holds = None if UNKNOWN in (one, other) else compared(how, one, other)
            if not holds:
                return holds
            left = right
        return True

    def _dict(self, node: ast.Dict, depth: int) -> Json | Unknown:
        whole: dict[str, Json] = {}
        for key_node, value_node in zip(node.keys, node.values, strict=True):
            key = UNKNOWN if key_node is None else self.value(key_node, depth)
            value = self.value(value_node, depth)
            if not isinstance(key, str) or value is UNKNOWN:
                return UNKNOWN
            whole[key] = value
        return whole


def _parts(container: ast.expr) -> list[ast.expr]:
    """What a container is written to hold; of a dict without its keys."""
    if isinstance(container, (ast.List, ast.Tuple)):
        return container.elts
    if isinstance(container, ast.Dict):
        return container.values
    return [keyword.value for keyword in container.keywords] if isinstance(container, ast.Call) else []


def _are_names(keys: list[Any]) -> bool:
    return all(isinstance(key, str) for key in keys)


def _range_length(bounds: list[Any]) -> int | None:
    try:
        numbers = range(*bounds)
    except (TypeError, ValueError):
        return None
    return len(numbers) if abs(numbers.stop - numbers.start) < sys.maxsize else None


def _item(container: Json, key: Json) -> Json | Unknown:
    try:
        return container[key] if isinstance(container, list | dict) else UNKNOWN
    except (LookupError, TypeError):
        return UNKNOWN


def _is_json(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, str | int)
