"""What TypeScript found in a JavaScript script, worded for the model.

Its codes say what a finding is about. It reports much that runs correctly, so only findings about library calls and
their results are used.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from typing import Final

from manifests.json_value import Json
from manifests.kernels import JAVASCRIPT
from portal.catalog.check.diagnostics import AWAIT, Diagnostic, argument_error, is_from_result, union_members
from portal.catalog.check.language_server import MOST_FINDINGS, Finding
from portal.catalog.snapshot import Snapshot
from portal.library.function import Function
from portal.library.library import nearest_names
from sandbox_runtime.result import Prepared

_NOT_ASSIGNABLE: Final = frozenset({"2322", "2739", "2740", "2741", "2820"})
_NO_PROPERTY: Final = frozenset({"2339", "2551", "7053"})
_NOT_A_VALUE: Final = frozenset({"2365", "2367", "2461", "2488", "2548", "2549", "2801"})
"""Not the operand, items or condition that it is used as. A mistake if it is a promise."""

_ASSIGNED: Final = re.compile(
    r"type '(.*?)' (?:is not assignable to|is missing .* from|but required in) type '(.*?)'(?=[.:]|$)",
    re.IGNORECASE | re.MULTILINE,
)
_UNKNOWN: Final = re.compile(r"Property '(.*?)' does not exist on type '(.*?)(?:\[\])*'")
_PROMISE: Final = re.compile(r"(?:types?|this) '(?:[^']*' and ')?Promise<", re.IGNORECASE)
_KEYWORD: Final = re.compile(r"\W?([^\"']+)")
_DECLARED: Final = re.compile(r"^type (\w+) = \{\n((?:    .*\n)*)\}", re.MULTILINE)
_PROPERTY: Final = re.compile(r"^    \"?([^\"?:]+)", re.MULTILINE)
_ACCESS: Final = re.compile(r"\s*(?:\?\.|\.|\[)\s*$|\[[^\[\]]*\]$")
_CALL: Final = re.compile(r"([\w$]{1,60})\([^()]*\)+$")
_NAME: Final = re.compile(r"(?<![\w$.])[\w$]+$")
_TRIED_BEFORE: Final = re.compile(r"(?:\|\||&&|[!?:]|\b(?:typeof|if\s*\(|isArray\())\s*[\w$.?\[\]]*$")
_TRIED_AFTER: Final = re.compile(r"\]?\s*(?::\s*[\w$]+\s*)?(?:\?|\|\||&&|!?[-+*/]?=)")
_REPLACED: Final = re.compile(r"(?:to|from|required in) type '\(?Promise<")
_LONGEST_AROUND: Final = 300

_KIND: Final = re.compile(
    r"(?P<array>.*\[\]$|\[|readonly |Array<)|(?P<string>string$|[\"`])|(?P<number>number$|bigint$|-?\d)"
    r"|(?P<boolean>boolean$|true$|false$)|(?P<null>null$|undefined$)|(?P<object>object$|\{|Record<)"
)
_FITTING: Final[Mapping[str, Set[str]]] = {
    "string": {"string", "number"},
    "number": {"number", "string"},
    "boolean": {"boolean", "string"},
    "array": {"string", "number", "boolean", "array", "object"},
    "object": {"object", "string"},
    "null": {"null"},
}
"""The kinds that are accepted for an expected kind, also after a repair."""


class TypescriptFindings:
    def __init__(self, prepared: Prepared, snapshot: Snapshot, *, repairs: bool) -> None:
        self._prepared = prepared
        self._functions = snapshot.library.functions
        self._repairs = repairs
        self._lines = prepared.source.split("\n")
        self._namespaces = snapshot.library.namespaces

    def diagnostics(self, findings: Sequence[Finding]) -> Iterator[Diagnostic]:
        is_told = any(problem.code == "not_awaited" for problem in self._prepared.problems)
        known = [each for each in findings if each.rule in _NOT_ASSIGNABLE | _NO_PROPERTY | _NOT_A_VALUE]
        cut = known[:MOST_FINDINGS]
        # TypeScript knows one type of a name: it does not see that a promise was replaced by its value.
        is_told = is_told or any(_REPLACED.search(each.message) for each in cut)
        tried = frozenset(self._tried(cut))
        for finding in cut:
            if finding.rule not in _NOT_ASSIGNABLE and _PROMISE.search(finding.message):
                if not is_told:
                    yield self._promise(finding)
            elif finding.rule in _NO_PROPERTY:
                yield from self._property(finding, tried)
            elif finding.rule in _NOT_ASSIGNABLE:
                yield from self._argument(finding)

    @cached_property
    def _properties(self) -> Mapping[str, Sequence[str]]:
        """The properties of each type that the script's namespaces declare."""
        spaces = (self._namespaces[name] for name in self._prepared.names & self._namespaces.keys())
        declared = (each for space in spaces for each in _DECLARED.findall(space.declarations))
        return {name: _PROPERTY.findall(rows) for name, rows in declared}

    def _diagnostic(
        self, finding: Finding, message: str, hint: str, code: str, is_certain: bool
    ) -> Diagnostic:
        refuses = is_certain and finding.line in self._prepared.unguarded_lines
        return Diagnostic(finding.line, message, hint, refuses, code)

    def _promise(self, finding: Finding) -> Diagnostic:
        """A promise that is used like its value. It refuses if that is a call, or a name that is bound once."""
        before, inside, _ = self._around(finding)
        is_property = finding.rule in _NO_PROPERTY - {"7053"}
        used = _ACCESS.sub("", before if is_property else inside, count=1)
        name = _NAME.search(used)
        bindings = (
            re.findall(rf"(?<![\w$.]){re.escape(name[0])}\s*=(?![=>])", self._prepared.source) if name else []
        )
        is_certain = used != before and (len(bindings) == 1 or used.endswith(")"))
        call = _CALL.search(used)
        shown = name[0] if name else f"{call[1]}(...)" if call else "a promise"
        message = f"{shown} is used as a value, and was not awaited"
        return self._diagnostic(finding, message, AWAIT[JAVASCRIPT], "not_awaited", is_certain)

    def _property(self, finding: Finding, tried: Set[str]) -> Iterator[Diagnostic]:
        """An undeclared property of a result. It may be there, so it refuses only if a declared one is near."""
        matched = _UNKNOWN.search(finding.message)
        if matched is None or matched[1] in tried or matched[2] not in self._properties:
            return
        near = nearest_names(matched[1], self._properties[matched[2]])
        hint = f"Did you mean {near[0]!r}?" if near else ""
        message = f"{matched[1]!r} is not a known property of {matched[2]}"
        is_certain = bool(near) and self._is_declared()
        if is_certain or not self._is_told(finding.line, matched[1]):
            yield self._diagnostic(finding, message, hint, "unknown_field", is_certain)

    def _tried(self, findings: Iterable[Finding]) -> Iterator[str]:
        """The undeclared properties that a script adds, has a default for, or asks for before it uses them."""
        for finding in findings:
            before, _, behind = self._around(finding)
            matched = _UNKNOWN.search(finding.message)
            if matched and (_TRIED_BEFORE.search(before) or _TRIED_AFTER.match(behind)):
                yield matched[1]

    def _is_told(self, line: int, name: str) -> bool:
        """Whether the facts tell of this property already. They know only declared types."""
        told = (
            each for each in self._prepared.problems if each.line == line and not self._is_seen(each.function)
        )
        return any(each.message.endswith(f" {name!r}") for each in told)

    def _is_declared(self) -> bool:
        """Whether the types of all results are declared by their tools, not only seen so far."""
        return not any(self._is_seen(f"{use.namespace}.{use.function}") for use in self._prepared.uses)

    def _is_seen(self, qualified: str) -> bool:
        """Whether the type of a function's results was only seen so far."""
        function = self._functions.get(qualified)
        return function is not None and function.returns.observed is not None

    def _argument(self, finding: Finding) -> Iterator[Diagnostic]:
        """An argument of a wrong type. Literal arguments are already validated without TypeScript."""
        matched, keyword = _ASSIGNED.search(finding.message), _KEYWORD.match(self._around(finding)[1])
        call = self._call(finding, keyword[1]) if matched and keyword else None
        if matched is None or keyword is None or call is None:
            return
        function, arguments = call
        if matched[1].startswith("Promise<"):
            message = f"{function.qualified}: {keyword[1]} is a promise, and was not awaited"
            yield self._diagnostic(finding, message, AWAIT[JAVASCRIPT], "not_awaited", True)
            return
        found, wanted = union_members(matched[1]), self._kinds(union_members(matched[2]))
        errors = [
            argument_error(
                function, {**arguments, keyword[1]: value}, repairs=self._repairs, kernel=JAVASCRIPT
            )
            for value in _literals(found)
        ]
        if errors and errors[0] is not None and None not in errors:
            yield self._diagnostic(finding, str(errors[0]), errors[0].hint, "invalid_arguments", True)
        kinds = self._kinds(found)
        if (
            not errors
            and wanted
            and kinds
            and kinds.isdisjoint(kind for each in wanted for kind in _FITTING[each])
        ):
            message = f"{function.qualified}: {keyword[1]} is {matched[1]}, not {matched[2]}"
            is_certain = not is_from_result(arguments[keyword[1]])
            yield self._diagnostic(
                finding, message, function.brief_in(JAVASCRIPT), "invalid_arguments", is_certain
            )

    def _call(self, finding: Finding, keyword: str) -> tuple[Function, Mapping[str, Json]] | None:
        """The function and the arguments of the only call that a keyword may belong to, or None."""
        calls = [
            (self._functions[f"{use.namespace}.{use.function}"], use.arguments)
            for use in self._prepared.uses
            if use.line <= finding.line <= use.end_line
            and use.arguments is not None
            and keyword in use.arguments
            and f"{use.namespace}.{use.function}" in self._functions
        ]
        return calls[0] if len(calls) == 1 else None

    def _kinds(self, parts: Iterable[str]) -> Set[str]:
        """The JSON kinds of the members of a union; empty if one is of another kind."""
        kinds = set()
        for part in parts:
            form = _KIND.match(part)
            kinds.add((form and form.lastgroup) or ("object" if part in self._properties else "other"))
        return set() if "other" in kinds else kinds

    def _around(self, finding: Finding) -> tuple[str, str, str]:
        """The text before the finding, its own if it is short and on one line, and the text behind it."""
        line = self._lines[finding.line - 1] if finding.line <= len(self._lines) else ""
        start, end = (_characters(line, column) for column in (finding.column, finding.end_column))
        before = "\n".join([*self._lines[max(0, finding.line - 4) : finding.line - 1], line[:start]])
        inside = line[start:end] if finding.line == finding.end_line else ""
        behind = line[end:] if finding.line == finding.end_line else ""
        return (
            before[-_LONGEST_AROUND:],
            inside if len(inside) < _LONGEST_AROUND else "",
            behind[:_LONGEST_AROUND],
        )


def _characters(line: str, column: int) -> int:
    """The number of characters in the first bytes of a line."""
    return column if line.isascii() else len(line.encode(errors="replace")[:column].decode(errors="ignore"))


def _literals(parts: Iterable[str]) -> list[Json]:
    """The values of `"a" | 1`; [] if the union has other members."""
    try:
        return [json.loads(part) for part in parts]
    except (ValueError, RecursionError):
        return []
