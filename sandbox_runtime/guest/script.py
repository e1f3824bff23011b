"""One script: read, mended where an `await` was forgotten, and run for its value."""

import ast
import linecache
import warnings
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from sandbox_runtime.guest.program import FILENAME, Program


@dataclass(frozen=True)
class Script:
    """A script that can run.

    `source` is its text after the insertion of awaits, line for line the user's. `names` are the library's
    namespaces it mentions, `uses` the library's functions it refers to: (namespace, function, line).
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
            names = frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name)) & namespaces
            program = Program.compile(tree)
        return cls(text, names, [], [], program)

    def run(self, globals: dict[str, Any], drive: Callable[[Coroutine[Any, Any, Any]], Any]) -> Any:
        """Run the script in `globals` and return its value: its last expression, or what it returns.

        `drive` runs a coroutine to its end; a script that never awaits at its top level does without it, so
        that its own `asyncio.run` works.
        """
        lines = [line + "\n" for line in self.source.split("\n")]
        linecache.cache[FILENAME] = (len(self.source), None, lines, FILENAME)
        return self._program.run(globals, drive)
