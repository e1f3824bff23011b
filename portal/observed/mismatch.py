"""Where a result is not what its tool declares. Told, and never a reason to reject it: one real result in thirteen."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from manifests.json_value import Json
from portal.library.function import Function
from portal.library.plain_text import one_line
from portal.library.schema.inspection import Path, Violation
from portal.library.schema.json_kinds import kind_of, kind_words
from portal.library.schema.references import in_place
from portal.library.schema.rules import LACKS
from portal.library.schema.sound_schema import SoundNode, SoundSchema
from portal.library.schema.violations import violations
from portal.observed.field_names import is_field_name

LONGEST_MISMATCH: Final = 200
MAX_STEPS: Final = 2_000
"""Subschemas that are held against one result, which takes a millisecond; what lies beyond counts as right."""

_MOST_PLACES: Final = 3
_OTHERS: Final = ("additionalProperties", "patternValues")


def mismatch(function: Function, value: Json) -> str:
    """Where and how a result does not fit, at three places at most and without any value of it; "" if it fits."""
    schema = function.results
    found = violations(schema, value, max_steps=MAX_STEPS)
    told = dict.fromkeys(_told(schema, each, value) for each in found)
    return one_line("; ".join([*told][:_MOST_PLACES]), LONGEST_MISMATCH)


def _told(schema: SoundSchema, violation: Violation, value: Json) -> str:
    place = "".join(_steps(schema, violation.path)) or "it"
    if violation.message.startswith(LACKS):  # what it lacks are names of the schema
        return f"{place} {violation.message}"
    for step in violation.path:
        value = value[step]
    return f"{place} is {kind_words([kind_of(value)])} that the schema does not take"


def _steps(schema: SoundSchema, path: Path) -> Iterator[str]:
    """Where in a result: indices are left out, and keys that the schema does not name, because they may be data."""
    nodes = _together(schema, [schema.root])
    for step in path:
        if isinstance(step, int):
            yield "[]"
            inner = [
                each for node in nodes for each in (*node.get("prefixItems", ()), node.get("items", True))
            ]
        elif named := [node["properties"][step] for node in nodes if step in node.get("properties", ())]:
            yield f"[{step!r}]" if is_field_name(step) else "[...]"
            inner = named
        else:
            yield "[...]"
            inner = [node[word] for node in nodes for word in _OTHERS if word in node]
        nodes = _together(schema, inner)


def _together(schema: SoundSchema, nodes: Iterable[SoundNode]) -> list[dict[str, Any]]:
    """These subschemas and all that may hold at the same place."""
    found: list[dict[str, Any]] = []
    references: set[str] = set()
    waiting = list(nodes)
    while waiting:
        for node in in_place(waiting.pop()):
            found.append(node)
            if "$ref" in node and node["$ref"] not in references:
                references.add(node["$ref"])
                waiting.append(schema.definitions[node["$ref"]])
    return found
