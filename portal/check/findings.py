"""What becomes of ty's findings: an answer in the model's terms, or nothing.

ty knows a script better than it knows Python's habits: most of what it dislikes in ordinary code runs well.
Only findings about the library's own types are passed on, and they refuse only where no run can be right.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

from portal.check.argument_check import ArgumentCheck
from portal.check.declared_types import DeclaredType, DeclaredTypes
from portal.check.diagnostic import Suspicion
from portal.check.known_values import UNKNOWN
from portal.check.script_calls import ScriptCall
from portal.check.script_places import ScriptPlaces
from portal.check.script_tree import ScriptTree
from portal.check.ty_server import Finding
from portal.library.arguments import listing
from portal.library.schema import kind_words

_FOUND: Final = re.compile(
    r"^Argument to function `\w+` is incorrect: Expected `.*`, found `(.*)`$", re.MULTILINE
)
_UNKNOWN_KEY: Final = re.compile(
    r'^Unknown key "([^"]*)" for TypedDict `(\w+)`(?: - did you mean "([^"]*)"\?)?'
)
_NO_ATTRIBUTE: Final = re.compile(r"^Object of type `(\w+)` has no attribute `(\w+)`")
_COROUTINE: Final = re.compile(r"^(?:Cannot subscript object|Object) of type `CoroutineType\[")
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
_NEEDS_ASYNC: Final = (
    "Call it in an `async def`, or in a list comprehension: nowhere else may an `await` stand."
)


class FindingReader:
    """Reads what ty found in one script."""

    def __init__(
        self,
        script: ScriptTree,
        calls: Mapping[ast.expr, ScriptCall],
        arguments: ArgumentCheck,
        types: DeclaredTypes,
    ) -> None:
        self._script = script
        self._calls = calls
        self._values = arguments.values
        self._check = arguments
        self._types = types
        self._classes = {node.name for node in script.scopes.classes}
        self._arguments = {
            keyword.value: (call, keyword.arg)
            for call in calls.values()
            for keyword in call.node.keywords
            if keyword.arg is not None
        }

    @cached_property
    def _places(self) -> ScriptPlaces:
        return ScriptPlaces(self._script.source, self._script.nodes)

    @cached_property
    def _stored(self) -> set[ast.expr]:
        """The keys of `result[key] = value` and `del result[key]`."""
        subscripts = self._script.all_of(ast.Subscript)
        return {node.slice for node in subscripts if not isinstance(node.ctx, ast.Load)}

    def suspicions(self, findings: Iterable[Finding]) -> Iterator[Suspicion]:
        readers = {
            "invalid-argument-type": self._argument,
            "invalid-typed-dict-key": self._key,
            "missing-attribute": self._attribute,
        }
        for finding in findings:
            is_coroutine = finding.rule in _COROUTINE_RULES and _COROUTINE.match(finding.message)
            read = self._unawaited if is_coroutine else readers.get(finding.rule)
            node = self._places.at(finding)
            found = read(finding, node) if read is not None and node is not None else None
            if found is not None:
                yield found

    def _argument(self, finding: Finding, node: ast.expr) -> Suspicion | None:
        """An argument whose declared type does not fit: a warning, because declarations may be wrong.

        What is certain about arguments was found without ty; a value that is known fits, whatever ty says.
        """
        matched = _FOUND.match(finding.message)
        call, name = self._arguments.get(node, (None, ""))
        parameter = None if call is None else call.function.by_keyword.get(name)
        if matched is None or call is None or parameter is None:
            return None
        if self._values.value(node) is not UNKNOWN or self._values.kind(node) is not None:
            return None
        found = [self._kind(part) for part in matched[1].split(" | ")]
        known = [kind for kind in found if kind is not None]
        if len(known) < len(found) or any(
            self._check.takes(call.function, parameter, kind) for kind in known
        ):
            return None
        words = f"seems to be {kind_words(known)}, not {parameter.annotation}"
        message = f"{call.function.qualified}: {name} {words}"
        return Suspicion(
            call.node, finding.line, message, call.function.signature, "invalid_arguments", is_sure=False
        )

    def _key(self, finding: Finding, node: ast.expr) -> Suspicion | None:
        """A field that a result does not declare: a warning, because results may hold more than they declare."""
        matched = _UNKNOWN_KEY.match(finding.message)
        types = [] if matched is None else self._without(matched[1], matched[2])
        if matched is None or not types or node in self._stored:
            return None
        is_observed = all(each.is_observed for each in types)
        is_one = len(set(types)) == 1
        known = f"{'Seen were' if is_observed else 'It declares'} {listing(types[0].fields) or 'none'}."
        near = f"Did you mean {matched[3]!r}?" if matched[3] else known if is_one else ""
        kind = "fields that were seen so far in a" if is_observed else "declared fields of"
        message = f"{matched[1]!r} is not among the {kind} {matched[2]}"
        return Suspicion(node, finding.line, message, near, "unknown_field", is_sure=False)

    def _without(self, key: str, name: str) -> Sequence[DeclaredType]:
        """The typed dicts of one name that lack a key; one that has it is another namespace's."""
        return [each for each in self._typed_dicts(name) if key not in each.fields]

    def _attribute(self, finding: Finding, node: ast.expr) -> Suspicion | None:
        """An attribute of a result: a warning, because the value may be another; `Results` knows of certain ones."""
        matched = _NO_ATTRIBUTE.match(finding.message)
        if matched is None or not self._typed_dicts(matched[1]) or not isinstance(node, ast.Attribute):
            return None
        message = f"a {matched[1]} is a dict and has no attribute {matched[2]!r}"
        return Suspicion(
            node, finding.line, message, f'Write ["{matched[2]}"].', "unknown_field", is_sure=False
        )

    def _unawaited(self, finding: Finding, node: ast.expr) -> Suspicion | None:
        """The coroutine of a library call, taken for what it would give."""
        value = node.value if isinstance(node, (ast.Subscript, ast.Attribute)) else node
        call = self._call_of(value)
        if call is None:
            return None
        message = f"{call.function.qualified}(...) is used without being awaited"
        return Suspicion(node, finding.line, message, _NEEDS_ASYNC, "not_awaited")

    def _kind(self, written: str) -> str | None:
        """What JSON Schema calls a type that ty wrote; None for those it has no word for."""
        name = written.partition("[")[0]
        if name == "Literal":
            return "string" if written.startswith('Literal["') else None
        return "object" if self._typed_dicts(name) else _KINDS.get(name)

    def _typed_dicts(self, name: str) -> Sequence[DeclaredType]:
        """The library's typed dicts of one name."""
        return () if name in self._classes else self._types.named(name)

    def _call_of(self, node: ast.expr | None) -> ScriptCall | None:
        """The library call that an expression is, or the one whose coroutine a variable was bound to."""
        if isinstance(node, ast.Name):
            node = self._values.bound_once(node)
        return self._calls.get(node) if isinstance(node, ast.Call) else None
