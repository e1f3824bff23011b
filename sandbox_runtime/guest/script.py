"""One script: read as it was meant, mended where an `await` was forgotten, and run for its value."""

import ast
import linecache
import re
import textwrap
import warnings
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from sandbox_runtime.guest.awaits import await_notices, forgotten_calls, with_awaits
from sandbox_runtime.guest.names import LIBRARY, Names
from sandbox_runtime.guest.program import FILENAME, Program
from sandbox_runtime.guest.usage import Usage

_FENCE = re.compile(r"\s*(?:```|~~~)[\w ]*")
_DYNAMIC = frozenset({LIBRARY, "importlib", "__import__", "eval", "exec", "globals", "locals", "vars"})
"""Names with which a script may find a namespace that it spells in a string."""


@dataclass(frozen=True)
class Script:
    """A script that can run.

    `source` is its text after the insertion of awaits; lines are as they were given. `names` are the library's
    namespaces it mentions. `usage` is what the check is told; None if the script calls nothing.
    """

    source: str
    names: frozenset[str]
    notices: list[str]
    usage: Usage | None
    _program: Program

    @classmethod
    def parse(cls, text: str, namespaces: frozenset[str], known: Iterable[str] = ()) -> "Script":
        """Read a script that may use the library's `namespaces`, and names `known` from runs before it.

        Raises:
            SyntaxError: At the line and column of the text as it was given.
            ValueError, RecursionError, MemoryError: The text is more than Python itself can take.
        """
        text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a "\d" in a script is the script's own affair
            text, tree, notices = _read(text)
            mentioned = namespaces.intersection(re.findall(r"\w+", text))
            if not mentioned and LIBRARY not in text and "(" not in text:
                return cls(text, mentioned, notices, None, Program.compile(tree))
            names = Names(tree, namespaces, known)
            forgotten = forgotten_calls(names)
            usage = Usage(names, forgotten)
            inserted = [call for call in forgotten if not call.barrier]
            if inserted:
                source = with_awaits(text, names, [call.node for call in inserted])
                try:
                    program = Program.compile(ast.parse(source, FILENAME))
                except SyntaxError:
                    pass  # either the script's own mistake, which is told at its own place, or ours, which nobody sees
                else:
                    return cls(source, _named(names), [*notices, *await_notices(inserted)], usage, program)
            named = _named(names)
            return cls(text, named, notices, usage, Program.compile(tree))

    def run(self, globals: dict[str, Any], drive: Callable[[Coroutine[Any, Any, Any]], Any]) -> Any:
        """Run the script in `globals` and return its value: its last expression, or what it returns.

        `drive` runs a coroutine to its end; a script that never awaits at its top level does without it, so
        that its own `asyncio.run` works.
        """
        lines = [line + "\n" for line in self.source.split("\n")]
        linecache.cache[FILENAME] = (len(self.source), None, lines, FILENAME)
        return self._program.run(globals, drive)


def _read(text: str) -> tuple[str, ast.Module, list[str]]:
    """The text as it was meant, its syntax tree, and what to tell about it."""
    try:
        return text, ast.parse(text, FILENAME), []
    except SyntaxError:
        for meant, notice in _readings(text):
            try:
                return meant, ast.parse(meant, FILENAME), [notice]
            except SyntaxError:
                continue
        raise


def _readings(text: str) -> Iterator[tuple[str, str]]:
    """What a text that is no Python may mean, line for line."""
    if text[:1].isspace():
        yield textwrap.dedent(text), "the script was indented as a whole: the indentation was removed"
    lines = text.split("\n")
    fences = [index for index, line in enumerate(lines) if _FENCE.fullmatch(line)]
    if len(fences) == 2:
        first, last = fences
        inside = [line if first < index < last else "" for index, line in enumerate(lines)]
        yield textwrap.dedent("\n".join(inside)), "only what stands in the Markdown fence was run"


def _named(names: Names) -> frozenset[str]:
    """The namespaces that the code names, also in strings if it may find them so; rather one too many."""
    found = {node.id for node in names.all_of(ast.Name)} | {node.attr for node in names.all_of(ast.Attribute)}
    found.update(part for node in names.all_of(ast.alias) for part in node.name.split("."))
    found.update(part for node in names.all_of(ast.ImportFrom) for part in (node.module or "").split("."))
    if not found.isdisjoint(_DYNAMIC):
        for node in names.all_of(ast.Constant):
            if isinstance(node.value, str):
                found.update(re.findall(r"\w+", node.value))
    return names.namespaces & found
