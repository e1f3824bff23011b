"""What becomes of ty's findings: an answer in the model's terms, or nothing.

ty knows a script better than it knows Python's habits: most of what it dislikes in ordinary code runs well.
Only findings about the library's own types are passed on, and they refuse only where no run can be right.
"""

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Final

from portal.check.argument_check import allowed_kinds, fits
from portal.check.diagnostic import Diagnostic
from portal.check.known_values import UNKNOWN, KnownValues
from portal.check.script_calls import ScriptCall, ScriptCalls
from portal.check.script_places import ScriptPlaces
from portal.check.ty_server import Finding
from portal.library.schema.json_kinds import kind_words

_FOUND: Final = re.compile(
    r"^Argument to function `\w+` is incorrect: Expected `.*`, found `(.*)`$", re.MULTILINE
)
_UNKNOWN_KEY: Final = re.compile(
    r'^Unknown key "([^"]*)" for TypedDict `(\w+)`(?: - did you mean "([^"]*)"\?)?'
)
_NO_ATTRIBUTE: Final = re.compile(r"^Object of type `(\w+)` has no attribute `(\w+)`")
_COROUTINE: Final = re.compile(r"^(?:Cannot subscript object|Object) of type `CoroutineType\[")
_MODULE: Final = re.compile(r"^Object of type `<module 'tools\.(\w+)'>` is not callable")
_COROUTINE_RULES: Final = {"not-subscriptable", "not-iterable", "missing-attribute"}
# The kinds of values that a type as ty writes it can be, in JSON Schema's words.
_KINDS: Final = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "None": "null",
    "list": "array",
    "dict": "object",
}
_OF_JSON: Final = frozenset(name for kind in (dict, list, str, int, float, type(None)) for name in dir(kind))
_NEEDS_ASYNC: Final = (
    "Call it in an `async def`, or in a list comprehension: nowhere else may an `await` stand."
)


class FindingReader:
    """Reads what ty found in one script."""

    def __init__(
        self, source: str, calls: ScriptCalls, values: KnownValues, is_library_type: Callable[[str], bool]
    ) -> None:
        self._calls = calls
        self._values = values
        self._is_library_type = is_library_type
        self._source = source
        self._arguments = {
            keyword.value: (call, keyword.arg)
            for call in calls.by_node.values()
            for keyword in call.node.keywords
            if keyword.arg is not None
        }

    @cached_property
    def _places(self) -> ScriptPlaces:
        return ScriptPlaces(self._source, self._calls.nodes)

    @cached_property
    def _stored(self) -> set[ast.expr]:
        """The keys of `result[key] = value` and `del result[key]`."""
        subscripts = (node for node in self._calls.nodes if isinstance(node, ast.Subscript))
        return {node.slice for node in subscripts if not isinstance(node.ctx, ast.Load)}

    def diagnostics(self, findings: Iterable[Finding]) -> Iterator[Diagnostic]:
        readers = {
            "invalid-argument-type": self._argument,
            "invalid-typed-dict-key": self._key,
            "missing-attribute": self._attribute,
            "not-callable": self._module,
        }
        for finding in findings:
            is_coroutine = finding.rule in _COROUTINE_RULES and _COROUTINE.match(finding.message)
            read = self._unawaited if is_coroutine else readers.get(finding.rule)
            diagnostic = read(finding) if read is not None else None
            if diagnostic is not None:
                yield diagnostic

    def _argument(self, finding: Finding) -> Diagnostic | None:
        """An argument whose declared type does not fit: a warning, because declarations may be wrong.

        What is certain about arguments was found without ty; a value that is known fits, whatever ty says.
        """
        node, matched = self._places.at(finding), _FOUND.match(finding.message)
        call, name = self._arguments.get(node, (None, "")) if node is not None else (None, "")
        parameter = None if call is None else call.function.by_keyword.get(name)
        if node is None or matched is None or call is None or parameter is None:
            return None
        if self._values.value(node) is not UNKNOWN or self._values.kind(node) is not None:
            return None
        allowed = allowed_kinds(call.function, parameter)
        found = [self._kind(part) for part in matched[1].split(" | ")]
        kinds = [kind for kind in found if kind is not None]
        if allowed is None or len(kinds) < len(found) or any(fits(kind, allowed) for kind in kinds):
            return None
        words = f"seems to be {kind_words(kinds)}, not {kind_words(sorted(allowed))}"
        message = f"{call.function.qualified}: {name} {words}"
        return Diagnostic(finding.line, message, call.function.signature, False, "invalid_arguments")

    def _key(self, finding: Finding) -> Diagnostic | None:
        """A field that a result does not declare: a warning, because results may hold more than they declare."""
        matched, node = _UNKNOWN_KEY.match(finding.message), self._places.at(finding)
        if matched is None or node is None or node in self._stored or not self._is_of_library(matched[2]):
            return None
        near = f"Did you mean {matched[3]!r}?" if matched[3] else ""
        message = f"{matched[1]!r} is not among the declared fields of {matched[2]}"
        return Diagnostic(finding.line, message, near, False, "unknown_field")

    def _attribute(self, finding: Finding) -> Diagnostic | None:
        """An attribute on a result, which is plain JSON whatever it declares, and has no such attribute."""
        matched, node = _NO_ATTRIBUTE.match(finding.message), self._places.at(finding)
        if matched is None or not isinstance(node, ast.Attribute) or not self._is_of_library(matched[1]):
            return None
        if not isinstance(node.ctx, ast.Load) or matched[2] in _OF_JSON:
            return None
        message = f"a {matched[1]} is a dict and has no attribute {matched[2]!r}"
        return self._certain(finding, message, f'Write ["{matched[2]}"].', "unknown_field")

    def _unawaited(self, finding: Finding) -> Diagnostic | None:
        """The coroutine of a library call, taken for what it would give."""
        node = self._places.at(finding)
        if isinstance(node, (ast.Subscript, ast.Attribute)):
            node = node.value
        call = self._call_of(node)
        if call is None:
            return None
        message = f"{call.function.qualified}(...) is used without being awaited"
        return self._certain(finding, message, _NEEDS_ASYNC, "not_awaited")

    def _module(self, finding: Finding) -> Diagnostic | None:
        matched = _MODULE.match(finding.message)
        if matched is None:
            return None
        return self._certain(
            finding,
            f"{matched[1]} is a namespace, not a function",
            "Call one of its functions.",
            "not_a_function",
        )

    def _certain(self, finding: Finding, message: str, hint: str, code: str) -> Diagnostic:
        return Diagnostic(finding.line, message, hint, not self._calls.is_guarded(finding.line), code)

    def _kind(self, written: str) -> str | None:
        """What JSON Schema calls a type that ty wrote; None for those it has no word for."""
        name = written.partition("[")[0]
        if name == "Literal":
            return "string" if written.startswith('Literal["') else None
        return "object" if self._is_of_library(name) else _KINDS.get(name)

    def _is_of_library(self, name: str) -> bool:
        return name not in self._calls.classes and self._is_library_type(name)

    def _call_of(self, node: ast.expr | None) -> ScriptCall | None:
        """The library call that an expression is, or the one whose coroutine a variable was bound to."""
        if isinstance(node, ast.Name):
            node = self._values.bound_once(node)
        return self._calls.by_node.get(node) if isinstance(node, ast.Call) else None
