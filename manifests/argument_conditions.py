"""What a rule demands of the arguments of a call, compiled."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from manifests.argument_schema import MAX_STEPS, Fit, TooMuchError, compiled
from manifests.comparisons import Test, test_of
from manifests.json_value import Json
from manifests.text_readings import ReadText
from manifests.tool_rules import AllowRule, Comparison

_SHOWN = 60
_MISSING = object()


class CallArguments:
    """The arguments of one call, by the tool's own names, as they would be sent. Each text is read once.

    The schemas of `conditions` whose `where` they meet share what may be looked at: what one of them takes leaves
    another no less, so it is the same whichever stands first.
    """

    def __init__(self, values: Mapping[str, Json], conditions: Iterable["ArgumentCondition | None"]) -> None:
        self.values = dict(values)
        self.undecided: list[ArgumentCondition] = []
        """Conditions that would take too long to be held against them."""
        self._read: dict[str, ReadText] = {}
        schemas = sum(each is not None and each.needs_schema(self) for each in conditions)
        self._steps = MAX_STEPS // max(schemas, 1)

    def read(self, name: str) -> ReadText | None:
        """What was read of a text; None if it is none."""
        known = self._read.get(name)
        if known is None and isinstance(value := self.values.get(name), str):
            known = self._read[name] = ReadText(value)
        return known

    def meet(self, condition: "ArgumentCondition | None") -> bool:
        """Whether they are what is demanded."""
        if condition is None:
            return True
        try:
            return condition.is_met(self, self._steps)
        except TooMuchError:
            self.undecided.append(condition)
            return False


_Tests: TypeAlias = Sequence[tuple[str, Sequence[tuple[str, Test]]]]
"""By name of an argument, and of a comparison."""


@dataclass(frozen=True)
class ArgumentCondition:
    """The `where` and the `schema` of one rule."""

    where: Mapping[str, Comparison]
    schema: Json | None

    @classmethod
    def of(cls, rule: AllowRule) -> "ArgumentCondition | None":
        """None if the rule demands nothing."""
        return cls(rule.where, rule.schema_) if rule.where or rule.schema_ is not None else None

    def needs_schema(self, arguments: CallArguments) -> bool:
        """Whether its schema decides about the arguments."""
        return self.schema is not None and self._unmet(arguments) is None

    def is_met(self, arguments: CallArguments, max_steps: int) -> bool:
        """Whether the arguments are what it demands.

        Raises:
            TooMuchError: They have too many parts to say so.
        """
        return self._unmet(arguments) is None and self._fit(arguments.values, max_steps)

    def fault(self, arguments: CallArguments) -> str:
        """What is wrong with arguments that do not meet it, with the value and what may be."""
        unmet = self._unmet(arguments)
        if unmet is None:
            return "the arguments do not fit the schema"
        name, comparison = unmet
        demanded = self.where[name]
        value = arguments.values.get(name, _MISSING)
        if value is _MISSING:
            return f"{name[:_SHOWN]} is not given, and must {_demand(demanded)}"
        why = _why(comparison, arguments.read(name), getattr(demanded, comparison))
        return f"{name[:_SHOWN]} is {_cut(value)}{why}; it must {_demand(demanded)}"

    def _unmet(self, arguments: CallArguments) -> tuple[str, str] | None:
        """The first argument that is not what it must be, and the comparison that it does not meet."""
        for name, tests in self._tests:
            value, text = arguments.values.get(name, _MISSING), arguments.read(name)
            for comparison, test in tests:
                if value is _MISSING or not test(value, text):
                    return name, comparison
        return None

    @cached_property
    def _tests(self) -> _Tests:
        return [
            (name, [(each, test_of(each, getattr(comparison, each))) for each in comparison.model_fields_set])
            for name, comparison in self.where.items()
        ]

    @cached_property
    def _fit(self) -> Fit:
        return compiled(True if self.schema is None else self.schema)

    def __str__(self) -> str:
        told = [f"{name[:_SHOWN]} must {_demand(comparison)}" for name, comparison in self.where.items()]
        return "; ".join([*told, *(["the arguments must fit the schema"] if self.schema is not None else [])])


TOO_MUCH = f"the arguments have too many parts to be held against a schema: those of a tool share {MAX_STEPS:,} looks"


_WORDS = {
    "equals": "be {}",
    "one_of": "be one of {}",
    "prefix": "begin with {}",
    "suffix": "end with {}",
    "min": "be at least {}",
    "max": "be at most {}",
}


def _demand(comparison: Comparison) -> str:
    said = [name for name in _WORDS if name in comparison.model_fields_set]
    return " and ".join(_WORDS[name].format(_cut(getattr(comparison, name))) for name in said)


def _why(name: str, text: ReadText | None, operand: Json) -> str:
    if name not in ("prefix", "suffix") or text is None:
        return ""
    found = text.other_end(operand) if name == "suffix" else text.detour
    return f" with {found} in it" if found else ""


def _cut(value: Json) -> str:
    if isinstance(value, str):  # of a long one no more is looked at
        value = value[: _SHOWN + 1]
    text = ", ".join(map(repr, value)) if isinstance(value, tuple) else _shown(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _shown(value: Json) -> str:
    if isinstance(value, list | dict):
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value):,}"
    if isinstance(value, int) and value.bit_length() > 4 * _SHOWN:
        return "an integer of many digits"
    return repr(value)
