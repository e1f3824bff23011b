"""What a function's arguments should have been, set beside those that its upstream did not take.

A call that is sent fits the tool's schema as far as that is looked at before (`sound_schema`); patterns, formats and
whatever an upstream asks for beyond its own schema are left to it, and it refuses in its own words. Here those are
translated: which argument, what was sent, what is wanted. Values are not repeated, for one of them may be a secret:
of a text its length is told, of an object its keys.
"""

from collections.abc import Iterator
from typing import Final

from manifests.json_value import Json
from portal.library.arguments import path_text
from portal.library.function import Function
from portal.library.plain_text import cut, one_line, visible
from portal.library.rejected_places import Place, rejected_places
from portal.library.schema.hints import value_doc
from portal.library.schema.inspection import Path
from portal.library.schema.json_kinds import kind_of, kind_words
from portal.library.schema.kinds import kinds
from portal.library.schema.sound_schema import SoundNode, SoundSchema
from portal.library.value_text import listing

LONGEST_DIFFERENCE: Final = 1_000
"""Characters of what is told of one call."""

_MAX_DEPTH: Final = 20
_MAX_PARTS: Final = 200
_LONGEST_WANTED: Final = 200
_MOST_MEMBERS: Final = 8


class _Absent:
    """Stands for a value that was not sent."""


_ABSENT: Final = _Absent()


def difference(function: Function, wire: dict[str, Json], text: str) -> str:
    """What was sent and what is wanted, of each argument that the upstream's error text names; else of all.

    `wire` are the arguments as they were sent; at most `LONGEST_DIFFERENCE` characters, without any value of them.
    """
    told = []
    for place in rejected_places(text, function.by_keyword.__contains__):
        line = _place_told(function, wire, place)
        if line not in told:
            told.append(line)
    return cut("; ".join(told or [_whole_told(function, wire)]), LONGEST_DIFFERENCE)


def _place_told(function: Function, wire: dict[str, Json], place: Place) -> str:
    path, node, value = _walked(function, wire, place)
    if not path:
        name = one_line(visible(place[0]), 60)
        return f"{name}: {_sent(wire.get(place[0], _ABSENT))}, and the tool's schema does not name it"
    parameter = function.by_keyword.get(str(path[0]))
    annotation = "" if parameter is None or len(path) > 1 else cut(parameter.annotation, 120)
    doc = parameter.doc if parameter is not None and len(path) == 1 else value_doc(node)
    wanted = annotation or _wanted(function.arguments, node)
    wanted += f" ({doc})" if doc else ""
    return f"{path_text(function, path)}: {_sent(value)}, wanted is {cut(wanted, _LONGEST_WANTED)}"


def _walked(
    function: Function, wire: dict[str, Json], place: Place
) -> tuple[Path, SoundNode, Json | _Absent]:
    """As far as the schema knows the way; steps in between that only the validator knows are passed over."""
    path: list[str | int] = []
    node = function.arguments.root
    value: Json | _Absent = wire
    for step in place:
        known = function.by_keyword.get(step) if not path else None
        name = step if known is None else known.wire_name
        child = _child(function.arguments, node, name)
        if child is None:
            continue
        key = int(name) if isinstance(value, list) and name.isascii() and name.isdigit() else name
        path.append(key)
        node, value = child, _item(value, key)
    return tuple(path), node, value


def _item(value: Json | _Absent, key: str | int) -> Json | _Absent:
    if isinstance(value, dict):
        return value.get(key, _ABSENT)
    if isinstance(value, list) and isinstance(key, int) and key < len(value):
        return value[key]
    return _ABSENT


def _child(schema: SoundSchema, node: SoundNode, step: str) -> SoundNode | None:
    """What is said of one property, or of the item at an index."""
    for part in _parts(schema, node):
        if step in part.get("properties", {}):
            found: SoundNode = part["properties"][step]
            return found
        if step.isascii() and step.isdigit() and ("items" in part or "prefixItems" in part):
            first = part.get("prefixItems", ())
            index = int(step[:6])
            item: SoundNode = first[index] if index < len(first) else part.get("items", True)
            return item
    return None


def _parts(schema: SoundSchema, node: SoundNode) -> Iterator[dict[str, Json]]:
    """A subschema and those that it is made of, or is one of."""
    todo = [(node, 0)]
    left = _MAX_PARTS
    while todo and left:
        each, depth = todo.pop(0)
        left -= 1
        if isinstance(each, dict) and depth <= _MAX_DEPTH:
            yield each
            inner = [*each.get("allOf", ()), *each.get("anyOf", ())]
            inner += [schema.definitions.get(each["$ref"], True)] if "$ref" in each else []
            todo += [(part, depth + 1) for part in inner]


def _wanted(schema: SoundSchema, node: SoundNode) -> str:
    for part in _parts(schema, node):
        if "enum" in part:
            return f"one of {listing(part['enum'])}"
    allowed = kinds(schema, node)
    return kind_words(sorted(allowed)) if allowed else "what the upstream says"


def _whole_told(function: Function, wire: dict[str, Json]) -> str:
    names = {parameter.wire_name: parameter.name for parameter in function.parameters}
    shown = [f"{names.get(key, visible(key))} ({_kind(value)})" for key, value in wire.items()]
    more = [f"and {len(shown) - _MOST_MEMBERS} more"] if len(shown) > _MOST_MEMBERS else []
    left_out = [name for wire_name, name in names.items() if wire_name not in wire]
    sent = ", ".join([*(cut(each, 100) for each in shown[:_MOST_MEMBERS]), *more]) or "nothing"
    return f"sent: {sent}" + (f"; not sent: {', '.join(left_out[:_MOST_MEMBERS])}" if left_out else "")


def _sent(value: Json | _Absent) -> str:
    return "not sent" if isinstance(value, _Absent) else f"sent {_kind(value)}"


def _kind(value: Json) -> str:
    if isinstance(value, str):
        return f"a str of {len(value)} character{'' if len(value) == 1 else 's'}"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return f"a dict with {listing(value)}" if value else "an empty dict"
    return kind_words([kind_of(value)])
