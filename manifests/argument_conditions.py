"""What a rule demands of the arguments of a call, compiled."""

from collections.abc import Mapping
from dataclasses import dataclass

from manifests.argument_schema import fits
from manifests.comparisons import holds
from manifests.json_value import Json
from manifests.text_readings import detour, other_end
from manifests.tool_rules import AllowRule, Comparison

_SHOWN = 60
_MISSING = object()


@dataclass(frozen=True)
class ArgumentCondition:
    """The `where` and the `schema` of one rule. Arguments are those that would be sent, by the tool's own names."""

    where: Mapping[str, Comparison]
    schema: Json | None

    @classmethod
    def of(cls, rule: AllowRule) -> "ArgumentCondition | None":
        """None if the rule demands nothing."""
        return cls(rule.where, rule.schema_) if rule.where or rule.schema_ is not None else None

    def fault(self, arguments: Mapping[str, Json]) -> str:
        """What is wrong with the arguments, with the value and what may be; "" if nothing is."""
        for name, comparison in self.where.items():
            if fault := _fault(arguments.get(name, _MISSING), comparison):
                return f"{name[:_SHOWN]} {fault}"
        if self.schema is not None and not fits(dict(arguments), self.schema):
            return "the arguments do not fit the schema"
        return ""

    def __str__(self) -> str:
        told = [f"{name[:_SHOWN]} must {_demand(comparison)}" for name, comparison in self.where.items()]
        return "; ".join([*told, *(["the arguments must fit the schema"] if self.schema is not None else [])])


def _fault(value: Json, comparison: Comparison) -> str:
    if value is _MISSING:
        return f"is not given, and must {_demand(comparison)}"
    for name in comparison.model_fields_set:
        if not holds(name, value, getattr(comparison, name)):
            return f"is {_cut(value)}{_why(name, value, getattr(comparison, name))}; it must {_demand(comparison)}"
    return ""


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


def _why(name: str, value: Json, operand: Json) -> str:
    if name not in ("prefix", "suffix") or not isinstance(value, str):
        return ""
    found = other_end(value, operand) if name == "suffix" else detour(value)
    return f" with {found} in it" if found else ""


def _cut(value: Json) -> str:
    text = ", ".join(map(repr, value)) if isinstance(value, tuple) else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
