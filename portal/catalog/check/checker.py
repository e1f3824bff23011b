"""Checks a script's use of the library before it runs, from its syntax and with ty.

ty reports much that runs correctly, so only its findings about library calls and their results are used.
"""

import ast
import hashlib
import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import anyio
import anyio.lowlevel

from manifests.json_value import UNKNOWN, Json
from manifests.names import STANDARD_LIBRARY
from portal.catalog.check.ty_server import Finding, TypeChecker
from portal.catalog.snapshot import Snapshot
from portal.library.arguments import ArgumentError, normalize_arguments
from portal.library.function import Function
from portal.library.library import Library, squeezed
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


MAX_SOURCE_CHARACTERS: Final = 100_000
"""The types of a longer script are not checked."""

_MAX_REMEMBERED: Final = 500
_MOST_FOUND: Final = 50
"""Scripts with more findings are not cached."""

_UNCHECKED: Final = Diagnostic(
    1,
    "the types of this script were not checked: the type checker did not answer, or former checks took too long",
    "",
    False,
    "unchecked",
)
_UNCACHEABLE_CODES: Final = frozenset(
    {"unknown_function", "not_granted", "quarantined", "upstream_unavailable"}
)
"""Codes of findings that depend on the whole library, not only on the script's namespaces."""


@asynccontextmanager
async def open_checker(folder: Path, *, repairs: bool = True) -> AsyncIterator["Checker"]:
    """Open a checker over the stubs in `folder`. In the background it starts ty, and ends it at rest.

    `repairs` says whether invalid arguments are repaired where the meaning is certain; they then refuse no script.
    """
    types = TypeChecker(folder)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(types.keep)
        try:
            yield Checker(types, repairs=repairs)
        finally:
            tasks.cancel_scope.cancel()
            await types.close()


class Checker:
    """Checks the library calls of scripts. Safe for concurrent use.

    A check never fails. If the type checker does not answer in time, or the caller has used too much of its time, a
    notice says that the types were not checked.
    """

    def __init__(self, types: TypeChecker, *, repairs: bool = True) -> None:
        self._types = types
        self._repairs = repairs
        self._library: Library | None = None
        self._remembered: OrderedDict[bytes, Sequence[Diagnostic]] = OrderedDict()

    async def update(self, library: Library, changed: Collection[Path]) -> None:
        """Set the library whose stubs are on disk now, and its changed files."""
        self._types.update(changed)
        self._library = library

    async def check(self, prepared: Prepared, snapshot: Snapshot, caller: str = "") -> Sequence[Diagnostic]:
        """The findings about a script's use of the library, by line. `caller` identifies it in the fair queue for ty.

        Results are cached for the same script and definitions.
        """
        if not (prepared.names or prepared.uses or prepared.problems):
            return ()
        prepared = replace(prepared, uses=tuple(_renamed(use, snapshot) for use in prepared.uses))
        key = _key(prepared, snapshot.library)
        if key in self._remembered:
            self._remembered.move_to_end(key)
            return self._remembered[key]
        found, is_cacheable = await self._found(prepared, snapshot, caller)
        if is_cacheable and len(found) <= _MOST_FOUND:
            self._remembered[key] = found
            if len(self._remembered) > _MAX_REMEMBERED:
                self._remembered.popitem(last=False)
        return found

    async def _found(
        self, prepared: Prepared, snapshot: Snapshot, caller: str
    ) -> tuple[Sequence[Diagnostic], bool]:
        """The diagnostics, and whether they may be cached.

        ty's findings count only if its stubs are the snapshot's library before and after it was asked.
        """
        library = snapshot.library
        names = sorted(prepared.names & library.namespaces.keys())
        typed: list[Finding] | None = [] if not names else None

        async def ask() -> None:
            nonlocal typed
            found = await self._types.findings(names, prepared.source, caller)
            typed = found if library is self._library else None

        is_on_disk = snapshot.is_on_disk and library is self._library
        async with anyio.create_task_group() as tasks:
            if names and len(prepared.source) <= MAX_SOURCE_CHARACTERS and is_on_disk:
                tasks.start_soon(ask)
                await anyio.lowlevel.checkpoint()  # ty works while this thread does
            found = [*syntax_diagnostics(prepared, snapshot, repairs=self._repairs)]
        is_cacheable = typed is not None and not any(each.code in _UNCACHEABLE_CODES for each in found)
        if typed is None:
            found.append(_UNCHECKED)
        else:
            wrong = {(each.line, each.code) for each in found}
            added = TypeFindings(prepared, snapshot, repairs=self._repairs).diagnostics(typed)
            found += (each for each in added if (each.line, each.code) not in wrong)
        return sorted(dict.fromkeys(found), key=lambda each: each.line), is_cacheable


def _renamed(use: LibraryUse, snapshot: Snapshot) -> LibraryUse:
    namespace, _, function = snapshot.canonical(f"{use.namespace}.{use.function}").partition(".")
    return use._replace(namespace=namespace, function=function)


def _key(prepared: Prepared, library: Library) -> bytes:
    """A cache key of everything that the diagnostics depend on."""
    namespaces = ((name, library.namespaces.get(name)) for name in sorted(prepared.names))
    versions = [(name, namespace and namespace.version) for name, namespace in namespaces]
    known = (prepared.source, versions, prepared.uses, prepared.problems, prepared.unguarded_lines)
    return hashlib.sha256(repr(known).encode(errors="surrogatepass")).digest()


_MAX_NEAREST: Final = 8
"""Missing functions of one script for which the nearest names are searched, which takes up to 0.1 s each."""

_CALLERS: Final = frozenset(
    {"call", "call_tool", "callTool", "call_mcp_tool", "execute_tool", "invoke_tool", "run_tool", "use_tool"}
)


def syntax_diagnostics(prepared: Prepared, snapshot: Snapshot, *, repairs: bool) -> Iterator[Diagnostic]:
    """Missing and refused functions, invalid arguments, and calls that cannot be awaited.

    `repairs` says whether invalid arguments are repaired where the meaning is certain.
    """
    for problem in prepared.problems:
        refuses = problem.line in prepared.unguarded_lines and problem.code != "keys_only"
        function = snapshot.library.functions.get(snapshot.canonical(problem.function))
        shape = function.result_shape if function is not None else ""
        fields = _fields(function)
        named = [each for each in fields if problem.message.endswith(f" {each!r}")]
        if problem.code != "keys_only" or (fields and not named):
            meant = named or fields
            fix = f'Write {problem.name}["{meant[0]}"].' if len(meant) == 1 and meant[0] else problem.hint
            hint = " ".join(filter(None, [fix, f"It returns {shape}." if shape else ""]))
            yield Diagnostic(problem.line, problem.message, hint, refuses, problem.code)
    absences: dict[str, Diagnostic] = {}
    for use in prepared.uses:
        absence = _absence(use, snapshot, with_nearest=len(absences) < _MAX_NEAREST)
        if absence is None:
            yield from _argument_diagnostics(use, prepared, snapshot, repairs=repairs)
            continue
        refuses = use.line in prepared.unguarded_lines
        former = absences.get(absence.message)
        if former is None or (refuses and not former.refuses):
            absences[absence.message] = Diagnostic(
                use.line, absence.message, absence.hint, refuses, absence.code
            )
    yield from absences.values()


def _fields(function: Function | None) -> list[str]:
    """The declared fields of its result, if that is an object; "" for one that is not a plain name."""
    declared = function.declared if function is not None else None
    fields = declared.get("properties", ()) if isinstance(declared, dict) else ()
    return [each if re.fullmatch(r"\w{1,60}", each) else "" for each in fields]


def _absence(use: LibraryUse, snapshot: Snapshot, *, with_nearest: bool) -> CallError | None:
    """Why a function does not exist or may not be called; None if it may."""
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
    """The error for a function that is called without its namespace, by another client's name, or by `call_tool`."""
    message = f"there is no function {use.function!r}"
    if use.function in _CALLERS:
        given = [each for each in (use.arguments or {}).values() if isinstance(each, str)]
        meant = next((found for each in given[:2] if (found := _meant(each, snapshot))), None)
        example = meant.brief if meant else "await tickets.get_issue(id=3)"
        return CallError("unknown_function", message, f"Call functions by their names: {example}")
    function = _meant(use.function, snapshot)
    if function is None:
        return None  # not a library function; Python raises the error
    return CallError("unknown_function", message, f"Write its namespace: {function.brief}")


def _meant(name: str, snapshot: Snapshot) -> Function | None:
    """The function with this name, or with another client's: `mcp__git__git_log`, `git_git_log`."""
    spelt = (squeezed(name.removeprefix("mcp__")), name)
    functions = (each for spelling in spelt for each in snapshot.library.spellings.get(spelling, ()))
    shown = (each for each in functions if each.qualified not in snapshot.denied)
    return min(shown, key=lambda each: each.name == name, default=None)


def _argument_diagnostics(
    use: LibraryUse, prepared: Prepared, snapshot: Snapshot, *, repairs: bool
) -> Iterator[Diagnostic]:
    function = snapshot.library.functions.get(f"{use.namespace}.{use.function}")
    if function is None or use.arguments is None:
        return
    error = argument_error(function, use.arguments, repairs=repairs)
    if error is not None:
        refuses = use.line in prepared.unguarded_lines
        yield Diagnostic(use.line, str(error), error.hint, refuses, "invalid_arguments")


def argument_error(
    function: Function, arguments: Mapping[str, Json], *, repairs: bool
) -> ArgumentError | None:
    """Why a call would be refused, whatever its unknown argument values are; None if it may be valid."""
    given = {name: _known(value) for name, value in arguments.items() if name != SPREAD}
    if SPREAD in arguments:
        given = {each.name: UNKNOWN for each in function.parameters if each.required} | given
    try:
        normalize_arguments(function, given, repairs=repairs)
    except ArgumentError as error:
        return error
    return None


def _known(value: Json) -> Json:
    if isinstance(value, list):
        return [_known(item) for item in value]
    if isinstance(value, dict):
        return {key: _known(item) for key, item in value.items()}
    return UNKNOWN if value in (UNKNOWN_VALUE, FROM_RESULT) else value


def _is_from_result(value: Json) -> bool:
    """Whether a part of an argument may come from a result."""
    if isinstance(value, list | dict):
        return any(map(_is_from_result, value.values() if isinstance(value, dict) else value))
    return bool(value == FROM_RESULT)


_ARGUMENT: Final = re.compile(
    r"^Argument to function `(\w+)` is incorrect: Expected `(.*)`, found `(.*)`$", re.MULTILINE
)
_UNKNOWN_KEY: Final = re.compile(
    r'^Unknown key "([^"]*)" for TypedDict `(\w+)`(?: - did you mean "([^"]*)"\?)?'
)
_NO_ATTRIBUTE: Final = re.compile(r"^Object of type `(?:list\[)?(\w+)\]?` has no attribute `(\w+)`")
_COROUTINE: Final = re.compile(r"^(?:Cannot subscript object|Object) of type `CoroutineType\[")
_COROUTINE_USED: Final = re.compile(r"(\w+)(\([^()]*\))?(?:\[[^\[\]]*\]|\.\w+)?")
_METHODS: Final = frozenset(name for kind in (dict, list, str, int, float) for name in dir(kind))
"""Methods of JSON values. A result may have another type than its tool declares, so calls of these are not reported."""
_KEYWORD: Final = re.compile(r"(\w+)\s*=")
_ASSIGNED: Final = re.compile(r"\s*\]\s*[-+*/|&]?=(?!=)")
_TYPED_DICT: Final = re.compile(r"^(?:class (\w+)\(\w+.*\):|(\w+) = \w+\(\"\w+\", \{)$", re.MULTILINE)
_JSON_KINDS: Final = frozenset({"str", "int", "float", "bool", "list", "dict"})
_FITTING: Final[Mapping[str, Set[str]]] = {
    "str": {"str", "int"},
    "int": {"int", "float", "str"},
    "float": {"int", "float", "str"},
    "bool": {"bool", "str"},
    "list": {"str", "int", "float", "bool", "list", "dict"},
    "dict": {"dict", "str"},
    "None": {"None"},
}
"""The kinds that are accepted for an expected kind, also after a repair."""
_AWAIT: Final = (
    "Write `await` before the call. Where `await` is not allowed, use an `async def` or a list comprehension."
)


class TypeFindings:
    def __init__(self, prepared: Prepared, snapshot: Snapshot, *, repairs: bool) -> None:
        self._prepared = prepared
        self._snapshot = snapshot
        self._repairs = repairs
        self._lines = prepared.source.split("\n")
        library = snapshot.library
        modules = (library.module(name) for name in prepared.names & library.namespaces.keys())
        self._typed_dicts = {
            first or second for module in modules for first, second in _TYPED_DICT.findall(module)
        }.difference(re.findall(r"^\s*class (\w+)", prepared.source, re.MULTILINE))

    def diagnostics(self, findings: Iterable[Finding]) -> Iterator[Diagnostic]:
        readers = {
            "invalid-argument-type": self._argument,
            "invalid-typed-dict-key": self._key,
            "missing-attribute": self._attribute,
        }
        is_reported = any(problem.code == "not_awaited" for problem in self._prepared.problems)
        for finding in findings:
            if _COROUTINE.match(finding.message):
                if not is_reported:
                    yield from self._coroutine(finding)
            elif finding.rule in readers:
                yield from readers[finding.rule](finding)

    def _diagnostic(self, finding: Finding, message: str, hint: str, code: str) -> Diagnostic:
        return Diagnostic(finding.line, message, hint, finding.line in self._prepared.unguarded_lines, code)

    def _coroutine(self, finding: Finding) -> Iterator[Diagnostic]:
        """A coroutine that is used like its value, under a name that is bound once: ty knows only one type per name."""
        used = _COROUTINE_USED.fullmatch(self._lines[finding.line - 1], finding.column, finding.end_column)
        if used is None:
            return
        bindings = re.findall(rf"(?<![\w.]){used[1]}\s*(?::[^=\n]*)?:?=(?!=)", self._prepared.source)
        others = re.search(rf"(?:\bfor\b.*|\bas\s+){used[1]}\b", self._prepared.source)
        if len(bindings) <= 1 and (bindings or used[2]) and not others:
            message = f"{used[1]}{used[2] or ''} is used as a value, and was not awaited"
            yield self._diagnostic(finding, message, _AWAIT, "not_awaited")

    def _key(self, finding: Finding) -> Iterator[Diagnostic]:
        """An undeclared field of a result: only a notice, because results may have undeclared fields."""
        matched = _UNKNOWN_KEY.match(finding.message)
        behind = self._lines[finding.end_line - 1][finding.end_column :]
        if matched is not None and matched[2] in self._typed_dicts and not _ASSIGNED.match(behind):
            near = f"Did you mean {matched[3]!r}?" if matched[3] else ""
            message = f"{matched[1]!r} is not a known field of {matched[2]}"
            yield Diagnostic(finding.line, message, near, False, "unknown_field")

    def _attribute(self, finding: Finding) -> Iterator[Diagnostic]:
        matched = _NO_ATTRIBUTE.match(finding.message)
        is_called = self._lines[finding.end_line - 1][finding.end_column :].lstrip().startswith("(")
        if matched is None or matched[1] not in self._typed_dicts or (is_called and matched[2] in _METHODS):
            return
        hint = "Write len(...)." if matched[2] == "length" else f'Write ["{matched[2]}"].'
        message = f"{matched[1]} is plain data, which has no attribute {matched[2]!r}"
        yield self._diagnostic(finding, message, hint, "unknown_field")

    def _argument(self, finding: Finding) -> Iterator[Diagnostic]:
        """An argument of a wrong type. Literal arguments are already validated without ty."""
        matched = _ARGUMENT.match(finding.message)
        keyword = _KEYWORD.match(self._lines[finding.line - 1], finding.column)
        use = self._use(matched[1], finding, keyword[1]) if matched and keyword else None
        if matched is None or keyword is None or use is None or use.arguments is None:
            return
        function = self._snapshot.library.functions[f"{use.namespace}.{use.function}"]
        if matched[3].startswith("Literal["):
            errors = [
                argument_error(function, {**use.arguments, keyword[1]: value}, repairs=self._repairs)
                for value in _literals(matched[3])
            ]
            if errors and errors[0] is not None and None not in errors:
                yield self._diagnostic(finding, str(errors[0]), errors[0].hint, "invalid_arguments")
            return
        wanted, found = self._kinds(matched[2]), self._kinds(matched[3])
        if wanted and found and found.isdisjoint(kind for each in wanted for kind in _FITTING[each]):
            message = f"{function.qualified}: {keyword[1]} is {matched[3].rstrip('*')}, not {matched[2]}"
            is_certain = finding.line in self._prepared.unguarded_lines
            refuses = is_certain and not _is_from_result(use.arguments[keyword[1]])
            yield Diagnostic(finding.line, message, function.brief, refuses, "invalid_arguments")

    def _use(self, function: str, finding: Finding, keyword: str) -> LibraryUse | None:
        """The call that an argument belongs to, or None."""
        functions = self._snapshot.library.functions
        for use in self._prepared.uses:
            is_there = use.function == function and use.line <= finding.line <= use.end_line
            if is_there and keyword in (use.arguments or {}) and f"{use.namespace}.{function}" in functions:
                return use
        return None

    def _kinds(self, written: str) -> Set[str]:
        """The JSON kinds of a type in ty's notation; empty if it includes another kind."""
        kinds = set()
        for part in _parts(written):
            name = part.partition("[")[0].rstrip("*")
            kind = "dict" if name in self._typed_dicts else name if name in _JSON_KINDS else None
            if name == "Literal":
                kind = "str" if part.startswith('Literal["') else None
            if kind is None and name != "None":
                return set()
            kinds.add(kind or "None")
        return kinds


def _literals(written: str) -> list[Json]:
    """The values of `Literal["a", 1]`; [] if they cannot be parsed."""
    try:
        values: list[Json] = ast.literal_eval(written.removeprefix("Literal"))
    except (ValueError, SyntaxError, SystemError):  # as in `parsed_text`
        return []
    return values


def _parts(written: str) -> Iterator[str]:
    """The members of a union: `str` and `list[int | None]` of `str | list[int | None]`."""
    start = depth = 0
    for at, each in enumerate(written):
        depth += (each in "[(") - (each in "])")
        if each == "|" and depth == 0:
            yield written[start:at].strip()
            start = at + 1
    yield written[start:].strip()
