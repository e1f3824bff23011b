"""What a script's expressions are known to be without running it: whole values, or at least their kind."""

import ast
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final

from manifests.json_value import Json


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
_REFLECTIVE: Final = {"exec", "eval", "globals", "locals", "vars", "setattr"}
_NAMED = (
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.ExceptHandler,
    ast.MatchAs,
    ast.MatchStar,
    ast.MatchMapping,
)
_MAX_DEPTH: Final = 50


class KnownValues:
    """The constants of one script.

    A name is known if the script binds it once, and nothing can bind it out of sight. Annotations are not
    believed: Python does not hold a script to them.
    """

    def __init__(self, nodes: Iterable[ast.AST]) -> None:
        self._times_bound: Counter[str] = Counter()
        self._assigned: dict[str, ast.Assign] = {}
        self._is_reflective = False
        for node in nodes:
            if isinstance(node, ast.Name) and node.id in _REFLECTIVE:
                self._is_reflective = True
            self._times_bound.update(_bound(node))
            if isinstance(node, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef)):
                self._assigned.update(_assigned(node.body))

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
            bound = self.bound_once(node)
            value = UNKNOWN if bound is None else self.value(bound, depth + 1)
            return UNKNOWN if isinstance(value, list | dict) else value  # those may have changed since
        if isinstance(node, (ast.List, ast.Tuple)):
            items = [self.value(item, depth + 1) for item in node.elts]
            return UNKNOWN if UNKNOWN in items else items
        if isinstance(node, ast.Dict):
            return self._dict(node, depth + 1)
        return UNKNOWN

    def kind(self, node: ast.expr, depth: int = 0) -> str | None:
        """The JSON Schema type of an expression's value, where that is plain to see."""
        if isinstance(node, ast.Name):
            bound = self.bound_once(node)
            return None if bound is None or depth > _MAX_DEPTH else self.kind(bound, depth + 1)
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and not self._times_bound[node.func.id]
        ):
            return _RETURNS.get(node.func.id)
        return _DISPLAYS.get(type(node))

    def bound_once(self, node: ast.Name) -> ast.expr | None:
        """What a name was bound to before this place; in a session it may be older than the script."""
        assigned = self._assigned.get(node.id)
        if assigned is None or self._is_reflective or self._times_bound[node.id] != 1:
            return None
        return assigned.value if assigned.lineno < node.lineno else None

    def _dict(self, node: ast.Dict, depth: int) -> Json | Unknown:
        whole: dict[str, Json] = {}
        for key_node, value_node in zip(node.keys, node.values, strict=True):
            key = UNKNOWN if key_node is None else self.value(key_node, depth)
            value = self.value(value_node, depth)
            if not isinstance(key, str) or value is UNKNOWN:
                return UNKNOWN
            whole[key] = value
        return whole


def _is_json(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, str | int)


def _assigned(body: list[ast.stmt]) -> Iterator[tuple[str, ast.Assign]]:
    """The plain assignments that run whenever what follows them does."""
    for statement in body:
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                if isinstance(target, ast.Name):
                    yield target.id, statement


def _bound(node: ast.AST) -> Iterable[str]:
    """The names that a node itself binds."""
    if isinstance(node, ast.Name):
        return () if isinstance(node.ctx, ast.Load) else (node.id,)
    if isinstance(node, ast.arg):
        return (node.arg,)
    if isinstance(node, ast.alias):
        return (node.asname or node.name.partition(".")[0],)
    if isinstance(node, (ast.Global, ast.Nonlocal)):
        return node.names
    if isinstance(node, _NAMED):
        name = node.rest if isinstance(node, ast.MatchMapping) else node.name
        return () if name is None else (name,)
    return ()
