"""Reads what the guest says, as far as it can be believed: types are checked, lengths cut, codes known."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, Field, ValidationError

from manifests.grants import Limits
from manifests.json_value import Json
from sandbox_runtime.frames import MAX_BLOCKS, FrameError
from sandbox_runtime.guest_json import GuestJsonError, parse, values_in
from sandbox_runtime.result import Bounds, LibraryUse, Line, Prepared, RunError, ScriptProblem


@dataclass(eq=False)
class Captured:
    """Kept to the end, however the run ends."""

    limits: Limits
    dropped_bytes: int = 0
    notices: list[str] = field(default_factory=list)
    output: list[bytes] = field(default_factory=list)
    blocks: list[bytes] = field(default_factory=list)
    output_bytes: int = 0
    blocks_bytes: int = 0

    @property
    def stdout(self) -> str:
        return b"".join(self.output).decode("utf-8", "replace")

    def take_output(self, text: bytes) -> None:
        """Keep printed text. Raises FrameError: it is more than an honest worker lets through."""
        self.output_bytes += len(text)
        if self.output_bytes > self.limits.stdout_bytes:
            raise FrameError("more output than is allowed")
        self.output.append(text)

    def take_block(self, payload: bytes) -> None:
        """Keep what a script emitted, to be read when the run is over. Raises FrameError like `take_output`."""
        self.blocks_bytes += len(payload)
        if self.blocks_bytes > self.limits.result_bytes or len(self.blocks) > MAX_BLOCKS:
            raise FrameError("more content than is allowed")
        self.blocks.append(payload)

    def read_blocks(self, most_values: int) -> tuple[tuple[dict[str, Json], ...], int]:
        """The content blocks, and how many values they hold; one that is none is left out, with a notice."""
        blocks: list[dict[str, Json]] = []
        problems = [f"there are {MAX_BLOCKS:,} already"] if len(self.blocks) > MAX_BLOCKS else []
        left = most_values
        for payload in self.blocks[:MAX_BLOCKS]:
            count = values_in(payload, left)
            if count > left:
                problems.append("it holds too many values for the limit result_bytes")
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
                problems.append("it is no object with a type")
        self.notices += [
            f"a content block was left out of the answer: {why}" for why in dict.fromkeys(problems)
        ]
        return tuple(blocks), most_values - left


_MAX_TEXT_CHARS = 8000
_MAX_NOTICES = 100
_MAX_USES = 1_000
_MAX_NAMES = 10_000
_MAX_VALUES_TOLD = 100_000
_MAX_BYTES_TOLD = 1 << 40
_GUEST_CODES = frozenset({"script_error", "script_exit", "result_not_json"})

_Text: TypeAlias = Annotated[str, AfterValidator(lambda text: text[:_MAX_TEXT_CHARS])]
_Notices: TypeAlias = Annotated[tuple[_Text, ...], AfterValidator(lambda notices: notices[:_MAX_NOTICES])]


class _Error(BaseModel):
    """A script may have given its exception any code, and its code any lines."""

    code: Any = None
    message: _Text = ""
    line: Any = None
    hint: _Text = ""
    traceback: _Text = ""
    bytes: Any = None

    def told(self, code: str) -> RunError:
        line = self.line if type(self.line) is int and 0 < self.line <= 1 << 21 else None
        return RunError(code, self.message or "the script failed", line, self.hint, self.traceback)


class _Ended(BaseModel):
    """What the guest tells of a run."""

    error: _Error | None = None
    notices: _Notices = ()


class _Prepared(_Ended):
    """What the guest tells of a script it parsed."""

    source: str | None = None
    names: Annotated[frozenset[_Text], Field(max_length=_MAX_NAMES)] = frozenset()
    uses: Annotated[tuple[LibraryUse, ...], Field(max_length=_MAX_USES)] = ()
    problems: Annotated[tuple[ScriptProblem, ...], Field(max_length=_MAX_USES)] = ()
    certain: Annotated[tuple[tuple[Line, Line], ...], Field(max_length=1 << 20)] = ()


_Told = TypeVar("_Told", bound=_Ended)
_BROKEN = _Error(message="SystemError: the script broke the interpreter it ran in")


@dataclass(frozen=True, slots=True)
class Ending:
    """A run's value or error, and the guest's notices."""

    value: Json
    error: RunError | None
    notices: tuple[str, ...]


def read_prepared(payload: bytes, script: str, bounds: Bounds) -> Prepared:
    """What the guest tells of a script it parsed."""
    told = _read(_Prepared, payload)
    if told.error is not None:
        is_too_much = told.error.code == "memory_limit"
        error = bounds.exceeded("memory_limit") if is_too_much else told.error.told("syntax_error")
        return Prepared(script, error=error)
    source = told.source if told.source is not None and _is_mended(told.source, script) else script
    return Prepared(source, told.names, told.uses, told.notices, problems=told.problems, certain=told.certain)


def read_ending(payload: bytes, bounds: Bounds, knows: Callable[[str], bool], most_values: int) -> Ending:
    """The guest's last words; `knows` tells whether a call of the run failed with a code.

    The value may hold `most_values`; a forged one is no more work than an honest one.
    """
    header, _, value = payload.partition(b"\n")
    told = _read(_Ended, header)
    if told.error is not None:
        return Ending(None, _run_error(told.error, bounds, knows), told.notices)
    if len(value) > bounds.limits.result_bytes:
        return Ending(None, bounds.result(len(value)), told.notices)
    if values_in(value, most_values) > most_values:
        return Ending(None, bounds.too_many_values(), told.notices)
    try:
        return Ending(parse(value), None, told.notices)
    except GuestJsonError as problem:
        error = RunError("result_not_json", f"the script's value cannot be returned: {problem}")
        return Ending(None, error, told.notices)


def _run_error(error: _Error, bounds: Bounds, knows: Callable[[str], bool]) -> RunError:
    code, size = error.code, error.bytes
    if code == "memory_limit":
        return replace(bounds.exceeded("memory_limit"), line=error.told("").line)
    if code == "result_limit":
        is_over = type(size) is int and bounds.limits.result_bytes < size <= _MAX_BYTES_TOLD
        return bounds.result(size if is_over else None)
    is_known = isinstance(code, str) and (code in _GUEST_CODES or knows(code))
    return error.told(code if is_known else "script_error")


def _is_mended(source: str, script: str) -> bool:
    """Whether it may be the script with awaits in it: as many lines, and each call a few characters longer."""
    return len(source) <= 4 * len(script) + 100 and source.count("\n") == script.count("\n")


def _read(kind: type[_Told], payload: bytes) -> _Told:
    """What an honest guest tells; that it broke of any other."""
    try:
        if values_in(payload, _MAX_VALUES_TOLD) <= _MAX_VALUES_TOLD:
            return kind.model_validate(parse(payload))
    except (GuestJsonError, ValidationError):
        pass
    return kind(error=_BROKEN)
