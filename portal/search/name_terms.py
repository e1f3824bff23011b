"""The terms of functions' names: how much of a name a query covers."""

from math import log1p
from typing import Any

import numpy as np
from numpy.typing import NDArray

from portal.search.document import COUNT_BITS, FIELDS, Document
from portal.search.phrases import is_phrase
from portal.search.shelf import Change

_NAME_SHIFT = COUNT_BITS * FIELDS.index("name")
_NAME_MASK = ((1 << COUNT_BITS) - 1) << _NAME_SHIFT

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class NameTerms:
    """A column for each term of each name: the term's number, and the slot. Immutable.

    Terms keep their numbers while at least half of the numbers are in use.
    """

    def __init__(self, numbers: dict[str, int] | None = None, pairs: Ints | None = None) -> None:
        self._numbers = numbers or {}
        self._pairs = np.empty((2, 0), np.int64) if pairs is None else pairs

    def changed(self, change: Change[Any]) -> "NameTerms":
        numbers = dict(self._numbers)
        is_gone = np.zeros(change.size, np.bool_)
        is_gone[list(change.gone)] = True
        come = [
            (numbers.setdefault(term, len(numbers)), slot)
            for slot, shelved in change.come.items()
            for term in _terms(shelved.document)
        ]
        kept = self._pairs[:, ~is_gone[self._pairs[1]]] if change.gone else self._pairs
        pairs = np.concatenate((kept, np.array(come, np.int64).reshape(-1, 2).T), axis=1)
        return NameTerms(*_renumbered(numbers, pairs))

    def __len__(self) -> int:
        """How many numbers there are, of terms in use and of others."""
        return len(self._numbers)

    def rarities(self, documents: int, slots: int) -> Floats:
        """For each slot, the sum of its name's rarities: what covers all of the name adds up to that."""
        terms, owners = self._pairs
        of_terms = rarities(documents, np.bincount(terms, minlength=len(self._numbers)))
        return np.bincount(owners, of_terms[terms], minlength=slots).astype(np.float64)


def _renumbered(numbers: dict[str, int], pairs: Ints) -> tuple[dict[str, int], Ints]:
    """Without the terms that no name has any more, if they are the most."""
    is_used = np.bincount(pairs[0], minlength=len(numbers)) > 0
    if 2 * np.count_nonzero(is_used) >= len(numbers):
        return numbers, pairs
    anew = np.cumsum(is_used) - 1
    left = {term: int(anew[number]) for term, number in numbers.items() if is_used[number]}
    return left, np.stack((anew[pairs[0]], pairs[1]))


def rarity(documents: int, frequency: int) -> float:
    """The inverse document frequency of a term that occurs in so many of the documents."""
    return log1p((documents - frequency + 0.5) / (frequency + 0.5))


def rarities(documents: int, frequencies: Ints) -> Floats:
    """The same of many terms."""
    logs: Floats = np.log1p((documents - frequencies + 0.5) / (frequencies + 0.5))
    return logs


def _terms(document: Document) -> list[str]:
    pairs = zip(document.terms, document.counts, strict=True)
    return [term for term, counts in pairs if counts & _NAME_MASK and not is_phrase(term)]
