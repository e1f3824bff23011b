"""The limits of a run, and the words for exceeding one: which, its value, and where it is set."""

from collections.abc import Callable
from dataclasses import dataclass

from manifests.grants import Limits
from sandbox_runtime.frames import TrapCause
from sandbox_runtime.result import RunError

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

    def wall(self) -> RunError:
        return self._error("wall_limit", "wall_seconds", "the script was stopped after")

    def memory(self) -> RunError:
        return self._error("memory_limit", "memory_mib", "the script needed more memory than")

    def calls(self) -> RunError:
        return self._error(
            "tool_calls_limit", "tool_calls", "the script was stopped: it went on calling after"
        )

    def result(self, size: int | None) -> RunError:
        told = "" if size is None else f", {size:,} bytes,"
        return self._error("result_limit", "result_bytes", f"the script's result{told} is over")

    @property
    def result_values(self) -> int:
        """How many values a result and the blocks beside it may hold."""
        return self.limits.result_bytes // RESULT_VALUE_BYTES + 1

    @property
    def argument_values(self) -> int:
        """How many values the arguments of one call may hold."""
        return self.limits.argument_bytes // ARGUMENT_VALUE_BYTES + 1

    def too_many_values(self) -> RunError:
        what = f"the script's result holds too many values, of which each counts as {RESULT_VALUE_BYTES} bytes, for"
        return self._error("result_limit", "result_bytes", what)

    def trap(self, cause: int, message: str) -> RunError:
        """The error for an instance that ended without an answer."""
        match cause:
            case TrapCause.CPU:
                return self._error(
                    "cpu_limit", "cpu_seconds", "the script was stopped: it computed for more than"
                )
            case TrapCause.MEMORY:
                return self.memory()
            case TrapCause.RESULT:
                return self.result(None)
            case TrapCause.OUTBOX:
                return self._error(
                    "argument_limit", "argument_bytes", "the script was stopped: a call was far over"
                )
            case TrapCause.STACK:
                return RunError(
                    "script_error", "RecursionError: the script exhausted the interpreter's stack"
                )
            case TrapCause.WAIT:
                told = "the script waited in a way that no limit could end"
                return RunError(
                    "script_error", f"RuntimeError: {told}", hint="Use asyncio, time.sleep or select.select."
                )
            case TrapCause.EXIT | TrapCause.CLEAN_EXIT:
                return RunError("script_exit", "the script ended its process")
        reason = message.rpartition("wasm trap: ")[2].splitlines()[:1] or ["unknown"]
        return RunError("script_error", f"SystemError: the interpreter broke down ({reason[0][:200]})")

    def _error(self, code: str, key: str, what: str) -> RunError:
        return RunError(code, f"{what} {self.name(key)}", hint=_HINTS.get(key, ""))


def worker_lost(reason: str) -> RunError:
    return RunError("worker_lost", f"the worker process of this run is gone: {reason}", hint=_LEDGER_HINT)
