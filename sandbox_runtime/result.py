"""What came of parsing a script and of running it, and the words for a limit that it exceeded."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

from pydantic import Field

from manifests.grants import Limits
from manifests.json_value import Json
from sandbox_runtime.frames import TrapCause


@dataclass(frozen=True, slots=True)
class RunError:
    """Why a run did not end well. `code` is stable; `line` and `traceback` are the script's own."""

    code: str
    message: str
    line: int | None = None
    hint: str = ""
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class RunResult:
    """The end of a run. With an error `value` is None, and `stdout` and `emitted` hold what came before it.

    `cpu_ms` is the worker's own measure, 0 when the worker was killed.
    """

    value: Json
    error: RunError | None
    stdout: str
    stdout_bytes_dropped: int
    emitted: tuple[dict[str, Json], ...]
    notices: tuple[str, ...]
    wall_ms: float
    cpu_ms: float


UNKNOWN_VALUE: Final = "\x00"
"""Stands in the arguments of a use for what only the running script knows."""

SPREAD: Final = "**"
"""The name of an argument that stands for any others."""


Line: TypeAlias = Annotated[int, Field(gt=0, le=1 << 21)]


class LibraryUse(NamedTuple):
    """A place where the script mentions a function of the library.

    The function is empty where the script imports a namespace that does not exist; the namespace is empty where it
    calls a bare name that nothing binds. `arguments` are those of a call, with literals as their values; arguments by
    position are called `*0`, `*1`.
    """

    namespace: str
    function: str
    line: Line
    end_line: Line = 1
    arguments: dict[str, Any] | None = None


class ScriptProblem(NamedTuple):
    """A mistake that the sandbox saw while it read the script."""

    line: Line
    code: Literal["not_awaited", "not_called", "not_a_function", "not_python", "unknown_field"]
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


RESULT_VALUE_BYTES = 32
ARGUMENT_VALUE_BYTES = 8
"""What each value of JSON counts at least against the bytes that bound it."""

_LEDGER_HINT = "A call that the ledger calls unknown may have happened: check before running it again."
_HINTS = {
    "wall_seconds": "Make slow calls in parallel with asyncio.gather, or do the work in several scripts.",
    "cpu_seconds": "Let the tools filter and sort, or work on less data.",
    "memory_mib": "Work on data in pieces, and keep only what you need of each.",
    "tool_calls": "Do the work in fewer calls, or in several scripts.",
    "result_bytes": "Return a summary, or only the rows and fields that matter.",
}


_EXCEEDED = {
    "wall_limit": ("wall_seconds", "the script was stopped after"),
    "cpu_limit": ("cpu_seconds", "the script was stopped: it computed for more than"),
    "memory_limit": ("memory_mib", "the script needed more memory than"),
    "tool_calls_limit": ("tool_calls", "the script was stopped: it went on calling after"),
    "argument_limit": ("argument_bytes", "the script was stopped: a call was far over"),
    "result_limit": ("result_bytes", "the script's result"),
}
_TRAPS: dict[int, str] = {
    TrapCause.CPU: "cpu_limit",
    TrapCause.MEMORY: "memory_limit",
    TrapCause.OUTBOX: "argument_limit",
}
_ENDED = RunError("script_exit", "the script ended its process")
_BY_WAITING = "RuntimeError: the script waited in a way that no limit could end"
_ENDINGS: dict[int, RunError] = {
    TrapCause.EXIT: _ENDED,
    TrapCause.CLEAN_EXIT: _ENDED,
    TrapCause.STACK: RunError("script_error", "RecursionError: the script exhausted the interpreter's stack"),
    TrapCause.WAIT: RunError("script_error", _BY_WAITING, hint="Use asyncio, time.sleep or select.select."),
}


def limit_text(limits: object, key: str, where: Callable[[str], str]) -> str:
    """For example "the limit tool_calls of 200 (portal.yaml:14:5)"; `where` says where a limit is set."""
    return f"the limit {key} of {getattr(limits, key):,} ({where(key)})"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits with their origin; `where` says where a limit is set, as an operator would look it up."""

    limits: Limits
    where: Callable[[str], str]

    def name(self, key: str) -> str:
        """For example "the limit tool_calls of 200 (portal.yaml:14:5)"."""
        return limit_text(self.limits, key, self.where)

    def exceeded(self, code: str, *, more: str = "") -> RunError:
        """The error with this code, of `_EXCEEDED`."""
        key, what = _EXCEEDED[code]
        return RunError(code, f"{what}{more} {self.name(key)}", hint=_HINTS.get(key, ""))

    def result(self, size: int | None) -> RunError:
        return self.exceeded(
            "result_limit", more=" is over" if size is None else f", {size:,} bytes, is over"
        )

    @property
    def result_values(self) -> int:
        """How many values a result and the blocks beside it may hold."""
        return self.limits.result_bytes // RESULT_VALUE_BYTES + 1

    @property
    def argument_values(self) -> int:
        """How many values the arguments of one call may hold."""
        return self.limits.argument_bytes // ARGUMENT_VALUE_BYTES + 1

    def too_many_values(self) -> RunError:
        more = f" holds too many values, of which each counts as {RESULT_VALUE_BYTES} bytes, for"
        return self.exceeded("result_limit", more=more)

    def trap(self, cause: int, message: str) -> RunError:
        """The error for an instance that ended without an answer."""
        if cause == TrapCause.RESULT:
            return self.result(None)
        if cause in _TRAPS:
            return self.exceeded(_TRAPS[cause])
        if cause in _ENDINGS:
            return _ENDINGS[cause]
        reason = message.rpartition("wasm trap: ")[2].splitlines()[:1] or ["unknown"]
        return RunError("script_error", f"SystemError: the interpreter broke down ({reason[0][:200]})")


def worker_lost(reason: str) -> RunError:
    return RunError("worker_lost", f"the worker process of this run is gone: {reason}", hint=_LEDGER_HINT)
