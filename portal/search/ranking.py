"""How well each function fits weighted terms: BM25F, and how much of its name they make up.

Source: Robertson, Zaragoza, Taylor: Simple BM25 Extension to Multiple Weighted Fields (2004).
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from portal.search.document import FIELDS, Document
from portal.search.words import is_phrase

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Amounts = tuple[Ints, Floats]
"""Documents, and what a term adds to each of them."""

# One number per field: how much an occurrence counts, and how far a long field is discounted. Round numbers on a
# plateau of the development queries: half or twice of one costs 1.4 points of Recall@5 at worst, mostly nothing.
_WEIGHTS = np.array([3.0, 1.2, 1.0, 0.8, 0.5])
_DISCOUNTS = np.array([0.5, 0.3, 0.7, 0.5, 0.5])
_SATURATION = 1.2
_NAME = FIELDS.index("name")


class Encoded:
    """Some documents as numbers: each term by its number in a vocabulary, to which new ones are added."""

    def __init__(self, documents: Sequence[Document], vocabulary: dict[str, int]) -> None:
        terms = [term for each in documents for term in each.terms]
        self.terms = np.array([vocabulary.setdefault(term, len(vocabulary)) for term in terms], np.int64)
        counts = np.fromiter(chain.from_iterable(each.counts for each in documents), "<u8", len(terms))
        self.counts = counts.view(np.uint8).reshape(-1, counts.itemsize)[:, : len(FIELDS)]
        """How often each of the terms occurs, a column for each field."""
        is_word = np.array([not is_phrase(term) for term in terms], np.bool_)
        self.is_name = (self.counts[:, _NAME] > 0) & is_word
        self.sizes = np.array([len(each.terms) for each in documents], np.int64)
        self.lengths = np.array([each.lengths for each in documents], np.int64).reshape(-1, len(FIELDS))


class Ranking:
    """Of some documents, which are known by their numbers. What a term adds to each is worked out when it is first
    asked for.
    """

    def __init__(self, encoded: Sequence[Encoded], vocabulary: Mapping[str, int]) -> None:
        parts = [*encoded, Encoded((), {})]
        self._vocabulary, size = vocabulary, len(vocabulary)
        lengths = np.concatenate([each.lengths for each in parts])
        self._size = len(lengths)
        usual = np.maximum(lengths.sum(axis=0) / max(self._size, 1), 1e-9)
        self._worth = _WEIGHTS / (1 - _DISCOUNTS + _DISCOUNTS * lengths / usual)
        by_term = np.concatenate([each.terms for each in parts])
        order = np.argsort(by_term, kind="stable")
        owners = np.repeat(np.arange(self._size), np.concatenate([each.sizes for each in parts]))
        self._owners = owners[order]
        self._counts = np.concatenate([each.counts for each in parts])[order]
        self._frequencies = np.bincount(by_term, minlength=size)
        self._ends = np.cumsum(self._frequencies)
        is_name = np.concatenate([each.is_name for each in parts])
        rarities = _rarity(self._size, np.bincount(by_term[is_name], minlength=size))
        self._name_rarities = np.bincount(owners[is_name], rarities[by_term[is_name]], minlength=self._size)
        self._relevance: dict[str, Amounts] = {}
        self._name_relevance: dict[str, Amounts] = {}
        self._coverage: dict[str, Amounts] = {}

    @cached_property
    def terms(self) -> Sequence[str]:
        """All that occur, in alphabetical order, so that nothing depends on the order of functions."""
        return sorted(
            term for term in [*self._vocabulary] if term in self
        )  # which another index may be adding to

    def __len__(self) -> int:
        """How many terms occur."""
        return int(np.count_nonzero(self._frequencies))

    def __contains__(self, term: str) -> bool:
        number = self._vocabulary.get(term, len(self._ends))
        return number < len(self._ends) and bool(self._frequencies[number])

    def rarity(self, term: str) -> float | None:
        """The fewer functions it occurs in, the more; None of a term that does not occur."""
        return float(_rarity(self._size, len(self._found(term)[0]))) if term in self else None

    def relevance(self, weights: Mapping[str, float]) -> Floats:
        """BM25F of each document, over all fields, for terms that occur."""
        scores = np.zeros(self._size)
        for term, weight in weights.items():
            owners, amounts = self._relevance.get(term) or self._relevance_of(term)
            scores[owners] += weight * amounts  # a term lists a document once
        return scores

    def add_name_relevance(self, scores: Floats, weights: Mapping[str, float]) -> None:
        """Add what BM25F would be if the terms occurred in names only."""
        for term, weight in weights.items():
            owners, amounts = self._name_relevance.get(term) or self._name_relevance_of(term)
            scores[owners] += weight * amounts

    def name_coverage(self, weights: Mapping[str, float]) -> Floats:
        """How much of each name the terms make up; a rare term more; all terms of a name make 1."""
        scores = np.zeros(self._size)
        for term, weight in weights.items():
            owners, shares = self._coverage.get(term) or self._coverage_of(term)
            scores[owners] += weight * shares
        return scores

    def _found(self, term: str) -> tuple[Ints, NDArray[np.uint8]]:
        number = self._vocabulary[term]
        part = slice(self._ends[number - 1] if number else 0, self._ends[number])
        return self._owners[part], self._counts[part]

    def _relevance_of(self, term: str) -> Amounts:
        owners, counts = self._found(term)
        counted: Floats = np.einsum("sf,sf->s", counts, self._worth[owners])
        self._relevance[term] = owners, self._saturated(counted, len(owners))
        return self._relevance[term]

    def _name_relevance_of(self, term: str) -> Amounts:
        owners, counts = self._found(term)
        named = counts[:, _NAME] > 0
        counted = counts[named, _NAME] * self._worth[owners[named], _NAME]
        self._name_relevance[term] = owners[named], self._saturated(counted, len(owners))
        return self._name_relevance[term]

    def _saturated(self, counted: Floats, frequency: int) -> Floats:
        amounts: Floats = (
            _rarity(self._size, frequency) * counted * (_SATURATION + 1) / (_SATURATION + counted)
        )
        return amounts

    def _coverage_of(self, term: str) -> Amounts:
        owners, counts = self._found(term)
        named = owners[counts[:, _NAME] > 0]
        self._coverage[term] = named, _rarity(self._size, len(named)) / self._name_rarities[named]
        return self._coverage[term]


def _rarity(documents: int, frequency: int | Ints) -> Floats:
    """The inverse document frequency of a term that occurs in so many of the documents."""
    logs: Floats = np.log1p((documents - frequency + 0.5) / (frequency + 0.5))
    return logs
