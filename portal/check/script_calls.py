"""The library calls of a script, found in its text and matched with the functions they call."""

import ast
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, Self

from portal.check.f_strings import without_f_strings
from portal.library.function import Function

_HANDLES_ERRORS: Final = {"ToolError", "AttributeError", "TypeError", "Exception", "BaseException"}
_BLOCKS = (ast.Try, ast.TryStar, ast.With, ast.AsyncWith)


class Use(Protocol):
    """A place where the script was seen to mention a function of the library."""

    @property
    def namespace(self) -> str: ...
    @property
    def function(self) -> str: ...
    @property
    def line(self) -> int: ...


@dataclass(frozen=True)
class ScriptCall:
    """One call of a library function; guarded if the script itself handles its failure."""

    node: ast.Call
    function: Function
    is_guarded: bool

    @property
    def line(self) -> int:
        return self.node.lineno


class ScriptCalls:
    """A script's syntax tree, seen from its library calls.

    Which name means the library was decided where the script was parsed, scopes and all; here its `uses` are
    only found again, by line and name.
    """

    def __init__(self, nodes: Sequence[ast.AST], calls: Mapping[ast.expr, ScriptCall]) -> None:
        self.nodes = nodes
        self.by_node = calls
        self.classes = {node.name for node in nodes if isinstance(node, ast.ClassDef)}
        self._guarded = [node.body for node in nodes if isinstance(node, _BLOCKS) and _is_guard(node)]

    def is_guarded(self, line: int) -> bool:
        """True if the script itself handles whatever goes wrong on that line."""
        return any(body[0].lineno <= line <= (body[-1].end_lineno or line) for body in self._guarded)

    @classmethod
    def read(cls, source: str, uses: Iterable[Use], functions: Mapping[str, Function]) -> Self | None:
        """None if this Python cannot parse the script: the sandbox's may be newer."""
        tree = _parsed(source) or _parsed(without_f_strings(source))
        if tree is None:
            return None
        by_line: dict[int, list[Use]] = {}
        for use in uses:
            by_line.setdefault(use.line, []).append(use)
        nodes = [*_walk(tree)]
        aliases = _aliases(nodes)
        tolerated = _tolerated(nodes)
        calls: dict[ast.expr, ScriptCall] = {}
        found = cls(nodes, calls)
        for node in nodes:
            if isinstance(node, ast.Call):
                is_guarded = node in tolerated or found.is_guarded(node.lineno)
                meant = _meant(node.func, by_line.get(node.func.lineno, ()), aliases)
                # What a script tries is not among its uses; of that it is only warned, so a guess will do.
                qualified = meant or (_spelt(node.func) if is_guarded else None)
                if qualified is not None and qualified in functions:
                    calls[node] = ScriptCall(node, functions[qualified], is_guarded)
        return found


def _parsed(source: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _walk(tree: ast.Module) -> Iterator[ast.AST]:
    """Every node, parents first; three times as fast as `ast.walk`, and every script waits for it."""
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        yield node
        for name in node._fields:
            part = getattr(node, name, None)
            if isinstance(part, list):
                todo.extend(item for item in part if isinstance(item, ast.AST))
            elif isinstance(part, ast.AST) and not isinstance(part, ast.expr_context):
                todo.append(part)


def _tolerated(nodes: Iterable[ast.AST]) -> set[ast.AST]:
    """The nodes within a call that gives errors back as values, as `gather` does where it is told to."""
    tolerated: set[ast.AST] = set()
    for node in nodes:  # parents first, so that what is within two such calls is walked through once
        if (
            isinstance(node, ast.Call)
            and node not in tolerated
            and any(keyword.arg == "return_exceptions" for keyword in node.keywords)
        ):
            tolerated.update(inner for argument in node.args for inner in ast.walk(argument))
    return tolerated


def _is_guard(node: ast.Try | ast.TryStar | ast.With | ast.AsyncWith) -> bool:
    """True for a statement whose body may fail without the script's failing."""
    if isinstance(node, (ast.Try, ast.TryStar)):
        return any(
            handler.type is None or _HANDLES_ERRORS & _names(handler.type) for handler in node.handlers
        )
    return any(_suppresses(item) for item in node.items)


def _suppresses(item: ast.withitem) -> bool:
    return "suppress" in _names(item.context_expr)


def _names(node: ast.AST) -> set[str]:
    names = (getattr(child, "id", getattr(child, "attr", None)) for child in ast.walk(node))
    return {name for name in names if name is not None}


def _aliases(nodes: Iterable[ast.AST]) -> dict[str, set[str]]:
    """What the script calls by another name: the other name, and the names it stands for."""
    aliases: dict[str, set[str]] = {}
    for node in nodes:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                aliases.setdefault(alias.asname or alias.name, set()).add(alias.name.rpartition(".")[2])
        elif isinstance(node, ast.Assign) and isinstance(node.value, (ast.Name, ast.Attribute)):
            original = node.value.id if isinstance(node.value, ast.Name) else node.value.attr
            for target in node.targets:
                if isinstance(target, ast.Name):
                    aliases.setdefault(target.id, set()).add(original)
    return aliases


def _meant(callee: ast.expr, uses: Iterable[Use], aliases: Mapping[str, set[str]]) -> str | None:
    """The qualified name of the library function that one of the uses on this line says is called."""
    if isinstance(callee, ast.Name):
        functions = {callee.id, *aliases.get(callee.id, ())}
        meant = {f"{use.namespace}.{use.function}" for use in uses if use.function in functions}
    else:
        owner, _, function = (_spelt(callee) or "").rpartition(".")
        namespaces = {owner, *aliases.get(owner, ())}
        meant = {
            f"{use.namespace}.{use.function}"
            for use in uses
            if use.function == function and use.namespace in namespaces
        }
    return meant.pop() if len(meant) == 1 else None


def _spelt(callee: ast.expr) -> str | None:
    """`git.log` for `git.log` and `tools.git.log`, whatever they mean here."""
    if isinstance(callee, ast.Attribute) and isinstance(callee.value, (ast.Name, ast.Attribute)):
        owner = callee.value.id if isinstance(callee.value, ast.Name) else callee.value.attr
        return f"{owner}.{callee.attr}"
    return None
