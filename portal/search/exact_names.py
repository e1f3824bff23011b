"""Which functions have the very name that somebody asks for."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from portal.search.searchable import Searchable
from portal.search.shelf import Change, Shelf

_NOBODY: frozenset[int] = frozenset()
_MAX_DOTS = 16
"""Of a name with more of them only the first ones may stand behind an upstream's key."""


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
        asked = query.strip().strip("`'\"").removesuffix("()").casefold()
        found = set(self._slots.get(asked, ()))
        for owner, name in _partitions(asked):
            for slot in self._slots.get(name, ()):
                if owner in (shelf[slot].namespace.casefold(), shelf[slot].upstream.casefold()):
                    found.add(slot)
        return found


def _names(function: Searchable) -> frozenset[str]:
    return frozenset((function.name.casefold(), function.tool.casefold()))


def _partitions(text: str) -> Iterator[tuple[str, str]]:
    """What stands before and behind each dot: an upstream's key and a tool's name may have some of their own."""
    at = -1
    for _ in range(_MAX_DOTS):
        at = text.find(".", at + 1)
        if at < 0:
            return
        yield text[:at], text[at + 1 :]
