"""Members of objects put into a JSON text and taken out of it; whatever else stands there stays as it is."""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from manifests.json_value import Json
from portal.client_files.json_text import (
    BOM,
    Items,
    JsonTextError,
    Member,
    Members,
    Node,
    Scalar,
    Unread,
    after_blank,
    read_json,
)
from portal.client_files.places import LOOKED_INTO

_UNIT: Final = "  "
_FIRST_INDENT: Final = re.compile(r"\n([ \t]+)\S")


class CannotEditError(ValueError):
    """The text is written in a way that cannot be edited safely; the message says more."""


@dataclass(frozen=True)
class _Edit:
    start: int
    end: int
    text: str


def object_at(text: str, path: Sequence[str]) -> Members | None:
    """The object under these keys; None if it is not there."""
    node: Node | None = read_json(text, LOOKED_INTO)
    for key in path:
        node = node.find(key) if isinstance(node, Members) else None
    return node if isinstance(node, Members) else None


def value_texts(text: str, path: Sequence[str]) -> dict[str, str]:
    """The members of an object, as they are written."""
    found = object_at(text, path)
    return {each.key: text[each.node.start : each.node.end] for each in found.members} if found else {}


def without_members(text: str, path: Sequence[str], keys: Collection[str]) -> str:
    """
    Raises:
        CannotEditError: Something else would change, too.
    """
    container = object_at(text, path)
    if container is None or not keys:
        return text
    kept = [each for each in container.members if each.key not in keys]
    gone = [each for each in container.members if each.key in keys]
    edits = [edit for each in gone for edit in _removal(text, each)]
    if kept and container.members[-1].key in keys and _comma(text, container.members[-1]) is None:
        # What is the last one now must not end in a comma: some clients take none.
        comma = _comma(text, kept[-1])
        assert comma is not None  # another member followed
        edits.append(_Edit(comma, comma + 1, ""))
    changed = _applied(text, edits)
    return _checked(text, changed, path, lambda before: [pair for pair in before if pair[0] not in keys])


def with_members(
    text: str, path: Sequence[str], values: Mapping[str, str], *, is_laid_out: bool = False
) -> str:
    """The text with members, as JSON texts, before those that the object has; made if it is not there.

    With `is_laid_out` values go onto lines of their own, as the text around them does; else they stay as they are.

    Raises:
        CannotEditError: Something else would change, too.
    """
    if not text.removeprefix(BOM).strip():
        text = "{}\n"
    depth = next((d for d in range(len(path), -1, -1) if object_at(text, path[:d]) is not None), None)
    if depth is None:
        raise CannotEditError("it is no object")
    for missing in path[depth:]:
        text = _inserted(text, path[:depth], {missing: "{}"})
        depth += 1
    return _inserted(text, path, values, is_laid_out=is_laid_out)


def _inserted(text: str, path: Sequence[str], values: Mapping[str, str], *, is_laid_out: bool = False) -> str:
    container = object_at(text, path)
    if container is None:
        raise CannotEditError(f"{path[-1] if path else 'it'} is no object")
    if not values:
        return text
    line_end = "\r\n" if "\r\n" in text else "\n"
    inside = text[container.start : container.end]
    is_spread = "\n" in inside or (not container.members and "\n" in text) or text == "{}\n"
    outer = _indent(text, container.start)
    first = _FIRST_INDENT.search(text)
    unit = first[1] if first else _UNIT
    inner = (
        _indent(text, container.members[0].start) if container.members and "\n" in inside else outer + unit
    )
    if is_spread:
        texts = {
            key: _laid_out(value, inner, unit) if is_laid_out else value for key, value in values.items()
        }
        members = [f"\n{inner}{json.dumps(key, ensure_ascii=False)}: {each}" for key, each in texts.items()]
        tail = "," if container.members else "" if "\n" in inside else line_end + outer
        added = ",".join(members).replace("\r\n", "\n").replace("\n", line_end) + tail
    else:
        added = ", ".join(f"{json.dumps(key, ensure_ascii=False)}: {value}" for key, value in values.items())
        added += ", " if container.members else ""
    changed = _applied(text, [_Edit(container.start + 1, container.start + 1, added)])
    new = [(key, _facts(read_json(value))) for key, value in values.items()]
    return _checked(text, changed, path, lambda before: [*new, *before])


def json_text(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)


def _laid_out(value: str, indent: str, unit: str) -> str:
    spread = json.dumps(json.loads(value), ensure_ascii=False, indent=unit)
    return spread.replace("\n", f"\n{indent}")


def _removal(text: str, member: Member) -> list[_Edit]:
    start, end = member.start, member.node.end
    edits = []
    comma = _comma(text, member)
    if comma is not None and text[end:comma].strip() == "":
        end = comma + 1
    elif comma is not None:
        edits.append(_Edit(comma, comma + 1, ""))
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", end)
    is_alone = text[line_start:start].strip() == "" and line_end >= 0 and text[end:line_end].strip() == ""
    if is_alone:
        start, end = line_start, line_end + 1
    elif text[end : end + 1] == " ":
        end += 1
    return [_Edit(start, end, ""), *edits]


def _comma(text: str, member: Member) -> int | None:
    """Where the comma behind a member is."""
    position = after_blank(text, member.node.end)
    return position if text[position : position + 1] == "," else None


def _indent(text: str, position: int) -> str:
    line = text[text.rfind("\n", 0, position) + 1 : position]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _applied(text: str, edits: Sequence[_Edit]) -> str:
    for edit in sorted(edits, key=lambda each: each.start, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


_Facts: TypeAlias = tuple[Json, ...]


def _facts(node: Node | None) -> _Facts:
    """What a node says, keys that are there twice included."""
    match node:
        case Scalar(value=value):
            return (type(value).__name__, value)
        case Unread(text=text):
            return ("unread", text)
        case Items(nodes=nodes):
            return ("items", *map(_facts, nodes))
        case Members(members=members):
            return ("members", *((each.key, _facts(each.node)) for each in members))
    return ()


def _reread(text: str) -> Node | None:
    try:
        return read_json(text, LOOKED_INTO)
    except JsonTextError:
        raise CannotEditError("it would not be JSON any more") from None


def _checked(before: str, after: str, path: Sequence[str], change: Callable[[list[Json]], list[Json]]) -> str:
    """The text after an edit, if just the object at `path` changed, and as it was to."""
    if _facts(_reread(after)) != _changed(_facts(_reread(before)), path, change):
        raise CannotEditError("it is written in a way that cannot be edited safely")
    return after


def _changed(facts: _Facts, path: Sequence[str], change: Callable[[list[Json]], list[Json]]) -> _Facts:
    kind, *pairs = facts
    if not path:
        return (kind, *change(pairs))
    last = max(index for index, pair in enumerate(pairs) if pair[0] == path[0])  # which counts, as for `find`
    pairs[last] = (path[0], _changed(pairs[last][1], path[1:], change))
    return (kind, *pairs)
