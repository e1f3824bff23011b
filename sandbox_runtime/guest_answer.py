"""Reads what the guest answers, as far as it can be believed: types are checked, lengths cut, codes known."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from manifests.json_value import Json
from sandbox_runtime.bounds import Bounds
from sandbox_runtime.guest_json import GuestJsonError, parse, values_in
from sandbox_runtime.prepared import LibraryUse, Prepared, ScriptProblem
from sandbox_runtime.result import RunError

_MAX_TEXT_CHARS = 8000
_MAX_NOTICES = 100
_MAX_USES = 1_000
_MAX_NAMES = 10_000
_MAX_VALUES_TOLD = 100_000
_MAX_LINE = 1 << 21
_MAX_BYTES_TOLD = 1 << 40
_PROBLEMS = frozenset({"not_awaited", "not_called", "not_a_function", "unknown_field"})
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
        return Prepared(script, error=bounds.memory() if is_too_much else _error(error, "syntax_error"))
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
        return replace(bounds.memory(), line=_line(told))
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
