"""Which statements are the last of their block that run, because control never comes out behind them."""

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from portal.check.known_values import UNKNOWN, KnownValues
from portal.check.script_tree import ScriptTree
from sandbox_runtime.guest.scopes import FUNCTIONS, Function

_ENDS: Final = (ast.Return, ast.Raise, ast.Break, ast.Continue)
_EXITS: Final = frozenset({("builtins", "exit"), ("builtins", "quit"), ("sys", "exit"), ("os", "_exit")})
_LOOPS: Final = (ast.While, ast.For, ast.AsyncFor)


class Endings:
    """The ends of one script's blocks, where they are plain to see."""

    def __init__(self, script: ScriptTree, values: KnownValues) -> None:
        self._script = script
        self._values = values
        self._without_return: dict[str, bool] = {}

    def is_end(self, statement: ast.stmt) -> bool:
        """Whether what stands behind it in its block never runs; errors that it may raise aside."""
        match statement:
            case ast.If():
                truth = self._values.truth(statement.test)
                branches = [(True, statement.body), (False, statement.orelse)]
                return all(self._ends(branch) for when, branch in branches if truth in (None, when))
            case ast.While():
                return self._values.truth(statement.test) is True and not _breaks(statement.body)
            case ast.With() | ast.AsyncWith():
                return self._ends(statement.body)
            case ast.Try() | ast.TryStar():
                handlers = [handler.body for handler in statement.handlers]
                is_end = self._ends([*statement.body, *statement.orelse]) and all(map(self._ends, handlers))
                return is_end or self._ends(statement.finalbody)
            case ast.Match():
                cases = self.possible_cases(statement)
                has_rest = bool(cases) and self._takes_all(statement, cases[-1])
                return has_rest and all(self._ends(case.body) for case in cases)
            case ast.Assert():
                return self._values.truth(statement.test) is False
            case ast.Expr(value=ast.Call(func=function) | ast.Await(value=ast.Call(func=function))):
                return self._script.paths.get(function) in _EXITS or self._never_returns(function)
        return isinstance(statement, _ENDS)

    def possible_cases(self, node: ast.Match) -> Sequence[ast.match_case]:
        """The cases that may be entered, where the subject, or a pattern, says that others are not."""
        possible = []
        for case in node.cases:
            if not self._never_fits(node.subject, case.pattern):
                possible.append(case)
            if self._takes_all(node, case):
                break
        return possible

    def _never_returns(self, function: ast.expr) -> bool:
        """Whether calling a function of the script's own ends the script, or raises what others may wait for."""
        name = function.id if isinstance(function, ast.Name) else ""
        definitions = self._script.functions.get(name, ())
        if name not in self._without_return:
            self._without_return[name] = False  # should it call itself before its end is found
            self._without_return[name] = bool(definitions) and all(map(self._only_raises, definitions))
        return self._without_return[name]

    def _only_raises(self, function: Function) -> bool:
        if isinstance(function, ast.Lambda) or function.decorator_list:
            return False
        end = next((each for each in function.body if self.is_end(each)), None)
        return isinstance(end, (ast.Raise, ast.Expr, ast.Assert))

    def _ends(self, block: Iterable[ast.stmt]) -> bool:
        return any(map(self.is_end, block))

    def _takes_all(self, node: ast.Match, case: ast.match_case) -> bool:
        """Whether a case is entered whenever those before it were not."""
        pattern = case.pattern
        is_rest = isinstance(pattern, ast.MatchAs) and pattern.pattern is None
        return case.guard is None and (is_rest or self._is_same(node.subject, pattern) is True)

    def _never_fits(self, subject: ast.expr, pattern: ast.pattern) -> bool:
        return self._is_same(subject, pattern) is False

    def _is_same(self, subject: ast.expr, pattern: ast.pattern) -> bool | None:
        """Whether a known subject is the value of a pattern; None if one of them is not known."""
        if not isinstance(pattern, ast.MatchValue):
            return None
        one, other = self._values.value(subject), self._values.value(pattern.value)
        if any(value is UNKNOWN or isinstance(value, list | dict) for value in (one, other)):
            return None
        return one == other


def _breaks(body: Iterable[ast.stmt]) -> bool:
    """Whether a `break` of the loop itself stands in it."""
    return any(isinstance(node, ast.Break) for node in _of_loop(body))


def _of_loop(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    todo = [*nodes]
    while todo:
        node = todo.pop()
        yield node
        if isinstance(node, _LOOPS):
            todo += node.orelse  # where a `break` means the loop around it
        elif not isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            todo += ast.iter_child_nodes(node)
