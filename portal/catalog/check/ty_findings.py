"""What ty found in a Python script, worded for the model."""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import cached_property
from typing import Final

from manifests.json_value import Json
from manifests.kernels import PYTHON
from portal.catalog.check.diagnostics import AWAIT, Diagnostic, argument_error, is_from_result, union_members
from portal.catalog.check.language_server import MOST_FINDINGS, Finding
from portal.catalog.snapshot import Snapshot
from sandbox_runtime.result import LibraryUse, Prepared

_ARGUMENT: Final = re.compile(
    r"^Argument to function `(\w+)` is incorrect: Expected `(.*)`, found `(.*)`$", re.MULTILINE
)
_UNKNOWN_KEY: Final = re.compile(
    r'^Unknown key "([^"]*)" for TypedDict `(\w+)`(?: - did you mean "([^"]*)"\?)?'
)
_NO_ATTRIBUTE: Final = re.compile(r"^Object of type `(?:list\[)?(\w+)\]?` has no attribute `(\w+)`")
_COROUTINE: Final = re.compile(r"^(?:Cannot subscript object|Object) of type `CoroutineType\[")
_COROUTINE_USED: Final = re.compile(r"(\w+)(\([^()]*\))?(?:\[[^\[\]]*\]|\.\w+)?")
# These read a whole script at once: a hostile one would take minutes without the bounds.
_BOUND: Final = re.compile(r"(?<![\w.])(\w++)(?=\s*+(?::[^=\n]{0,200}+)?:?=(?!=))")
_BEHIND: Final = re.compile(r"\bfor\b(.*)|\bas\s+(\w+)")
_CLASS: Final = re.compile(r"^[ \t]*class (\w+)", re.MULTILINE)
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
        }.difference(_CLASS.findall(prepared.source))

    def diagnostics(self, findings: Sequence[Finding]) -> Iterator[Diagnostic]:
        readers = {
            "invalid-argument-type": self._argument,
            "invalid-typed-dict-key": self._key,
            "missing-attribute": self._attribute,
        }
        is_reported = any(problem.code == "not_awaited" for problem in self._prepared.problems)
        known = [each for each in findings if each.rule in readers or _COROUTINE.match(each.message)]
        for finding in known[:MOST_FINDINGS]:
            if _COROUTINE.match(finding.message):
                if not is_reported:
                    yield from self._coroutine(finding)
            else:
                yield from readers[finding.rule](finding)

    def _diagnostic(self, finding: Finding, message: str, hint: str, code: str) -> Diagnostic:
        return Diagnostic(finding.line, message, hint, finding.line in self._prepared.unguarded_lines, code)

    def _coroutine(self, finding: Finding) -> Iterator[Diagnostic]:
        """A coroutine that is used like its value, under a name that is bound once: ty knows only one type per name."""
        used = _COROUTINE_USED.fullmatch(self._lines[finding.line - 1], finding.column, finding.end_column)
        if used is None:
            return
        bindings = self._bindings[used[1]]
        if bindings <= 1 and (bindings or used[2]) and used[1] not in self._bound_otherwise:
            message = f"{used[1]}{used[2] or ''} is used as a value, and was not awaited"
            yield self._diagnostic(finding, message, AWAIT[PYTHON], "not_awaited")

    @cached_property
    def _bindings(self) -> Counter[str]:
        """How often each name is assigned to."""
        return Counter(_BOUND.findall(self._prepared.source))

    @cached_property
    def _bound_otherwise(self) -> Set[str]:
        """The names that a `for` or an `as` may bind."""
        behind = (" ".join(texts) for texts in _BEHIND.findall(self._prepared.source))
        return {name for text in behind for name in re.findall(r"\w+", text)}

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
            refuses = is_certain and not is_from_result(use.arguments[keyword[1]])
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
        for part in union_members(written):
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
