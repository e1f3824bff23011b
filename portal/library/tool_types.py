"""The types that one tool defines, while its schemas are compiled."""

from typing import Final

from portal.library.type_definitions import AliasDefinition, Definition, Field, TypedDictDefinition, shape
from portal.library.type_expressions import Named, Type

MAX_TYPES: Final = 100
"""Definitions of one tool; further objects become `dict[str, Any]`."""


class ToolTypes:
    """Definitions by name, each name once; the same shape under the same wanted name is one definition.

    Namespaces join the definitions of their tools and may rename them; here names are unique in the tool.
    """

    def __init__(self) -> None:
        self.definitions: dict[str, Definition] = {}
        self._claimed: set[str] = set()
        self._shapes: dict[tuple[str, Definition], str] = {}

    @property
    def is_full(self) -> bool:
        return len(self._claimed) >= MAX_TYPES

    def claim(self, wanted: str) -> str:
        """A name of its own for a type that is going to be defined."""
        name, number = wanted, 2
        while name in self._claimed:
            name, number = f"{wanted}{number}", number + 1
        self._claimed.add(name)
        return name

    def typed_dict(
        self, wanted: str, claimed: str | None, fields: tuple[Field, ...], extra: Type | None
    ) -> Type:
        """Define a typed dict, under the name its own recursion has already used, if it has."""
        definition = TypedDictDefinition(claimed or wanted, fields, extra)
        return self._define(definition, wanted, is_claimed=claimed is not None)

    def alias(self, wanted: str, type_: Type) -> Type:
        """Define a name for a long type."""
        return self._define(AliasDefinition(wanted, type_), wanted, is_claimed=False)

    def _define(self, definition: Definition, wanted: str, *, is_claimed: bool) -> Type:
        key = (wanted, shape(definition))
        known = self._shapes.get(key)
        if known is not None and not is_claimed:
            return Named(known)
        name = definition.name if is_claimed else self.claim(wanted)
        if isinstance(definition, AliasDefinition):
            self.definitions[name] = AliasDefinition(name, definition.type)
        else:
            self.definitions[name] = TypedDictDefinition(name, definition.fields, definition.extra)
        self._shapes[key] = name
        return Named(name)
