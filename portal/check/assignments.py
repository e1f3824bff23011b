"""Which names the assignments of a block bind, and to what."""

import ast
from collections.abc import Iterator


def assigned(body: list[ast.stmt]) -> Iterator[tuple[ast.AST, ast.expr]]:
    """The targets of plain assignments that run whenever what follows them does, and what they get."""
    for statement in body:
        if isinstance(statement, ast.AnnAssign) and statement.value is not None:
            yield statement.target, statement.value
        elif isinstance(statement, ast.Assign):
            # What several names share may be changed by way of any of them.
            is_one = len(statement.targets) == 1 or isinstance(statement.value, ast.Constant)
            for target in statement.targets if is_one else ():
                yield from _pairs(target, statement.value)


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.AST, ast.expr]]:
    """Of `mode, n = "read", 3` each name with its own value."""
    rows = (ast.List, ast.Tuple)
    if isinstance(target, ast.Name):
        yield target, value
    elif isinstance(target, rows) and isinstance(value, rows) and len(target.elts) == len(value.elts):
        is_plain = not any(isinstance(part, ast.Starred) for part in (*target.elts, *value.elts))
        for part, its_value in zip(target.elts, value.elts, strict=True) if is_plain else ():
            yield from _pairs(part, its_value)
