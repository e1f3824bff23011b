"""One walk of a value along a schema, with a bound on every dimension."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from manifests.json_value import Json
from portal.library.schema.json_kinds import is_kind, kind_words
from portal.library.schema.sound_schema import SoundNode
from portal.library.value_text import value_text

MAX_STEPS: Final = 200_000
"""Subschemas applied to one value; what is not reached by then counts as right (the upstream checks too)."""

MAX_DEPTH: Final = 120
"""Subschemas within one another; beneath them a value counts as right."""

MAX_VIOLATIONS: Final = 5

Path: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True)
class Violation:
    """One reason why a value does not fit: where it sits, and what is wrong with it."""

    path: Path
    message: str


class Inspection:
    """One value held against one schema; alternatives get an inspection of their own, sharing the steps."""

    __slots__ = ("_depth", "_rules", "_steps", "definitions", "found")

    def __init__(
        self,
        definitions: Mapping[str, SoundNode],
        rules: Mapping[str, "Rule"],
        steps: list[int],
        depth: int = 0,
    ) -> None:
        self.definitions = definitions
        self.found: list[Violation] = []
        self._rules = rules
        self._steps = steps
        self._depth = depth

    def inspect(self, schema: SoundNode, value: Json, path: Path) -> None:
        if schema is True or len(self.found) >= MAX_VIOLATIONS:
            return
        if schema is False:
            self.report(path, "is not allowed here")
            return
        self._steps[0] -= 1
        if self._steps[0] < 0 or self._depth >= MAX_DEPTH:
            return
        self._depth += 1
        names = schema.get("type")
        if names is not None and not is_kind(value, names):
            self.report(path, f"is {value_text(value)}, not {kind_words(names)}")
        else:
            self._apply_rules(schema, value, path)
        self._depth -= 1

    def alternative(self, schema: SoundNode, value: Json, path: Path) -> list[Violation]:
        """What one of several alternatives finds; none means that it fits."""
        inner = Inspection(self.definitions, self._rules, self._steps, self._depth)
        inner.inspect(schema, value, path)
        return inner.found

    def report(self, path: Path, message: str) -> None:
        found = Violation(path, message)
        if len(self.found) < MAX_VIOLATIONS and found not in self.found:
            self.found.append(found)

    def _apply_rules(self, schema: dict[str, Any], value: Json, path: Path) -> None:
        for word, operand in schema.items():
            rule = self._rules.get(word)
            if rule is not None:
                rule(self, operand, value, path, schema)


Rule: TypeAlias = Callable[[Inspection, Any, Json, Path, dict[str, Any]], None]
"""What one keyword does with its operand; the last argument is the schema it stands in."""
