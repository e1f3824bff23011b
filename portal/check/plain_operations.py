"""What operators and methods make of plain values, where that is quickly known and the same in every Python."""

import ast
import operator
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Final

from manifests.json_value import Json

_MOST_BITS: Final = 128
_LONGEST_TEXT: Final = 10_000
_OF_NUMBERS: Final = MappingProxyType[type[ast.operator], Callable[[Any, Any], Any]](
    {
        ast.Add: operator.add,
        ast.Sub: operator.sub,
        ast.Mult: operator.mul,
        ast.Div: operator.truediv,
        ast.FloorDiv: operator.floordiv,
        ast.Mod: operator.mod,
    }
)
_COMPARISONS: Final[dict[type[ast.cmpop], Callable[[Any, Any], bool]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.eq,
    ast.IsNot: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda one, other: one in other,
    ast.NotIn: lambda one, other: one not in other,
}
_METHODS: Final = frozenset({"casefold", "lower", "lstrip", "rstrip", "strip", "title", "upper"})
_QUESTIONS: Final = frozenset({"endswith", "startswith"})


def combined(how: ast.operator, one: Json, other: Json) -> Json:
    """A number or a text; None if it is not known."""
    if isinstance(one, str) and isinstance(other, str) and isinstance(how, ast.Add):
        return one + other if len(one) + len(other) <= _LONGEST_TEXT else None
    operation = _OF_NUMBERS.get(type(how))
    if operation is None or not (_is_small(one) and _is_small(other)):
        return None
    try:
        return operation(one, other)
    except ArithmeticError:  # which the script will see
        return None


def answered(text: Json, method: str, arguments: list[Any]) -> Json:
    """What a method of a text gives; None if it is not known."""
    if not isinstance(text, str) or not text.isascii():
        return None  # what letters there are differs between Pythons
    is_question = len(arguments) == 1 and method in _QUESTIONS and isinstance(arguments[0], str)
    if not is_question and (arguments or method not in _METHODS):
        return None
    return getattr(text, method)(*arguments)


def compared(how: ast.cmpop, one: Json, other: Json) -> bool | None:
    """Whether a comparison holds; None if that is not known."""
    is_membership = isinstance(how, (ast.In, ast.NotIn))
    if isinstance(one, list | dict) or (isinstance(other, list | dict) and not is_membership):
        return None
    if isinstance(how, (ast.Is, ast.IsNot)) and not (_is_singleton(one) and _is_singleton(other)):
        return None
    try:
        return _COMPARISONS[type(how)](one, other)
    except TypeError:  # which the script will see
        return None


def _is_singleton(value: Json) -> bool:
    return value is None or isinstance(value, bool)


def _is_small(value: Json) -> bool:
    return isinstance(value, float) or (isinstance(value, int) and value.bit_length() <= _MOST_BITS)
