"""The functions of an index, each in a slot that it keeps as long as its texts stay the same."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from portal.search.document import Document, read_document
from portal.search.searchable import Searchable

S = TypeVar("S", bound=Searchable)
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Shelved(Generic[S]):
    function: S
    document: Document


@dataclass(frozen=True, slots=True)
class Change(Generic[S]):
    """What leaves its slot, and then what comes into one; `size` is the number of slots afterwards."""

    gone: Mapping[int, Shelved[S]]
    come: Mapping[int, Shelved[S]]
    size: int


@dataclass(frozen=True, slots=True)
class _Group(Generic[S]):
    """The functions of one namespace as they were given, and their slots in the order of their names."""

    given: Sequence[S]
    slots: Ints


class Shelf(Generic[S]):
    """Immutable, as the index is: `changed` makes another one, and says what became different."""

    def __init__(
        self,
        slots: Sequence[Shelved[S] | None] = (),
        empty: Sequence[int] = (),
        groups: Mapping[str, _Group[S]] | None = None,
    ) -> None:
        self._slots = slots
        self._empty = empty
        self._groups = groups or {}

    def __getitem__(self, slot: int) -> S:
        shelved = self._slots[slot]
        assert shelved is not None, "nothing leads to an empty slot"
        return shelved.function

    def __len__(self) -> int:
        return len(self._slots)

    def in_order(self) -> Ints:
        """The slots in use, in the order of qualified names."""
        slots = [self._groups[name].slots for name in sorted(self._groups)]
        return np.concatenate(slots) if slots else np.empty(0, np.int64)

    def changed(self, namespaces: Mapping[str, Sequence[S]]) -> tuple["Shelf[S]", Change[S]]:
        """A shelf of these functions.

        Nothing is done for a namespace that is the very sequence it was; of others only the functions are read whose
        texts are new.
        """
        known = self._known(namespaces)
        slots = list(self._slots)
        placed = {
            name: _place(given, known, slots)
            for name, given in namespaces.items()
            if name not in self._groups or self._groups[name].given is not given
        }
        gone = {slot: shelved for left in known.values() for slot in left if (shelved := slots[slot])}
        empty = [*self._empty, *gone]
        for slot in gone:
            slots[slot] = None
        come: dict[int, Shelved[S]] = {}
        groups = {name: self._groups[name] for name in namespaces if name not in placed}
        for name, places in placed.items():
            taken = [_shelve(place, slots, empty, come) for place in places]
            groups[name] = _Group(namespaces[name], np.array(taken, np.int64))
        return Shelf(slots, empty, groups), Change(gone, come, len(slots))

    def _known(self, namespaces: Mapping[str, Sequence[S]]) -> dict[Hashable, list[int]]:
        """The slots of all namespaces that changed, by the texts of their functions."""
        known: defaultdict[Hashable, list[int]] = defaultdict(list)
        for name, group in self._groups.items():
            if namespaces.get(name) is not group.given:
                for slot in group.slots.tolist():
                    known[_texts(self[slot])].append(slot)
        return known


def _place(
    given: Iterable[S], known: Mapping[Hashable, list[int]], slots: list[Shelved[S] | None]
) -> list[int | S]:
    """For each function, by name, the slot that one with the same texts has; itself, where none has."""
    places: list[int | S] = []
    for function in sorted(given, key=attrgetter("name")):
        same = known.get(_texts(function))
        if not same:
            places.append(function)
            continue
        slot = same.pop()
        former = slots[slot]
        assert former is not None
        slots[slot] = Shelved(function, former.document)
        places.append(slot)
    return places


def _shelve(
    place: int | S, slots: list[Shelved[S] | None], empty: list[int], come: dict[int, Shelved[S]]
) -> int:
    """The slot, or an empty one, or a new one, into which the function is put."""
    if isinstance(place, int):
        return place
    if not empty:
        empty.append(len(slots))
        slots.append(None)
    slot = empty.pop()
    slots[slot] = come[slot] = Shelved(place, read_document(place))
    return slot


def _texts(function: Searchable) -> Hashable:
    """All that the index reads of a function."""
    parameters = tuple((each.wire_name, each.doc) for each in function.parameters)
    names = function.namespace, function.name, function.upstream, function.tool
    return (*names, function.description, parameters)
