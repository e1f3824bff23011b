"""A script that was parsed inside the sandbox and has not run yet."""

from dataclasses import dataclass

from sandbox_runtime.result import RunError


@dataclass(frozen=True, slots=True)
class LibraryUse:
    """A place where the script mentions a function of the library."""

    namespace: str
    function: str
    line: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """What parsing told. The guest says all of it, so it may advise, and never permit.

    `source` is the script after await insertion, with the same line numbers; `names` are the namespaces
    it mentions; `error` is set when it cannot run.
    """

    source: str
    names: frozenset[str] = frozenset()
    uses: tuple[LibraryUse, ...] = ()
    notices: tuple[str, ...] = ()
    error: RunError | None = None
