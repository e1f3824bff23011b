"""Puts in the awaits that a script forgot, as text, and says so."""

import ast
from collections.abc import Iterable, Sequence

from sandbox_runtime.guest.dataflow import DataFlow
from sandbox_runtime.guest.expression_flow import LibraryCall
from sandbox_runtime.guest.library_names import LibraryNames
from sandbox_runtime.guest.scopes import Scopes

_MAX_NOTICES = 5
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
    awaited = {node.value for node in ast.walk(tree) if isinstance(node, ast.Await)}
    if all(call in awaited for call in names.calls):
        return []
    return DataFlow(tree, scopes, names).forgotten()


def with_awaits(text: str, tree: ast.Module, calls: Iterable[LibraryCall]) -> str:
    """The text with an `await` before each call, in parentheses where what follows binds tighter."""
    followed = _followed(tree)
    lines = [line.encode() for line in text.split("\n")]
    insertions: list[tuple[int, int, bytes]] = []
    for call in calls:
        node = call.node
        assert node.end_lineno is not None and node.end_col_offset is not None
        end = node.end_lineno, node.end_col_offset
        is_bare = node in followed and not _is_closed(lines, *end)
        insertions.append((node.lineno, node.col_offset, b"(await " if is_bare else b"await "))
        if is_bare:
            insertions.append((*end, b")"))
    for line, column, inserted in sorted(insertions, reverse=True):
        old = lines[line - 1]
        lines[line - 1] = old[:column] + inserted + old[column:]
    return b"\n".join(lines).decode()


def await_notices(calls: Sequence[LibraryCall]) -> list[str]:
    """What to tell about awaits that were put in, at most one notice for a line."""
    by_line: dict[int, list[str]] = {}
    for call in calls:
        by_line.setdefault(call.node.lineno, []).append(f"{call.function}(...)")
    told = [f"line {line}: `await` was inserted before {' and '.join(by_line[line])}" for line in by_line]
    if len(told) <= _MAX_NOTICES:
        return told
    others = ", ".join(str(line) for line in list(by_line)[_MAX_NOTICES - 1 :][:20])
    more = ", ..." if len(by_line) > _MAX_NOTICES + 19 else ""
    summary = f"`await` was inserted before {len(calls)} library calls in all, also in lines {others}{more}"
    return [*told[: _MAX_NOTICES - 1], summary]


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


def _followed(tree: ast.Module) -> set[ast.expr]:
    """The expressions that a `.name`, `[...]` or `(...)` follows."""
    followed: set[ast.expr] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Attribute, ast.Subscript)):
            followed.add(node.value)
        elif isinstance(node, ast.Call):
            followed.add(node.func)
    return followed


def _is_closed(lines: list[bytes], line: int, column: int) -> bool:
    """True if the call ends just before a `)`: parentheses of its own stand around it already."""
    rest = lines[line - 1][column:].strip()
    while not rest and line < len(lines):
        rest = lines[line].strip()
        line += 1
    return rest.startswith(b")")
