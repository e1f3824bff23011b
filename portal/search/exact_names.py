"""Which functions have the very name that somebody asks for."""

from collections.abc import Collection, Mapping
from typing import Any

from portal.search.asked_name import asked_name, partitions
from portal.search.searchable import Searchable
from portal.search.shelf import Change, Shelf

_NOBODY: frozenset[int] = frozenset()


class ExactNames:
    """Slots by name, the function's and the tool's own. Immutable."""

    def __init__(self, slots: Mapping[str, frozenset[int]] | None = None) -> None:
        self._slots = slots or {}

    def changed(self, change: Change[Any]) -> "ExactNames":
        slots = dict(self._slots)
        for slot, shelved in change.gone.items():
            for name in _names(shelved.function):
                if left := slots[name] - {slot}:
                    slots[name] = left
                else:
                    del slots[name]
        for slot, shelved in change.come.items():
            for name in _names(shelved.function):
                slots[name] = slots.get(name, _NOBODY) | {slot}
        return ExactNames(slots)

    def find(self, query: str, shelf: Shelf[Any]) -> Collection[int]:
        """The slots of all functions called `create_issue` or `github.create_issue`, however that is quoted."""
        asked = asked_name(query)
        found = set(self._slots.get(asked, ()))
        for owner, name in partitions(asked):
            for slot in self._slots.get(name, ()):
                if owner in (shelf[slot].namespace.casefold(), shelf[slot].upstream.casefold()):
                    found.add(slot)
        return found


def _names(function: Searchable) -> frozenset[str]:
    return frozenset((function.name.casefold(), function.tool.casefold()))
