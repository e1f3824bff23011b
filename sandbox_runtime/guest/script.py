"""One script: lenient parsing, insertion of missing awaits, compilation and execution."""

import ast
import inspect
import linecache
import re
import textwrap
import warnings
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from types import CodeType, CoroutineType
from typing import Any

from sandbox_runtime.guest.analysis.awaits import await_notices, forgotten_calls, hidden_notices, with_awaits
from sandbox_runtime.guest.analysis.names import LIBRARY, Names
from sandbox_runtime.guest.analysis.usage import Usage

FILENAME = "script.py"
_NEW_SCOPE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_BLOCK_FIELDS = ("body", "orelse", "finalbody")
_WORD = re.compile(r"\w+")
_FENCE = re.compile(r"\s*(?:```|~~~)[\w ]*")
_IGNORED: Any = [("ignore", None, Warning, None, 0)]  # a filter of `warnings`
_MAX_SEARCHED = 100  # values of each container in the script's variables
_DYNAMIC = frozenset({LIBRARY, "importlib", "__import__", "eval", "exec", "globals", "locals", "vars"})
"""Names with which a script can access a namespace by a string."""


@dataclass(eq=False)
class Script:
    """A compiled script.

    `source` is its text with inserted awaits and the original line numbers. `names` are the namespaces that it
    mentions. `usage` has the facts for the check (shapes: `analysis.usage.Usage`); None if the script calls nothing.
    `assigned` is the name that its last statement assigns, whose value is then the script's; "" for other targets. If
    that statement is a block that may end with such an assignment, the script's own value is `...`.
    """

    source: str
    names: frozenset[str]
    notices: list[str]
    usage: Usage | None
    _pieces: tuple[CodeType, ...]
    assigned: str | None = None

    @classmethod
    def parse(cls, text: str, namespaces: frozenset[str], known: Iterable[str] = ()) -> "Script":
        """Parse a script with the library's `namespaces` and the names `known` from earlier runs.

        Raises:
            SyntaxError: With the line and column in the original text.
            ValueError, RecursionError, MemoryError: Python itself cannot parse the text.
        """
        text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
        filters: Any = warnings.filters
        warnings.filters = _IGNORED  # such as a warning of a "\d" in the script
        try:
            text, tree, notices = _parse_leniently(text)
            if "(" not in text and LIBRARY not in text and namespaces.isdisjoint(_WORD.findall(text)):
                return cls(text, frozenset(), notices, None, *_compiled(tree))
            names = Names(tree, namespaces, known)
            forgotten = forgotten_calls(names)
            usage = Usage(names, forgotten)
            inserted = [call for call in forgotten if not call.sync_scope]
            if inserted or names.hidden:
                source = with_awaits(text, names, [call.node for call in inserted])
                try:
                    compiled = _compiled(ast.parse(source, FILENAME))
                except SyntaxError:
                    pass  # the error of the script as written is raised below, with its own position
                else:
                    told = [*notices, *await_notices(inserted), *hidden_notices(names)]
                    return cls(source, _named(names), told, usage, *compiled)
            return cls(text, _named(names), notices, usage, *_compiled(tree))
        finally:
            warnings.filters = filters

    def run(self, globals: dict[str, Any], drive: Callable[[Coroutine[Any, Any, Any]], Any]) -> Any:
        """Run the script in `globals`. Returns its value: its last expression, or its return value.

        `drive` runs a coroutine to its end. A script without a top-level await does not use it, so that its own
        `asyncio.run` works.
        """
        lines = [line + "\n" for line in self.source.split("\n")]
        linecache.cache[FILENAME] = (len(self.source), None, lines, FILENAME)
        if any(_is_coroutine(piece) for piece in self._pieces):
            return drive(self._awaited(globals))
        value = None
        for piece in self._pieces:
            value = eval(piece, globals)
        return value

    async def _awaited(self, globals: dict[str, Any]) -> Any:
        value = None
        for piece in self._pieces:
            value = eval(piece, globals)
            if _is_coroutine(piece):
                value = await value
        return value


def unawaited_notices(variables: dict[str, Any]) -> list[str]:
    """Notices about the script's own unawaited coroutines in its variables. Python itself warns about dropped ones."""
    functions: dict[str, None] = {}
    for value in variables.values():
        held = value.values() if type(value) is dict else value
        values = islice(held, _MAX_SEARCHED) if type(value) in (list, tuple, set, dict) else (value,)
        for one in values:
            is_own = type(one) is CoroutineType and one.cr_code.co_filename == FILENAME
            if is_own and inspect.getcoroutinestate(one) == inspect.CORO_CREATED:
                functions[one.__qualname__] = None
    return [
        f"`{function}(...)` has not been awaited, so it has not run: it needs `await {function}(...)`"
        for function in islice(functions, 10)
    ]


def _parse_leniently(text: str) -> tuple[str, ast.Module, list[str]]:
    """The repaired text, its syntax tree, and notices about the repair."""
    try:
        return text, ast.parse(text, FILENAME), []
    except SyntaxError:
        for meant, notice in _candidate_sources(text):
            try:
                return meant, ast.parse(meant, FILENAME), [notice]
            except SyntaxError:
                continue
        raise


def _candidate_sources(text: str) -> Iterator[tuple[str, str]]:
    """Repaired texts with the same line numbers, each with a notice."""
    if text[:1].isspace():
        yield textwrap.dedent(text), "the script was indented as a whole; the indentation was removed"
    lines = text.split("\n")
    fences = [index for index, line in enumerate(lines) if _FENCE.fullmatch(line)]
    if len(fences) == 2:
        first, last = fences
        before = "\n".join(lines[:first])
        if '"""' in before or "'''" in before:
            return  # the fence may be in a text of the script, which must not run
        inside = [line if first < index < last else "" for index, line in enumerate(lines)]
        yield textwrap.dedent("\n".join(inside)), "only the code in the Markdown fence was run"


def _named(names: Names) -> frozenset[str]:
    """The namespaces that the code may use, including in strings if it can access them so."""
    found = {name.partition(".")[0] for name in names.hidden.values()}
    found |= names.ids
    found |= {node.attr for node in names.all_of(ast.Attribute)}
    found.update(part for node in names.all_of(ast.alias) for part in node.name.split("."))
    found.update(part for node in names.all_of(ast.ImportFrom) for part in (node.module or "").split("."))
    if not found.isdisjoint(_DYNAMIC):
        for node in names.all_of(ast.Constant):
            if isinstance(node.value, str):
                found.update(_WORD.findall(node.value))
    return names.namespaces & found


def _compiled(tree: ast.Module) -> tuple[tuple[CodeType, ...], str | None]:
    """Code objects to run in order in the same globals, the last of which gives the value; and the name it assigns.

    Modifies `tree`. Raises SyntaxError, as Python does.
    """
    if tree.body and _is_main_block(tree.body[-1]):
        tree.body[-1:] = tree.body[-1].body  # type: ignore[attr-defined]  # always true: it is the main module
    assigned = _assigned(tree.body[-1]) if tree.body else None
    if assigned is not None:
        end = ast.Name(assigned, ast.Load()) if _target(tree.body[-1]) else ast.Constant(...)
        value = ast.copy_location(end, tree.body[-1])
        tree.body.append(ast.copy_location(ast.Expr(value), value))
    return _pieces(tree), assigned


def _is_main_block(statement: ast.stmt) -> bool:
    """Whether it is `if __name__ == "__main__":`."""
    test = statement.test if isinstance(statement, ast.If) and not statement.orelse else None
    if not isinstance(test, ast.Compare) or type(test.ops[0]) is not ast.Eq:
        return False
    sides = {getattr(side, "id", getattr(side, "value", None)) for side in (test.left, *test.comparators)}
    return sides == {"__name__", "__main__"}


def _assigned(statement: ast.stmt) -> str | None:
    """The one name that a statement, or the ends of its blocks, assign; "" for others, None if it is not a block."""
    blocks = [*_blocks(ast.Module([statement], []))][1:]
    names = {_target(block[-1]) for block in blocks if block}.difference((None, ""))
    return _target(statement) if not blocks else names.pop() if len(names) == 1 else ""


def _target(statement: ast.stmt) -> str | None:
    """The name that a statement assigns, "" for another target, None if it assigns nothing."""
    if not isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign)) or not statement.value:
        return None
    target = statement.targets[-1] if isinstance(statement, ast.Assign) else statement.target
    return target.id if isinstance(target, ast.Name) else ""


def _pieces(tree: ast.Module) -> tuple[CodeType, ...]:
    if any(isinstance(statement, ast.Return) for block in _blocks(tree) for statement in block):
        return (_function_code(tree),)
    if not (tree.body and isinstance(tree.body[-1], ast.Expr)):
        return (_code(tree, "exec"),)
    last = tree.body.pop()
    assert isinstance(last, ast.Expr)
    statements = (_code(tree, "exec"),) if tree.body else ()
    return *statements, _code(ast.Expression(last.value), "eval")


def _is_coroutine(code: CodeType) -> bool:
    return bool(code.co_flags & inspect.CO_COROUTINE)


def _code(tree: ast.Module | ast.Expression, mode: str) -> CodeType:
    code = compile(tree, FILENAME, mode, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True, optimize=0)
    assert isinstance(code, CodeType)
    return code


def _blocks(tree: ast.Module) -> Iterator[list[ast.stmt]]:
    """Every list of statements in the script's own scope."""
    blocks = [tree.body]
    while blocks:
        block = blocks.pop()
        yield block
        for statement in block:
            if not isinstance(statement, _NEW_SCOPE):
                parts = [statement, *getattr(statement, "handlers", ()), *getattr(statement, "cases", ())]
                fields = [getattr(part, name, None) for part in parts for name in _BLOCK_FIELDS]
                blocks += [field for field in fields if isinstance(field, list)]


def _function_code(tree: ast.Module) -> CodeType:
    """The script as the body of a function, where Python allows a `return`.

    Every name that the script binds is declared global, and the function keeps no locals. So `globals()`, `locals()`,
    `exec` and later runs of a session behave as in a module.
    """
    futures = [statement for statement in tree.body if _is_future(statement)]
    for block in list(_blocks(tree)):
        block[:] = [_inside_function(statement) for statement in block]
    body = tree.body
    last = body[-1]
    if isinstance(last, ast.Expr):
        body[-1] = ast.copy_location(ast.Return(last.value), last)
    local = _function(futures, body)
    if names := [*local.co_varnames, *local.co_cellvars]:
        body.insert(0, ast.Global(names))
    code = _function(futures, body)
    return code.replace(co_flags=code.co_flags & ~(inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS))


def _function(futures: list[ast.stmt], body: list[ast.stmt]) -> CodeType:
    nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])

    def compiled(kind: Any) -> CodeType:
        # The name in tracebacks: the frame should look like a module.
        function = kind(name="<module>", args=nothing, body=body, decorator_list=[], lineno=1, col_offset=0)
        function.type_params = []
        return _code(ast.fix_missing_locations(ast.Module([*futures, function], [])), "exec")

    try:
        module = compiled(ast.FunctionDef)
    except SyntaxError:  # it awaits, or is invalid
        module = compiled(ast.AsyncFunctionDef)
    return next(constant for constant in module.co_consts if isinstance(constant, CodeType))


def _is_future(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def _inside_function(statement: ast.stmt) -> ast.stmt:
    """A module's statement adapted to a function that declares all names global."""
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        if statement.value is None:
            return ast.copy_location(ast.Pass(), statement)
        return ast.copy_location(ast.Assign([statement.target], statement.value), statement)
    if isinstance(statement, ast.Global) or _is_future(statement):
        return ast.copy_location(ast.Pass(), statement)
    return statement
