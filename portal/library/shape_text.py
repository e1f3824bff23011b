"""A type in place: `{items: list[{id: int, kind?: 'a'|'b'}], total: int}`, in one line or in full."""

from typing import Any, Final

from manifests.json_value import Reference, SoundNode
from portal.base.plain_text import cut, is_literal
from portal.library.notation import ANY, NONE, PYTHON_NOTATION, Notation, Type, union
from portal.library.schema import MAX_DEPTH, is_kind, kind_of
from portal.library.schema_types import (
    MAX_LITERALS,
    MAX_NODES,
    Definitions,
    SchemaTypes,
    properties_of,
    value_doc,
)

LONGEST_SHAPE: Final = 160
"""Characters of a type in one line. In a longer one, objects are their keys, and what is left out is `…`."""

_MAX_KEYS: Final = 10
_FEW_LITERALS: Final = 8
_MAX_PARTS: Final = 60


def shape_text(node: SoundNode, notation: Notation = PYTHON_NOTATION) -> str:
    """The type of a schema; "Any" if it declares none. `?` marks keys that may be missing."""
    for most, has_keys_only in ((LONGEST_SHAPE, False), (3 * LONGEST_SHAPE, True)):
        shape = _Shape(notation, has_keys_only)
        found = shape.text(node)
        if len(found) <= most and shape.is_whole:
            return found
    shape = _Shape(notation, has_keys_only=True)
    return shape.text({"type": node.get("type", [])} if isinstance(node, dict) else node)


def full_text(
    node: SoundNode, told: set[str], levels: int = MAX_DEPTH, notation: Notation = PYTHON_NOTATION
) -> str:
    """The type of a schema in full. An object has one line for each key if it is long or keys have comments.

    Such an object, and each comment, is `told` once in an answer. Repeated objects, and those nested deeper than
    `levels`, are shown by their keys. A type within itself is `Any`.
    """
    return _FullShape(notation, told, levels).text(node)


class _Shape(SchemaTypes):
    """One rendering of a schema, without definitions."""

    def __init__(self, notation: Notation, has_keys_only: bool, left: int = _MAX_PARTS) -> None:
        super().__init__("", Definitions((), notation), left)
        self._has_keys_only = has_keys_only

    @property
    def is_whole(self) -> bool:
        """Whether it has no more parts than are rendered."""
        return self._left >= 0

    def text(self, node: SoundNode) -> str:
        return self.notation.text(self._type(node, ""))

    def _of_kind(self, kind: str, node: dict[str, Any], place: str) -> Type:
        return tuple(self.notation.bare.get(each, each) for each in super()._of_kind(kind, node, place))

    def _referred(self, reference: Reference, place: str) -> Type:
        if reference in self._open:
            return ANY
        self._open.add(reference)
        type_ = self._type(reference.schema, place)
        self._open.remove(reference)
        return type_

    def _typed_dict(self, node: dict[str, Any], place: str) -> Type:
        return (f"{{{', '.join(self._rows(node).values())}}}",)

    def _rows(self, node: dict[str, Any]) -> dict[str, str]:
        """`name?: type` by key, required ones first."""
        rows: dict[str, str] = {}
        properties, required = properties_of(node), frozenset(node.get("required", ()))
        for key in sorted(properties, key=lambda each: each not in required):
            if not self.is_whole or (self._has_keys_only and len(rows) == _MAX_KEYS):
                return {**rows, key: "…"}
            name = self.notation.key(cut(key, 60))
            name += "" if key in required else "?"
            rows[key] = name if self._has_keys_only else f"{name}: {self.text(properties[key])}"
        return rows

    def _enum(self, node: dict[str, Any]) -> Type:
        values = [value for value in node["enum"] if "type" not in node or is_kind(value, node["type"])]
        exact = [self.notation.literal(value) for value in values if is_literal(value) and value is not None]
        most = _FEW_LITERALS if self._has_keys_only else MAX_LITERALS
        shown = [*exact[:most], *(["…"] if len(exact) > most else [])]
        kinds = {kind_of(value): None for value in values if value is None or not is_literal(value)}
        others = (self._of_kind(kind, {}, "") if kind != "null" else NONE for kind in kinds)
        return union([("|".join(shown),) if exact else (), *others])


class _FullShape(_Shape):
    def __init__(self, notation: Notation, told: set[str], levels: int) -> None:
        super().__init__(notation, has_keys_only=False, left=MAX_NODES)
        self._told = told
        self._levels = levels

    def _typed_dict(self, node: dict[str, Any], place: str) -> Type:
        if self._levels <= 0:
            return _Shape(self.notation, has_keys_only=True)._typed_dict(node, place)
        self._levels -= 1
        texts, properties = self._rows(node), properties_of(node)
        self._levels += 1
        line = f"{{{', '.join(texts.values())}}}"
        rows = [f"{each},{self.notation.comment(value_doc(properties[key]))}" for key, each in texts.items()]
        has_comments = any(f"  {self.notation.sign} " in row and row not in self._told for row in rows)
        if not has_comments and len(line) <= LONGEST_SHAPE and "\n" not in line:
            return (line,)
        if not has_comments and line in self._told:
            return _Shape(self.notation, has_keys_only=True)._typed_dict(node, place)
        self._told.update(rows, [line])
        return ("".join(["{\n", *map(indented, rows), "}"]),)


def indented(row: str) -> str:
    return "    " + row.replace("\n", "\n    ") + "\n"
