"""Docstrings and comments of stubs: text of strangers in places that only a quote or a newline ends."""

import re

from portal.library.plain_text import one_line, readable

LONGEST_DOC = 1_500
"""Characters of a tool's description that its docstring keeps."""

LONGEST_COMMENT = 100
"""Characters of a field's description that stand behind it."""

_ENDING_QUOTES = re.compile(r'"{3,}|"+\Z')
_PRAGMA = re.compile(r"#*\s*\b(type|ty|mypy|pyright|noqa)(?=\s*:)")


def docstring(text: str, indent: str = "") -> str:
    """A docstring with this text, already free of hidden characters, and nothing behind it."""
    lines = _ENDING_QUOTES.sub(_escaped_quotes, text.replace("\\", "\\\\")).split("\n")
    body = "\n".join([lines[0], *(f"{indent}{line}".rstrip() for line in lines[1:])])
    end = f"\n{indent}" if len(lines) > 1 else ""
    return f'{indent}"""{body}{end}"""'


def description(text: str) -> str:
    """A tool's description as its docstring tells it."""
    return readable(text, LONGEST_DOC)


def comment(text: str, longest: int = LONGEST_COMMENT) -> str:
    """A trailing comment, or nothing: one line that no type checker takes for an instruction."""
    line = _PRAGMA.sub(r"\1 ", one_line(text, longest))
    return f"  # {line}" if line else ""


def _escaped_quotes(quotes: re.Match[str]) -> str:
    return '\\"' * len(quotes[0])
