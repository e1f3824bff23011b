"""What the facts about a script say of its use of the library, worded for the model."""

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from manifests.json_value import UNKNOWN, Json
from manifests.kernels import JAVASCRIPT, PYTHON, KernelName
from manifests.names import STANDARD_LIBRARY
from portal.catalog.snapshot import Snapshot
from portal.library.arguments import ArgumentError, normalize_arguments
from portal.library.function import Function, root_object
from portal.library.library import squeezed
from sandbox_runtime.call_port import CallError
from sandbox_runtime.result import FROM_RESULT, SPREAD, UNKNOWN_VALUE, LibraryUse, Prepared


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """A finding, worded for the model. If it `refuses`, the script does not run."""

    line: int
    message: str
    hint: str
    refuses: bool
    code: str


_MAX_NEAREST: Final = 8
"""Missing functions of one script for which the nearest names are searched, which takes up to 0.1 s each."""

_MAX_RESULTS: Final = 8
"""Functions of one script whose results hints show, which takes up to 0.1 s each."""

_ARGUMENTS_SECONDS: Final = 0.5
"""CPU time after which the arguments of a script's further calls are not checked. They are before each call is sent."""

_CALLERS: Final = frozenset(
    {"call", "call_tool", "callTool", "call_mcp_tool", "execute_tool", "invoke_tool", "run_tool", "use_tool"}
)


AWAIT: Final[Mapping[KernelName, str]] = {
    PYTHON: "Write `await` before the call. Where `await` is not allowed, use an `async def` or a list comprehension.",
    JAVASCRIPT: "Write `await` before the call. Where `await` is not allowed, use an async function and Promise.all.",
}
_FIELD: Final[Mapping[KernelName, str]] = {PYTHON: 'Write {}["{}"].', JAVASCRIPT: "Write {}.{}."}
_EXAMPLE: Final[Mapping[KernelName, str]] = {
    PYTHON: "await tickets.get_issue(id=3)",
    JAVASCRIPT: "await tickets.get_issue({id: 3})",
}


def syntax_diagnostics(
    prepared: Prepared, snapshot: Snapshot, *, repairs: bool, kernel: KernelName = PYTHON
) -> Iterator[Diagnostic]:
    """Missing and refused functions, invalid arguments, and calls that cannot be awaited, in the kernel's language.

    `repairs` says whether invalid arguments are repaired where the meaning is certain.
    """
    results: dict[str, tuple[str, Mapping[str, str]]] = {}
    for problem in prepared.problems:
        word = problem.function
        if problem.code == "not_defined" and (word in _CALLERS or _meant(word, snapshot)):
            continue  # told by `_bare_name`
        refuses = problem.line in prepared.unguarded_lines and problem.code != "keys_only"
        name, word = snapshot.canonical(problem.function), problem.message.rpartition(" ")[2]
        if name not in results and len(results) < _MAX_RESULTS:
            results[name] = _result(snapshot.library.functions.get(name), kernel)
        shape, fields = results.get(name, ("", {}))
        if problem.code != "keys_only" or (fields and word not in fields):
            meant = fields.get(word) or "".join(fields.values() if len(fields) == 1 else ())
            fix = _FIELD[kernel].format(problem.name, meant) if meant else problem.hint
            hint = " ".join(filter(None, [fix, f"It returns {shape}." if shape else ""]))
            yield Diagnostic(problem.line, problem.message, hint, refuses, problem.code)
    absences: dict[str, Diagnostic] = {}
    until = time.thread_time() + _ARGUMENTS_SECONDS
    for use in prepared.uses:
        absence = _absence(use, snapshot, kernel, with_nearest=len(absences) < _MAX_NEAREST)
        if absence is None:
            if time.thread_time() < until:
                yield from _argument_diagnostics(use, prepared, snapshot, kernel, repairs=repairs)
            continue
        refuses = use.line in prepared.unguarded_lines
        former = absences.get(absence.message)
        if former is None or (refuses and not former.refuses):
            absences[absence.message] = Diagnostic(
                use.line, absence.message, absence.hint, refuses, absence.code
            )
    yield from absences.values()


def _result(function: Function | None, kernel: KernelName) -> tuple[str, Mapping[str, str]]:
    """The shape of its result, and the fields of an object by their literals; "" for one that is not a plain name."""
    if function is None:
        return "", {}
    fields = root_object(function.returns.declared).get("properties", ())
    plain = (each if re.fullmatch(r"\w{1,60}", each) else "" for each in fields)
    return function.returns.shape_in(kernel), {repr(each): each for each in plain}


def _absence(
    use: LibraryUse, snapshot: Snapshot, kernel: KernelName, *, with_nearest: bool
) -> CallError | None:
    """Why a function does not exist or may not be called; None if it may."""
    is_caller = use.function in _CALLERS and use.namespace not in snapshot.namespaces
    if not use.namespace or is_caller:
        return _bare_name(use, snapshot, kernel)
    qualified = f"{use.namespace}.{use.function}"
    if qualified in snapshot.library.functions and qualified not in snapshot.denied:
        return None
    is_module = kernel == PYTHON and use.namespace in STANDARD_LIBRARY
    if is_module and use.namespace not in snapshot.namespaces:
        return CallError(
            "unknown_function", f"{use.namespace} is not imported", f"Write `import {use.namespace}`."
        )
    return snapshot.absence(qualified, with_nearest=with_nearest, kernel=kernel)


def _bare_name(use: LibraryUse, snapshot: Snapshot, kernel: KernelName) -> CallError | None:
    """The error for a function that is called without its namespace, by another client's name, or by `call_tool`."""
    message = f"there is no function {use.function!r}"
    if use.function in _CALLERS:
        given = [each for each in (use.arguments or {}).values() if isinstance(each, str)]
        meant = next((found for each in given[:2] if (found := _meant(each, snapshot))), None)
        example = meant.brief_in(kernel) if meant else _EXAMPLE[kernel]
        return CallError("unknown_function", message, f"Call functions by their names: {example}")
    function = _meant(use.function, snapshot)
    if function is None:
        return None  # not a library function; the script fails there
    return CallError("unknown_function", message, f"Write its namespace: {function.brief_in(kernel)}")


def _meant(name: str, snapshot: Snapshot) -> Function | None:
    """The function with this name, or with another client's: `mcp__git__git_log`, `git_git_log`."""
    spelt = (squeezed(name.removeprefix("mcp__")), name)
    functions = (each for spelling in spelt for each in snapshot.library.spellings.get(spelling, ()))
    shown = (each for each in functions if each.qualified not in snapshot.denied)
    return min(shown, key=lambda each: each.name == name, default=None)


def _argument_diagnostics(
    use: LibraryUse, prepared: Prepared, snapshot: Snapshot, kernel: KernelName, *, repairs: bool
) -> Iterator[Diagnostic]:
    function = snapshot.library.functions.get(f"{use.namespace}.{use.function}")
    if function is None or use.arguments is None:
        return
    error = argument_error(function, use.arguments, repairs=repairs, kernel=kernel)
    if error is not None:
        refuses = use.line in prepared.unguarded_lines
        yield Diagnostic(use.line, str(error), error.hint, refuses, "invalid_arguments")


def argument_error(
    function: Function, arguments: Mapping[str, Json], *, repairs: bool, kernel: KernelName = PYTHON
) -> ArgumentError | None:
    """Why a call would be refused, whatever its unknown argument values are; None if it may be valid."""
    given = {name: _known(value) for name, value in arguments.items() if name != SPREAD}
    if SPREAD in arguments:
        given = {each.name: UNKNOWN for each in function.parameters if each.required} | given
    try:
        normalize_arguments(function, given, repairs=repairs, kernel=kernel)
    except ArgumentError as error:
        return error
    return None


def _known(value: Json) -> Json:
    if isinstance(value, list):
        return [_known(item) for item in value]
    if isinstance(value, dict):
        return {key: _known(item) for key, item in value.items()}
    return UNKNOWN if value in (UNKNOWN_VALUE, FROM_RESULT) else value


def is_from_result(value: Json) -> bool:
    """Whether a part of an argument may come from a result."""
    if isinstance(value, list | dict):
        return any(map(is_from_result, value.values() if isinstance(value, dict) else value))
    return bool(value == FROM_RESULT)


def union_members(written: str) -> list[str]:
    """The members of a union as a type checker writes it: `str` and `list[int | None]` of `str | list[int | None]`."""
    parts, depth, quote = [""], 0, ""
    for each in written:
        if quote or each in '"`':
            quote = "" if each == quote and not parts[-1].endswith("\\") else quote or each
        is_arrow = each == ">" and parts[-1].endswith(("-", "="))
        depth += 0 if quote or is_arrow else (each in "([{<") - (each in ")]}>")
        if each == "|" and depth == 0 and not quote:
            parts.append("")
        else:
            parts[-1] += each
    return [part.strip() for part in parts]
