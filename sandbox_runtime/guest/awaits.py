"""Puts in the awaits that a script forgot, as text, and says so."""

import ast
from collections.abc import Iterator, Sequence, Set

from sandbox_runtime.guest.dataflow import DataFlow
from sandbox_runtime.guest.expression_flow import LibraryCall
from sandbox_runtime.guest.library_names import LibraryNames
from sandbox_runtime.guest.scopes import Scopes

_MAX_NOTICES = 5
_MAX_CALLS = 3  # named in one notice
_GATHER = {
    ("asyncio", "gather"),
    ("builtins", "asyncio", "gather"),
}  # imported, or as it lies ready for scripts
_REMEDIES = {
    "a lambda": "use an `async def`",
    "a generator expression": "use a list comprehension",
    "a class body": "call it before the class",
}


def forgotten_calls(tree: ast.Module, scopes: Scopes, names: LibraryNames) -> list[LibraryCall]:
    """The library calls that nothing in the script will ever await.

    A script that is right as it stands has none: a call is forgotten only if its value can reach no `await`
    and no code that might await it.
    """
    awaited = scopes.awaited | set(_gathered(scopes, names))
    if all(call in awaited for call in names.calls):
        return []
    return DataFlow(tree, scopes, names).forgotten()


def _gathered(scopes: Scopes, names: LibraryNames) -> Iterator[ast.expr]:
    """What an awaited `asyncio.gather` is given, one by one or as a list: nothing else is needed to see it awaited."""
    for gather in scopes.awaited:
        if isinstance(gather, ast.Call) and names.paths.get(gather.func) in _GATHER:
            for argument in gather.args:
                if not isinstance(argument, ast.Starred):
                    yield argument
                elif isinstance(argument.value, (ast.ListComp, ast.GeneratorExp)):
                    yield argument.value.elt
                elif isinstance(argument.value, (ast.List, ast.Tuple)):
                    yield from argument.value.elts


def with_awaits(text: str, tree: ast.Module, followed: Set[ast.expr], calls: Sequence[LibraryCall]) -> str:
    """The text with an `await` before each call, in parentheses where it is one of those that are followed.

    `await f()["rows"]` awaits what is in the result, which is never what was meant: it becomes
    `(await f())["rows"]`.
    """
    lines = [line.encode() for line in text.split("\n")]
    insertions: list[tuple[int, int, bytes]] = []
    misplaced = _misplaced_awaits(tree, {call.node for call in calls})
    for call in calls:
        node = call.node
        assert node.end_lineno is not None and node.end_col_offset is not None
        end = node.end_lineno, node.end_col_offset
        outer = misplaced.get(node)
        if outer is not None and _is_next_to(lines, outer, node):
            insertions += [(outer.lineno, outer.col_offset, b"("), (*end, b")")]
            continue
        is_bare = node in followed and not _is_closed(lines, *end)
        insertions.append((node.lineno, node.col_offset, b"(await " if is_bare else b"await "))
        if is_bare:
            insertions.append((*end, b")"))
    pieces: dict[int, list[bytes]] = {}
    done: dict[int, int] = {}
    for line, column, inserted in sorted(insertions):
        before = lines[line - 1][done.get(line, 0) : column]
        pieces.setdefault(line, []).extend((before, inserted))
        done[line] = column
    for line, parts in pieces.items():
        lines[line - 1] = b"".join(parts) + lines[line - 1][done[line] :]
    return b"\n".join(lines).decode()


def _misplaced_awaits(tree: ast.Module, calls: Set[ast.expr]) -> dict[ast.expr, ast.Await]:
    """The calls whose result is taken apart by the very expression that an `await` stands before."""
    found: dict[ast.expr, ast.Await] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Await):
            inner = _part_of(node.value)
            while inner is not None and inner not in calls:
                inner = _part_of(inner)
            if inner is not None:
                found[inner] = node
    return found


def _part_of(value: ast.expr) -> ast.expr | None:
    """What the expression takes an item, an attribute or a method of."""
    if isinstance(value, (ast.Subscript, ast.Attribute)):
        return value.value
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        return value.func.value
    return None


def _is_next_to(lines: list[bytes], outer: ast.Await, call: ast.expr) -> bool:
    """Whether nothing but spaces stands between the word `await` and the call."""
    between = lines[outer.lineno - 1][outer.col_offset + len(b"await") : call.col_offset]
    return outer.lineno == call.lineno and not between.strip()


def await_notices(calls: Sequence[LibraryCall]) -> list[str]:
    """What to tell about awaits that were put in, at most one notice for a line."""
    by_line: dict[int, list[str]] = {}
    for call in calls:
        by_line.setdefault(call.node.lineno, []).append(f"{call.function}(...)")
    told = [f"line {line}: `await` was inserted before {_listed(by_line[line])}" for line in by_line]
    if len(told) <= _MAX_NOTICES:
        return told
    others = ", ".join(str(line) for line in list(by_line)[_MAX_NOTICES - 1 :][:20])
    more = ", ..." if len(by_line) > _MAX_NOTICES + 19 else ""
    summary = f"`await` was inserted before {len(calls)} library calls in all, also in lines {others}{more}"
    return [*told[: _MAX_NOTICES - 1], summary]


def _listed(calls: list[str]) -> str:
    if len(calls) <= _MAX_CALLS:
        return " and ".join(calls)
    return f"{', '.join(calls[:_MAX_CALLS])} and {len(calls) - _MAX_CALLS} more"


def barrier_notices(calls: Sequence[LibraryCall]) -> list[str]:
    """What to tell about calls that are never awaited where no `await` may stand."""
    told = []
    for call in calls[:_MAX_NOTICES]:
        assert call.barrier is not None
        remedy = _REMEDIES.get(call.barrier, "make it an `async def` and await its calls")
        told.append(
            f"line {call.node.lineno}: {call.function}(...) is never awaited, and no `await` may stand in "
            f"{call.barrier}: {remedy}"
        )
    return told


def _is_closed(lines: list[bytes], line: int, column: int) -> bool:
    """True if the call ends just before a `)`: parentheses of its own stand around it already."""
    rest = lines[line - 1][column:].strip()
    while not rest and line < len(lines):
        rest = lines[line].strip()
        line += 1
    return rest.startswith(b")")
