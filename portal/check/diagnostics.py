"""What is wrong with a script's use of the library, as far as its syntax shows."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from manifests.json_value import Json
from manifests.names import STANDARD_LIBRARY
from portal.library.arguments import ArgumentError
from portal.library.function import Function
from portal.library.repairs import UNKNOWN, fitted
from portal.snapshot import Snapshot
from sandbox_runtime.calls import CallError
from sandbox_runtime.result import SPREAD, UNKNOWN_VALUE, LibraryUse, Prepared

_MAX_NEAREST: Final = 8
"""Absent functions of one script for which the nearest are looked for, which takes up to 0.1 s each."""

_CALLERS: Final = frozenset(
    {"call", "call_tool", "callTool", "call_mcp_tool", "execute_tool", "invoke_tool", "run_tool", "use_tool"}
)


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding in the model's terms. If it `refuses`, nothing of the script runs."""

    line: int
    message: str
    hint: str
    refuses: bool
    code: str


def syntax_diagnostics(prepared: Prepared, snapshot: Snapshot, *, repairs: bool) -> Iterator[Diagnostic]:
    """Absent and refused functions, arguments that cannot fit, and calls that cannot be awaited.

    `repairs` says whether calls are repaired where it is certain what was meant.
    """
    for problem in prepared.problems:
        refuses = prepared.is_certain(problem.line)
        yield Diagnostic(problem.line, problem.message, problem.hint, refuses, problem.code)
    told: dict[str, Diagnostic] = {}
    for use in prepared.uses:
        absence = _absence(use, snapshot, with_nearest=len(told) < _MAX_NEAREST)
        if absence is None:
            yield from _argument_diagnostics(use, prepared, snapshot, repairs=repairs)
            continue
        refuses = prepared.is_certain(use.line)
        former = told.get(absence.message)
        if former is None or (refuses and not former.refuses):
            told[absence.message] = Diagnostic(use.line, absence.message, absence.hint, refuses, absence.code)
    yield from told.values()


def _absence(use: LibraryUse, snapshot: Snapshot, *, with_nearest: bool) -> CallError | None:
    """Why a function is not there, or may not be called."""
    is_caller = use.function in _CALLERS and use.namespace not in snapshot.namespaces
    if not use.namespace or is_caller:
        return _bare_name(use, snapshot)
    qualified = f"{use.namespace}.{use.function}"
    if qualified in snapshot.library.functions and qualified not in snapshot.denied:
        return None
    if use.namespace in STANDARD_LIBRARY and use.namespace not in snapshot.namespaces:
        return CallError(
            "unknown_function", f"{use.namespace} is not imported", f"Write `import {use.namespace}`."
        )
    return snapshot.absence(qualified, with_nearest=with_nearest)


def _bare_name(use: LibraryUse, snapshot: Snapshot) -> CallError | None:
    """A function that is called without its namespace, or by way of a function that there is none of."""
    message = f"there is no function {use.function!r}"
    if use.function in _CALLERS:
        given = (use.arguments or {}).get("*0")
        name = given if isinstance(given, str) and given in snapshot.library.functions else ""
        example = snapshot.library.functions[name].signature if name else "await tickets.get_issue(id=3)"
        return CallError("unknown_function", message, f"Call functions by their names: {example}")
    meant = [each for each in snapshot.library.functions.values() if each.name == use.function]
    if not meant:
        return None  # some other name: Python itself says so
    return CallError("unknown_function", message, f"Write its namespace: {meant[0].signature}")


def _argument_diagnostics(
    use: LibraryUse, prepared: Prepared, snapshot: Snapshot, *, repairs: bool
) -> Iterator[Diagnostic]:
    function = snapshot.library.functions.get(f"{use.namespace}.{use.function}")
    if function is None or use.arguments is None:
        return
    error = argument_error(function, use.arguments, repairs=repairs)
    if error is not None:
        refuses = prepared.is_certain(use.line)
        yield Diagnostic(use.line, str(error), error.hint, refuses, "invalid_arguments")


def argument_error(
    function: Function, arguments: Mapping[str, Json], *, repairs: bool
) -> ArgumentError | None:
    """Why a call would be refused, whatever the unknown values among its arguments are."""
    given = {name: _known(value) for name, value in arguments.items() if name != SPREAD}
    if SPREAD in arguments:
        given = {each.name: UNKNOWN for each in function.parameters if each.required} | given
    try:
        fitted(function, given, repairs=repairs)
    except ArgumentError as error:
        return error
    return None


def _known(value: Json) -> Json:
    if isinstance(value, list):
        return [_known(item) for item in value]
    if isinstance(value, dict):
        return {key: _known(item) for key, item in value.items()}
    return UNKNOWN if value == UNKNOWN_VALUE else value
