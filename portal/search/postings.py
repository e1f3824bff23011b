"""For each term, the functions it occurs in and how often in which of their fields."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from portal.search.document import COUNT_BITS, FIELDS, Document
from portal.search.shelf import Change

Entries = NDArray[np.uint64]
"""One number per function: its slot, and below it the counts of `Document.counts`; the lowest byte comes first."""

Ints = NDArray[np.int64]

_SLOT_SHIFT = np.uint64(COUNT_BITS * len(FIELDS))


def slots_of(entries: Entries) -> Ints:
    return (entries >> _SLOT_SHIFT).astype(np.int64)


def counts_of(entries: Entries) -> NDArray[np.uint8]:
    """A row for each function, a column for each field."""
    return entries.view(np.uint8).reshape(-1, entries.itemsize)[:, : len(FIELDS)]


class Postings:
    """Immutable; `changed` makes another one that shares the entries of all terms that nothing happened to."""

    def __init__(self, entries: Mapping[str, Entries] | None = None, terms: Sequence[str] = ()) -> None:
        self._entries = entries or {}
        self.terms = terms
        """In alphabetical order, so that nothing depends on the order of functions."""

    def __contains__(self, term: str) -> bool:
        return term in self._entries

    def __getitem__(self, term: str) -> Entries:
        return self._entries[term]

    def changed(self, change: Change[Any]) -> "Postings":
        entries = dict(self._entries)
        is_gone = np.zeros(change.size, np.bool_)
        is_gone[list(change.gone)] = True
        for term in {term for shelved in change.gone.values() for term in shelved.document.terms}:
            kept = entries[term][~is_gone[slots_of(entries[term])]]
            if len(kept):
                entries[term] = kept
            else:
                del entries[term]
        for term, come in _read({slot: each.document for slot, each in change.come.items()}).items():
            entries[term] = np.concatenate((entries[term], come)) if term in entries else come
        old_terms = [term for term in self.terms if term in entries]
        new_terms = [term for term in entries if term not in self._entries]
        return Postings(entries, sorted(old_terms + new_terms))  # quick, as most of it is in order


def _read(documents: Mapping[int, Document]) -> dict[str, Entries]:
    numbers: dict[str, int] = {}
    terms = [numbers.setdefault(term, len(numbers)) for each in documents.values() for term in each.terms]
    sizes = [len(each.terms) for each in documents.values()]
    slots = np.repeat(np.fromiter(documents, np.uint64, len(documents)), sizes)
    counts = np.fromiter(
        chain.from_iterable(each.counts for each in documents.values()), np.uint64, len(terms)
    )
    by_term = np.array(terms, np.int64)
    entries = (counts | slots << _SLOT_SHIFT)[np.argsort(by_term, kind="stable")].astype("<u8")
    ends = np.cumsum(np.bincount(by_term, minlength=len(numbers)))
    return dict(zip(numbers, np.split(entries, ends[:-1]), strict=True)) if numbers else {}
