"""Which statements are the last of their block that run, because control never comes out behind them."""

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from portal.check.known_values import UNKNOWN, KnownValues
from portal.check.script_tree import ScriptTree
from sandbox_runtime.guest.scopes import FUNCTIONS, Function

_ENDS: Final = (ast.Return, ast.Raise, ast.Break, ast.Continue)
_EXITS: Final = frozenset({("builtins", "exit"), ("builtins", "quit"), ("sys", "exit"), ("os", "_exit")})
_MEANS: Final = _EXITS | {("builtins", "SystemExit")}
_LOOPS: Final = (ast.While, ast.For, ast.AsyncFor)
_BLOCK_PARTS: Final = (ast.stmt, ast.excepthandler, ast.match_case)


class Endings:
    """The ends of one script's blocks, where they are plain to see; rather one too many than one too few."""

    def __init__(self, script: ScriptTree, values: KnownValues) -> None:
        self._script = script
        self._values = values
        self._without_return: dict[str, bool] = {}
        self._known: dict[ast.stmt, bool] = {}

    def is_end(self, statement: ast.stmt) -> bool:
        """Whether what stands behind it in its block does not run, errors that are caught aside."""
        if statement not in self._known:
            self._known[statement] = isinstance(statement, _ENDS) or self._is_end(statement)
        return self._known[statement]

    def _is_end(self, statement: ast.stmt) -> bool:
        if any(self._never_returns(call.func) for call in self._evaluated(statement)):
            return True
        match statement:
            case ast.If():
                truth = self._values.truth(statement.test)
                branches = [(True, statement.body), (False, statement.orelse)]
                return all(self._ends(branch) for when, branch in branches if truth in (None, when))
            case ast.While():
                return self._values.truth(statement.test) is True and not _breaks(statement.body)
            case ast.For() | ast.AsyncFor():
                is_entered = bool(self._values.length(statement.iter))
                return is_entered and self._ends(statement.body) and not _goes_on(statement.body)
            case ast.With() | ast.AsyncWith() | ast.ClassDef():
                return self._ends(statement.body)
            case ast.Try() | ast.TryStar():
                return self._ends([*statement.body, *statement.orelse]) or self._ends(statement.finalbody)
            case ast.Match():
                cases = self.possible_cases(statement)
                has_rest = bool(cases) and self._takes_all(statement, cases[-1])
                return has_rest and all(self._ends(case.body) for case in cases)
            case ast.Assert():
                return self._values.truth(statement.test) is False
        return False

    def may_leave(self, body: Sequence[ast.stmt]) -> bool:
        """Whether a loop may be left from its body, before it has come to its end."""
        parts = [*_of_function(body)]
        calls = (part.func for part in parts if isinstance(part, ast.Call))
        is_left = any(isinstance(part, (ast.Return, ast.Raise)) for part in parts)
        return is_left or _breaks(body) or any(map(self._never_returns, calls))

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
        """Whether a call ends the script, or only raises what others may wait for."""
        if self._script.paths.get(function) in _EXITS:
            return True
        name = getattr(function, "id", getattr(function, "attr", ""))
        if name not in self._without_return:
            self._without_return[name] = False  # should it call itself before its end is found
            self._without_return[name] = any(map(self._only_raises, self._script.functions.get(name, ())))
        return self._without_return[name]

    def _only_raises(self, function: Function) -> bool:
        if isinstance(function, ast.Lambda):
            return any(self._never_returns(call.func) for call in self._evaluated(function.body))
        end = next((each for each in function.body if self.is_end(each)), None)
        return end is not None and not any(isinstance(node, ast.Return) for node in _of_function([end]))

    def _evaluated(self, node: ast.AST) -> Iterator[ast.Call]:
        """The calls that are made whenever a node is come to, those in the blocks of a statement aside."""
        todo = [node]
        while todo:
            node = todo.pop()
            if isinstance(node, ast.Call):
                yield node
            todo += self._evaluated_parts(node)

    def _evaluated_parts(self, node: ast.AST) -> Iterable[ast.AST]:
        match node:
            case ast.BoolOp():
                return node.values[:1]
            case ast.IfExp() | ast.Assert():
                return [node.test]
            case ast.ListComp() | ast.SetComp() | ast.DictComp() if self._values.length(
                node.generators[0].iter
            ):
                pass
            case ast.GeneratorExp() | ast.ListComp() | ast.SetComp() | ast.DictComp():
                return [node.generators[0].iter]
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return [*node.decorator_list, *defaults(node.args)]
            case ast.Lambda():
                return defaults(node.args)
        return [each for each in ast.iter_child_nodes(node) if not isinstance(each, _BLOCK_PARTS)]

    def _ends(self, block: Iterable[ast.stmt]) -> bool:
        return any(map(self.is_end, block))

    def _takes_all(self, node: ast.Match, case: ast.match_case) -> bool:
        """Whether a case is entered whenever those before it were not."""
        pattern = case.pattern
        is_rest = isinstance(pattern, ast.MatchAs) and pattern.pattern is None
        return case.guard is None and (is_rest or self._is_same(node.subject, pattern) is True)

    def _never_fits(self, subject: ast.expr, pattern: ast.pattern) -> bool:
        return self._is_same(subject, pattern) is False

    def _is_same(self, subject: ast.expr, pattern: ast.pattern | None) -> bool | None:
        """Whether a known subject fits a pattern of known values; None if one of them is not known."""
        match pattern:
            case ast.MatchOr():
                fits = [self._is_same(subject, each) for each in pattern.patterns]
                return True if True in fits else None if None in fits else False
            case ast.MatchAs():
                return self._is_same(subject, pattern.pattern)
            case ast.MatchValue():
                one, other = self._values.value(subject), self._values.value(pattern.value)
                if any(value is UNKNOWN or isinstance(value, list | dict) for value in (one, other)):
                    return None
                return one == other
        return None


def mentions_end(script: ScriptTree) -> bool:
    """Whether a script has the means to end itself, or the one that calls a function of it."""
    return any(path in _MEANS for path in script.paths.values())


def hides_ends(script: ScriptTree) -> bool:
    """Whether others may end a script than whom it calls by name, so that anything may be its end.

    It hands on what ends it, `partial(sys.exit, 1)`, or a function that does, or such a one is called by Python
    itself, as `__add__` and properties are, or by the class that its own class is made of.
    """
    plain = {call.func for call in script.scopes.calls}
    for bindings in (found for scope in script.all_scopes for found in scope.bindings.values()):
        # `stop = sys.exit` is followed.
        plain.update(each.value for each in bindings if each.value is not None)
    if any(path in _EXITS and node not in plain for node, path in script.paths.items()):
        return True
    definitions = script.all_of(ast.FunctionDef, ast.AsyncFunctionDef)
    functions = [node for node in definitions if _may_exit(script, node)]
    ending = {node.name for node in functions}
    if any(node.decorator_list or node.name.startswith("__") for node in functions):
        return True
    read = (mention.node for mention in script.scopes.mentions if mention.node not in plain)
    inherited = (part for node in script.scopes.classes if node.bases for part in node.body)
    named = {getattr(node, "id", getattr(node, "attr", "")) for node in read}
    methods = {getattr(part, "name", "") for part in inherited}
    return not ending.isdisjoint(named | methods)


def _may_exit(script: ScriptTree, function: Function) -> bool:
    paths = (script.paths.get(node) for node in ast.walk(function) if isinstance(node, ast.expr))
    return any(path in _MEANS for path in paths)


def _breaks(body: Iterable[ast.stmt]) -> bool:
    """Whether a `break` of the loop itself stands in it."""
    return any(isinstance(node, ast.Break) for node in _parts(body, _LOOPS))


def _goes_on(body: Iterable[ast.stmt]) -> bool:
    """Whether what stands behind the loop may be come to from within it."""
    return any(isinstance(node, (ast.Break, ast.Continue)) for node in _parts(body, _LOOPS))


def _of_function(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    return _parts(nodes, ())


def _parts(nodes: Iterable[ast.AST], inner: tuple[type[ast.AST], ...]) -> Iterator[ast.AST]:
    """The nodes that belong to the same function, without the bodies of what has its own."""
    todo = [*nodes]
    while todo:
        node = todo.pop()
        yield node
        if isinstance(node, inner):
            todo += getattr(node, "orelse", ())  # where a `break` means the loop around it
        elif not isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            todo += ast.iter_child_nodes(node)


def defaults(arguments: ast.arguments) -> list[ast.expr]:
    """What is evaluated of a function's parameters where it is defined."""
    return [*arguments.defaults, *(default for default in arguments.kw_defaults if default is not None)]
