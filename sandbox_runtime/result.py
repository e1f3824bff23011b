"""The results of parsing and running a script, and the messages about exceeded limits.

The guest's answers are untrusted: types are checked, lengths are cut, and only known error codes pass.
"""

from collections.abc import Callable, Container
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, Field, ValidationError

from manifests.grants import Limits
from manifests.json_value import Json
from manifests.kernels import PYTHON
from sandbox_runtime.frames import END_HEADER, MAX_BLOCKS, FrameError, TrapCause
from sandbox_runtime.guest_json import GuestJsonError, parse, values_in
from sandbox_runtime.kernels import KERNELS, Kernel


@dataclass(frozen=True, slots=True)
class RunError:
    """Why a run failed. `code` is stable; `line` and `traceback` are of the script."""

    code: str
    message: str
    line: int | None = None
    hint: str = ""
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a run. With an error `value` is None; `stdout` and `emitted` have what came before it.

    The worker measures `cpu_ms`; it is 0 if the worker was killed.
    """

    value: Json
    error: RunError | None
    stdout: str
    stdout_bytes_dropped: int
    emitted: tuple[dict[str, Json], ...]
    notices: tuple[str, ...]
    wall_ms: float
    cpu_ms: float
    answers_bytes: int = 0
    """Bytes of the answers that the script's calls got in this process, as JSON."""


UNKNOWN_VALUE: Final = "\x00"
"""Placeholder for an argument value that is known only at run time."""

FROM_RESULT: Final = "\x01"
"""Like UNKNOWN_VALUE, for a value that may come from a result, which may differ from its declared type."""

SPREAD: Final = "**"
"""Placeholder name for any other arguments."""


Line: TypeAlias = Annotated[int, Field(gt=0, le=1 << 21)]


class LibraryUse(NamedTuple):
    """A place where the script mentions a function of the library.

    The function is "" for the import of a missing namespace; the namespace is "" for a call of an unbound bare name.
    `arguments` are those of a call, with literals as values. Positional ones are called `*0`, `*1`.
    """

    namespace: str
    function: str
    line: Line
    end_line: Line = 1
    arguments: dict[str, Any] | None = None


class ScriptProblem(NamedTuple):
    """A mistake found in the script, perhaps about the result of `function`, which is stored under `name`."""

    line: Line
    code: Literal[
        "not_awaited",
        "not_called",
        "not_a_function",
        "not_python",
        "not_javascript",
        "not_there",
        "not_defined",
        "no_files",
        "unknown_field",
        "keys_only",
    ]
    message: str
    hint: str
    function: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Prepared:
    """The result of parsing. All of it comes from the guest, so it may inform, but never grant anything.

    `source` is the script with inserted awaits and the same line numbers. `names` are the namespaces that it mentions.
    `unguarded_lines` are the lines outside of any `try`, at module level or in a function that is called there. `error`
    is set if the script cannot run.
    """

    source: str
    names: frozenset[str] = frozenset()
    uses: tuple[LibraryUse, ...] = ()
    notices: tuple[str, ...] = ()
    error: RunError | None = None
    problems: tuple[ScriptProblem, ...] = ()
    unguarded_lines: frozenset[int] = frozenset()


RESULT_VALUE_BYTES = 32
ARGUMENT_VALUE_BYTES = 8
"""The least number of bytes that a JSON value counts against a limit."""

_EXCEEDED = {
    "wall_limit": ("wall_seconds", "the script was stopped after"),
    "cpu_limit": ("cpu_seconds", "the script was stopped: its CPU time exceeded"),
    "memory_limit": ("memory_mib", "the script exceeded"),
    "tool_calls_limit": ("tool_calls", "the script was stopped: it kept calling after"),
    "argument_limit": ("argument_bytes", "the script was stopped: a call far exceeded"),
    "result_limit": ("result_bytes", "the script's result is over"),
}
"""By the error's code: the key of the limit, and what its message says before that."""
HINTS = {
    "wall_limit": "Make slow calls in parallel with {parallel}, or split the work into several scripts.",
    "cpu_limit": "Let the tools filter and sort, or process less data.",
    "memory_limit": "Process data in chunks, and keep only what you need.",
    "tool_calls_limit": "Do the work in fewer calls, or in several scripts.",
    "argument_limit": "Send less in one call.",
    "result_limit": "Return a summary, or only the rows and fields that matter.",
}
"""By the same code: what to do next. Refused calls have the same hints (admission.py)."""
_TRAPS: dict[int, str] = {
    TrapCause.CPU: "cpu_limit",
    TrapCause.MEMORY: "memory_limit",
    TrapCause.OUTBOX: "argument_limit",
    TrapCause.RESULT: "result_limit",
}


def limit_text(limits: object, key: str, where: Callable[[str], str]) -> str:
    """A limit in words: "the limit tool_calls of 200 (portal.yaml:14:5)"; `where` gives its place."""
    return f"the limit {key} of {getattr(limits, key):,} ({where(key)})"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits with their places; `where` gives that of a limit in the manifest. Errors are in the kernel's words."""

    limits: Limits
    where: Callable[[str], str]
    kernel: Kernel = KERNELS[PYTHON]

    def name(self, key: str) -> str:
        return limit_text(self.limits, key, self.where)

    def exceeded(self, code: str, words: str = "") -> RunError:
        """The error of an exceeded limit; `code` is a key of `_EXCEEDED`. `words` say more than those there."""
        key, usual_words = _EXCEEDED[code]
        hint = HINTS[code].format(parallel=self.kernel.parallel)
        return RunError(code, f"{words or usual_words} {self.name(key)}", hint=hint)

    def result(self, size: int) -> RunError:
        return self.exceeded("result_limit", f"the script's result, {size:,} bytes, is over")

    @property
    def result_values(self) -> int:
        """At most this many values are allowed in a result and its blocks together."""
        return self.limits.result_bytes // RESULT_VALUE_BYTES + 1

    @property
    def argument_values(self) -> int:
        """At most this many values are allowed in the arguments of one call."""
        return self.limits.argument_bytes // ARGUMENT_VALUE_BYTES + 1

    def trap(self, cause: int, message: str) -> RunError:
        """The error of an instance that ended without an answer."""
        if cause in _TRAPS:
            return self.exceeded(_TRAPS[cause])
        if cause in (TrapCause.EXIT, TrapCause.CLEAN_EXIT):
            return RunError("script_exit", "the script ended its process")
        if cause == TrapCause.STACK:
            exhausted = f"{self.kernel.stack_error}: the script exhausted the interpreter's stack"
            return RunError("script_error", exhausted)
        if cause == TrapCause.WAIT:
            waited = "RuntimeError: the script used an uninterruptible wait"
            return RunError("script_error", waited, hint=self.kernel.wait_hint)
        reason = message.rpartition("wasm trap: ")[2].splitlines()[:1] or ["unknown"]
        crashed = f"{self.kernel.crash_error}: the interpreter crashed ({reason[0][:200]})"
        return RunError("script_error", crashed)

    @property
    def broken(self) -> "_Error":
        """The error for a message that an honest guest never sends."""
        return _Error(message=f"{self.kernel.crash_error}: the script broke the interpreter")


def worker_lost(reason: str) -> RunError:
    hint = "Calls that are unknown in the ledger may have happened: check before running the script again."
    return RunError("worker_lost", f"the worker process of this run is gone: {reason}", hint=hint)


@dataclass(eq=False)
class Captured:
    """The captured output, content blocks and CPU time of a run, kept however it ends."""

    limits: Limits
    cpu_ms: float = 0.0
    dropped_bytes: int = 0
    notices: list[str] = field(default_factory=list)
    output: list[bytes] = field(default_factory=list)
    blocks: list[bytes] = field(default_factory=list)
    output_bytes: int = 0
    blocks_bytes: int = 0

    @property
    def stdout(self) -> str:
        return b"".join(self.output).decode("utf-8", "replace")

    def take_end(self, payload: bytes) -> None:
        """Store what a FINISHED or TRAPPED frame begins with."""
        self.cpu_ms, self.dropped_bytes = END_HEADER.unpack_from(payload)

    def take_output(self, text: bytes) -> None:
        """Store printed text. Raises FrameError: more than an honest worker passes on."""
        self.output_bytes += len(text)
        if self.output_bytes > self.limits.stdout_bytes:
            raise FrameError("more output than is allowed")
        self.output.append(text)

    def take_block(self, payload: bytes) -> None:
        """Store an emitted block, to be parsed after the run. Raises FrameError: as `take_output`."""
        self.blocks_bytes += len(payload)
        if self.blocks_bytes > self.limits.result_bytes or len(self.blocks) > MAX_BLOCKS:
            raise FrameError("more content than is allowed")
        self.blocks.append(payload)

    def read_blocks(self, most_values: int) -> tuple[tuple[dict[str, Json], ...], int]:
        """The content blocks, and how many values they have. Invalid ones are left out with a notice."""
        blocks: list[dict[str, Json]] = []
        problems = [f"there are already {MAX_BLOCKS:,}"] if len(self.blocks) > MAX_BLOCKS else []
        left = most_values
        for payload in self.blocks[:MAX_BLOCKS]:
            count = values_in(payload, left)
            if count > left:
                problems.append("it has too many values for the limit result_bytes")
                continue
            left -= count
            try:
                block = parse(payload)
            except GuestJsonError as problem:
                problems.append(str(problem))
                continue
            if isinstance(block, dict) and isinstance(block.get("type"), str):
                blocks.append(block)
            else:
                problems.append("it is not an object with a type")
        self.notices += [
            f"a content block was left out of the answer: {why}" for why in dict.fromkeys(problems)
        ]
        return tuple(blocks), most_values - left


_MAX_TEXT_CHARS = 8000
_MAX_NOTICES = 100
_MAX_USES = 1_000
_MAX_NAMES = 10_000
_MAX_MESSAGE_VALUES = 100_000
_MAX_REPORTED_BYTES = 1 << 40
_GUEST_CODES = frozenset({"script_error", "script_exit", "result_not_json"})

_Text: TypeAlias = Annotated[str, AfterValidator(lambda text: text[:_MAX_TEXT_CHARS])]
_Notices: TypeAlias = Annotated[tuple[_Text, ...], AfterValidator(lambda notices: notices[:_MAX_NOTICES])]


class _Error(BaseModel):
    """An error from the guest. A script can set the code and the line to anything."""

    code: Any = None
    message: _Text = ""
    line: Any = None
    hint: _Text = ""
    traceback: _Text = ""
    bytes: Any = None

    def as_run_error(self, code: str) -> RunError:
        line = self.line if type(self.line) is int and 0 < self.line <= 1 << 21 else None
        return RunError(code, self.message or "the script failed", line, self.hint, self.traceback)


class _Ended(BaseModel):
    """The guest's header of a finished run."""

    error: _Error | None = None
    notices: _Notices = ()


class _Prepared(_Ended):
    """The guest's facts about a parsed script."""

    source: str | None = None
    names: Annotated[frozenset[_Text], Field(max_length=_MAX_NAMES)] = frozenset()
    uses: Annotated[tuple[LibraryUse, ...], Field(max_length=_MAX_USES)] = ()
    problems: Annotated[tuple[ScriptProblem, ...], Field(max_length=_MAX_USES)] = ()
    unguarded_lines: Annotated[frozenset[Line], Field(max_length=_MAX_MESSAGE_VALUES)] = frozenset()


_MessageType = TypeVar("_MessageType", bound=_Ended)


@dataclass(frozen=True, slots=True)
class Ending:
    """A run's value or error, and the guest's notices."""

    value: Json
    error: RunError | None
    notices: tuple[str, ...]


def read_prepared(payload: bytes, script: str, bounds: Bounds) -> Prepared:
    parsed = _read(_Prepared, payload, bounds)
    if parsed.error is not None:
        is_too_much = parsed.error.code == "memory_limit"
        error = bounds.exceeded("memory_limit") if is_too_much else parsed.error.as_run_error("syntax_error")
        return Prepared(script, error=error)
    # It may be the script with inserted awaits: the same lines, slightly longer.
    source = parsed.source or script
    is_plausible = len(source) <= 4 * len(script) + 100 and source.count("\n") == script.count("\n")
    problems, lines = parsed.problems, parsed.unguarded_lines
    source = source if is_plausible else script
    return Prepared(source, parsed.names, parsed.uses, parsed.notices, None, problems, lines)


def read_ending(payload: bytes, bounds: Bounds, error_codes: Container[str], most_values: int) -> Ending:
    """Read the guest's header and value; `error_codes` are those of the run's failed calls.

    The value may have `most_values`; a forged one causes no more work than an honest one.
    """
    header, _, value = payload.partition(b"\n")
    ended = _read(_Ended, header, bounds)
    if ended.error is not None:
        return Ending(None, _run_error(ended.error, bounds, error_codes), ended.notices)
    if len(value) > bounds.limits.result_bytes:
        return Ending(None, bounds.result(len(value)), ended.notices)
    if values_in(value, most_values) > most_values:
        words = f"the script's result has too many values (each counts as {RESULT_VALUE_BYTES} bytes) for"
        return Ending(None, bounds.exceeded("result_limit", words), ended.notices)
    try:
        return Ending(parse(value), None, ended.notices)
    except GuestJsonError as problem:
        error = RunError("result_not_json", f"the script's value cannot be returned: {problem}")
        return Ending(None, error, ended.notices)


def _run_error(error: _Error, bounds: Bounds, error_codes: Container[str]) -> RunError:
    code, size = error.code, error.bytes
    if code == "memory_limit":
        return replace(bounds.exceeded("memory_limit"), line=error.as_run_error("").line)
    if code == "result_limit":
        is_over = type(size) is int and bounds.limits.result_bytes < size <= _MAX_REPORTED_BYTES
        return bounds.result(size) if is_over else bounds.exceeded("result_limit")
    is_known = isinstance(code, str) and (code in _GUEST_CODES or code in error_codes)
    return error.as_run_error(code if is_known else "script_error")


def _read(kind: type[_MessageType], payload: bytes, bounds: Bounds) -> _MessageType:
    """Validate a message of the guest. An invalid one becomes the error `broken`."""
    try:
        if values_in(payload, _MAX_MESSAGE_VALUES) <= _MAX_MESSAGE_VALUES:
            return kind.model_validate(parse(payload))
    except (GuestJsonError, ValidationError):
        pass
    return kind(error=bounds.broken)
