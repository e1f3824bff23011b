"""Reads what the guest says, as far as it can be believed: types are checked, lengths cut, codes known."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from manifests.grants import Limits
from manifests.json_value import Json
from sandbox_runtime.frames import MAX_BLOCKS, FrameError
from sandbox_runtime.guest_json import GuestJsonError, parse, values_in
from sandbox_runtime.result import Bounds, LibraryUse, Prepared, RunError, ScriptProblem


class Captured:
    """Kept to the end, however the run ends."""

    def __init__(self, limits: Limits) -> None:
        self.dropped_bytes = 0
        self.notices: list[str] = []
        self._limits = limits
        self._output: list[bytes] = []
        self._output_bytes = 0
        self._blocks: list[bytes] = []
        self._blocks_bytes = 0

    @property
    def stdout(self) -> str:
        return b"".join(self._output).decode("utf-8", "replace")

    @property
    def bytes_to_read(self) -> int:
        return self._blocks_bytes

    def take_output(self, text: bytes) -> None:
        """Keep printed text.

        Raises:
            FrameError: It is more than an honest worker lets through.
        """
        self._output_bytes += len(text)
        if self._output_bytes > self._limits.stdout_bytes:
            raise FrameError("more output than is allowed")
        self._output.append(text)

    def take_block(self, payload: bytes) -> None:
        """Keep what a script emitted, to be read when the run is over.

        Raises:
            FrameError: They are more than an honest worker lets through.
        """
        self._blocks_bytes += len(payload)
        if self._blocks_bytes > self._limits.result_bytes or len(self._blocks) > MAX_BLOCKS:
            raise FrameError("more content than is allowed")
        self._blocks.append(payload)

    def read_blocks(self, most_values: int) -> tuple[tuple[dict[str, Json], ...], int]:
        """The content blocks, and how many values they hold; one that is none is left out, with a notice."""
        if len(self._blocks) > MAX_BLOCKS:
            self._leave_out(f"there are {MAX_BLOCKS:,} already")
        blocks: list[dict[str, Json]] = []
        values = 0
        for payload in self._blocks[:MAX_BLOCKS]:
            count = values_in(payload, most_values - values)
            if values + count > most_values:
                self._leave_out("it holds too many values for the limit result_bytes")
                continue
            values += count
            try:
                block = parse(payload)
            except GuestJsonError as problem:
                self._leave_out(str(problem))
                continue
            if isinstance(block, dict) and isinstance(block.get("type"), str):
                blocks.append(block)
            else:
                self._leave_out("it is no object with a type")
        return tuple(blocks), values

    def _leave_out(self, why: str) -> None:
        notice = f"a content block was left out of the answer: {why}"
        if notice not in self.notices:
            self.notices.append(notice)


_MAX_TEXT_CHARS = 8000
_MAX_NOTICES = 100
_MAX_USES = 1_000
_MAX_NAMES = 10_000
_MAX_VALUES_TOLD = 100_000
_MAX_LINE = 1 << 21
_MAX_BYTES_TOLD = 1 << 40
_PROBLEMS = frozenset({"not_awaited", "not_called", "not_a_function", "not_python", "unknown_field"})
_GUEST_CODES = frozenset({"script_error", "script_exit", "result_not_json"})


@dataclass(frozen=True, slots=True)
class Ending:
    """A run's value or error, and the guest's notices."""

    value: Json
    error: RunError | None
    notices: tuple[str, ...]


def read_prepared(payload: bytes, script: str, bounds: Bounds) -> Prepared:
    """What the guest tells of a script it parsed."""
    told = _object(payload)
    error = told.get("error")
    if isinstance(error, dict):
        is_too_much = error.get("code") == "memory_limit"
        return Prepared(
            script, error=bounds.exceeded("memory_limit") if is_too_much else _error(error, "syntax_error")
        )
    source = told.get("source")
    return Prepared(
        source if isinstance(source, str) and _is_mended(source, script) else script,
        frozenset(_texts(told.get("names"), _MAX_NAMES)),
        tuple(_uses(told.get("uses"))),
        _texts(told.get("notices"), _MAX_NOTICES),
        problems=tuple(_problems(told.get("problems"))),
        certain=tuple(_ranges(told.get("certain"))),
    )


def read_ending(payload: bytes, bounds: Bounds, knows: Callable[[str], bool], most_values: int) -> Ending:
    """The guest's last words; `knows` tells whether a call of the run failed with a code.

    The value may hold `most_values`; a forged one is no more work than an honest one.
    """
    header, _, value = payload.partition(b"\n")
    told = _object(header)
    notices = _texts(told.get("notices"), _MAX_NOTICES)
    error = told.get("error")
    if isinstance(error, dict):
        return Ending(None, _run_error(error, bounds, knows), notices)
    if len(value) > bounds.limits.result_bytes:
        return Ending(None, bounds.result(len(value)), notices)
    if values_in(value, most_values) > most_values:
        return Ending(None, bounds.too_many_values(), notices)
    try:
        return Ending(parse(value), None, notices)
    except GuestJsonError as problem:
        return Ending(
            None, RunError("result_not_json", f"the script's value cannot be returned: {problem}"), notices
        )


def _run_error(told: dict[str, Json], bounds: Bounds, knows: Callable[[str], bool]) -> RunError:
    code = told.get("code")
    if code == "memory_limit":
        return replace(bounds.exceeded("memory_limit"), line=_line(told))
    if code == "result_limit":
        size = told.get("bytes")
        is_over = type(size) is int and bounds.limits.result_bytes < size <= _MAX_BYTES_TOLD
        return bounds.result(size if is_over else None)
    if isinstance(code, str) and (code in _GUEST_CODES or knows(code)):
        return _error(told, code)
    return _error(told, "script_error")


def _error(told: dict[str, Json], code: str) -> RunError:
    return RunError(
        code,
        _text(told.get("message")) or "the script failed",
        _line(told),
        _text(told.get("hint")),
        _text(told.get("traceback")),
    )


def _line(told: dict[str, Json]) -> int | None:
    line = told.get("line")
    return line if type(line) is int and 0 < line <= _MAX_LINE else None


def _is_mended(source: str, script: str) -> bool:
    """Whether it may be the script with awaits in it: as many lines, and each call a few characters longer."""
    return len(source) <= 4 * len(script) + 100 and source.count("\n") == script.count("\n")


def _object(payload: bytes) -> dict[str, Json]:
    try:
        told = parse(payload) if values_in(payload, _MAX_VALUES_TOLD) <= _MAX_VALUES_TOLD else None
    except GuestJsonError:
        told = None
    if isinstance(told, dict):
        return told
    return {
        "error": {
            "code": "script_error",
            "message": "SystemError: the script broke the interpreter it ran in",
        }
    }


def _text(value: Json) -> str:
    return value[:_MAX_TEXT_CHARS] if isinstance(value, str) else ""


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _texts(value: Json, most: int) -> tuple[str, ...]:
    return tuple(_text(item) for item in _list(value)[:most] if isinstance(item, str))


def _uses(told: Json) -> Iterator[LibraryUse]:
    for use in _list(told)[:_MAX_USES]:
        match use:
            case [str(namespace), str(function), line, end, arguments] if _is_lines(line, end):
                given = arguments if isinstance(arguments, dict) else None
                yield LibraryUse(_text(namespace), _text(function), line, end, given)


def _problems(told: Json) -> Iterator[ScriptProblem]:
    for problem in _list(told)[:_MAX_USES]:
        match problem:
            case [line, str(code), str(message), str(hint)] if _is_lines(line, line) and code in _PROBLEMS:
                yield ScriptProblem(line, code, _text(message), _text(hint))


def _ranges(told: Json) -> Iterator[tuple[int, int]]:
    for part in _list(told)[:_MAX_USES]:
        match part:
            case [first, last] if _is_lines(first, last):
                yield first, last


def _is_lines(first: Json, last: Json) -> bool:
    return type(first) is int and type(last) is int and 0 < first <= last <= _MAX_LINE
