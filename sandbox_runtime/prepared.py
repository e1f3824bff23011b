"""A script that was parsed inside the sandbox and has not run yet."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from manifests.json_value import Json
from sandbox_runtime.result import RunError

UNKNOWN_VALUE: Final = "\x00"
"""Stands in the arguments of a use for what only the running script knows."""

SPREAD: Final = "**"
"""The name of an argument that stands for any others."""


@dataclass(frozen=True, slots=True)
class LibraryUse:
    """A place where the script mentions a function of the library.

    The function is empty where the script imports a namespace that does not exist; the namespace is empty where it
    calls a bare name that nothing binds. `arguments` are those of a call, with literals as their values; arguments by
    position are called `*0`, `*1`.
    """

    namespace: str
    function: str
    line: int
    end_line: int = 0
    arguments: Mapping[str, Json] | None = None


@dataclass(frozen=True, slots=True)
class ScriptProblem:
    """A mistake that the sandbox saw while it read the script."""

    line: int
    code: str
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """What parsing told. The guest says all of it, so it may advise, and never permit.

    `source` is the script after await insertion, with the same line numbers; `names` are the namespaces
    it mentions; `certain` are the first and last lines of what runs outside of any `try`, at module level or in a
    function that is called there; `error` is set when it cannot run.
    """

    source: str
    names: frozenset[str] = frozenset()
    uses: tuple[LibraryUse, ...] = ()
    notices: tuple[str, ...] = ()
    error: RunError | None = None
    problems: tuple[ScriptProblem, ...] = ()
    certain: tuple[tuple[int, int], ...] = ()

    def is_certain(self, line: int) -> bool:
        """Whether the script runs this line, if it comes so far, and nothing in it catches an error there."""
        return any(first <= line <= last for first, last in self.certain)
