"""Makes scripts readable for Pythons older than the sandbox's, which do not know its newer statements yet.

Since 3.12 a function or class may have type parameters, `def first[T](rows: list[T])`, and `type Row = dict[str, T]` is
a statement; since 3.14 `except KeyError, ValueError:` needs no parentheses. Each becomes an older statement that means
the same to the check, as far as possible of the same length, so that all else keeps its place.
"""

import re
from typing import Final

# No pattern can match the same text in two ways, and a string that never ends goes as far as it can: what is tried
# again behind each quote or for each number of spaces would take minutes for a long script.
_STRING_OR_COMMENT: Final = re.compile(
    r"\#[^\n]*|(\"{3}|'{3})(?:\\.|(?!\1)[^\\])*(?:\1|\\?\Z)"
    r"|\"(?:\\.|[^\"\\\n])*(?:\"|\\?\Z|(?=\n))|'(?:\\.|[^'\\\n])*(?:'|\\?\Z|(?=\n))",
    re.DOTALL,
)
_DEFINITION: Final = re.compile(r"\b(?:def|class)[ \t]+\w+[ \t]*(?=\[)")
_ALIAS: Final = re.compile(r"(?m)^([ \t]*)type[ \t]+(\w+)[ \t]*(?:\[[^\n]*?\][ \t]*)?=(?!=)[ \t]*")
_EXCEPT: Final = re.compile(
    r"(?m)^([ \t]*except)([ \t]*\*)?[ \t]*([\w.]+(?:[ \t]*,[ \t]*[\w.]+)+)(?:[ \t]*,)?[ \t]*:"
)


def with_older_syntax(source: str) -> str:
    """The source without the newer statements; it need not be Python. Lines stay where they are."""
    # The patterns look at a copy in which texts and comments hold nothing; what they change is outside of those.
    plain = _STRING_OR_COMMENT.sub(lambda found: re.sub(r"[^\n]", "_", found[0]), source)
    changes: list[tuple[int, int, str]] = []
    ends = _bracket_ends(plain)
    end = 0
    for found in _DEFINITION.finditer(plain):
        start = found.end()
        if start >= end and start in ends:
            end = ends[start]
            changes.append((start, end, re.sub(r"[^\n]", " ", plain[start:end])))
    for found in _ALIAS.finditer(plain):
        older = f"{found[1]}{found[2]}=lambda:"  # read when somebody asks for it, as the value of a `type` is
        changes.append((*found.span(), older.ljust(len(found[0]))))
    for found in _EXCEPT.finditer(plain):
        names = ",".join(name.strip() for name in found[3].split(","))
        star = "*" if found[2] else ""
        changes.append((*found.span(), f"{found[1]}{star}({names})".ljust(len(found[0]) - 1) + ":"))
    return _changed(source, changes)


def _changed(source: str, changes: list[tuple[int, int, str]]) -> str:
    parts = []
    at = 0
    for start, end, text in sorted(changes):
        if start >= at:
            parts += [source[at:start], text]
            at = end
    return "".join([*parts, source[at:]])


def _bracket_ends(plain: str) -> dict[int, int]:
    """Where the brackets that are closed open, and where each is closed, behind it."""
    ends: dict[int, int] = {}
    opened: list[int] = []
    for found in re.finditer(r"[\[\]]", plain):
        if found[0] == "[":
            opened.append(found.start())
        elif opened:
            ends[opened.pop()] = found.end()
    return ends
