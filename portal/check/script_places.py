"""Finds the expression of a script that stands at a given place in its text."""

import ast
from collections.abc import Iterable

from portal.check.ty_server import Finding


class ScriptPlaces:
    """A script's expressions by where they begin and end.

    Python counts columns in UTF-8 bytes, the language server in characters.
    """

    def __init__(self, source: str, nodes: Iterable[ast.AST]) -> None:
        lines = source.split("\n")
        self._is_ascii = [line.isascii() for line in lines]
        self._lines = [line.encode() for line in lines]
        self._nodes: dict[tuple[int, int, int, int], ast.expr] = {}
        for node in nodes:
            if not isinstance(node, (ast.expr, ast.keyword)):
                continue
            if node.end_lineno is not None and node.end_col_offset is not None:
                start = self._characters(node.lineno, node.col_offset)
                end = self._characters(node.end_lineno, node.end_col_offset)
                expression = node.value if isinstance(node, ast.keyword) else node
                self._nodes.setdefault((node.lineno, start, node.end_lineno, end), expression)

    def at(self, finding: Finding) -> ast.expr | None:
        """The expression that a finding is about; of a keyword argument, its value."""
        return self._nodes.get((finding.line, finding.column, finding.end_line, finding.end_column))

    def _characters(self, line: int, column: int) -> int:
        if self._is_ascii[line - 1]:
            return column
        return len(self._lines[line - 1][:column].decode(errors="replace"))
