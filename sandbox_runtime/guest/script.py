"""One script: read, mended where an `await` was forgotten, and run for its value."""

import ast
import linecache
import re
import warnings
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from sandbox_runtime.guest.awaits import await_notices, barrier_notices, forgotten_calls, with_awaits
from sandbox_runtime.guest.expression_flow import LibraryCall
from sandbox_runtime.guest.library_names import LIBRARY, LibraryNames
from sandbox_runtime.guest.program import FILENAME, Program
from sandbox_runtime.guest.scopes import Scopes


@dataclass(frozen=True)
class Script:
    """A script that can run.

    `source` is its text after the insertion of awaits, line for line the user's. `names` are the library's
    namespaces it mentions, `uses` the library's functions it refers to: (namespace, function, line), with an
    empty function for a namespace that does not exist. What the script tries in a `try` that would catch its
    absence is not among them.
    """

    source: str
    names: frozenset[str]
    uses: list[tuple[str, str, int]]
    notices: list[str]
    _program: Program

    @classmethod
    def parse(cls, text: str, namespaces: frozenset[str]) -> "Script":
        """Read a script that may use the library's `namespaces`.

        Raises:
            SyntaxError: At the line and column of the text as it was given.
            ValueError, RecursionError, MemoryError: The text is more than Python itself can take.
        """
        text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a "\d" in a script is the script's own affair
            tree = ast.parse(text, FILENAME)
            if not {LIBRARY, *namespaces}.intersection(re.findall(r"\w+", text)):
                return cls(text, frozenset(), [], [], Program.compile(tree))
            scopes = Scopes(tree)
            names = LibraryNames(tree, scopes, namespaces)
            try:
                forgotten = forgotten_calls(tree, scopes, names)
            except RecursionError:
                forgotten = []  # nested deeper than can be followed: it stays as it is
            source, program, inserted = _mended(text, tree, scopes.followed, forgotten)
        barred = [call for call in forgotten if call.barrier is not None]
        notices = [*await_notices(inserted), *barrier_notices(barred)]
        return cls(source, names.names, names.uses, notices, program)

    def run(self, globals: dict[str, Any], drive: Callable[[Coroutine[Any, Any, Any]], Any]) -> Any:
        """Run the script in `globals` and return its value: its last expression, or what it returns.

        `drive` runs a coroutine to its end; a script that never awaits at its top level does without it, so
        that its own `asyncio.run` works.
        """
        lines = [line + "\n" for line in self.source.split("\n")]
        linecache.cache[FILENAME] = (len(self.source), None, lines, FILENAME)
        return self._program.run(globals, drive)


def _mended(
    text: str, tree: ast.Module, followed: set[ast.expr], forgotten: list[LibraryCall]
) -> tuple[str, Program, list[LibraryCall]]:
    """The text with its awaits, its program, and the calls that got one."""
    calls = [call for call in forgotten if call.barrier is None]
    if calls:
        source = with_awaits(text, tree, followed, calls)
        try:
            return source, Program.compile(ast.parse(source, FILENAME)), calls
        except SyntaxError:
            pass  # either the script's own mistake, which is told at its own place, or ours, which nobody sees
    return text, Program.compile(tree), []
