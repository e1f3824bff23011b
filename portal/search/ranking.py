"""How well each function fits weighted terms: BM25F, and how much of its name they make up.

Source: Robertson, Zaragoza, Taylor: Simple BM25 Extension to Multiple Weighted Fields (2004).
"""

from collections.abc import Mapping

import numpy as np

from portal.search.document import FIELDS
from portal.search.name_terms import Floats, Ints, NameTerms, rarity
from portal.search.postings import Postings, counts_of, slots_of

# One number per field: how much an occurrence counts, and how far a long field is discounted. Round numbers on a
# plateau of the development queries: half or twice of one costs 1.4 points of Recall@5 at worst, mostly nothing.
_WEIGHTS = np.array([3.0, 1.2, 1.0, 0.8, 0.5])
_DISCOUNTS = np.array([0.5, 0.3, 0.7, 0.5, 0.5])
_SATURATION = 1.2
_NAME = FIELDS.index("name")


class Ranking:
    """Of one state of the index. What a term adds to each function is worked out when it is first asked for."""

    def __init__(self, postings: Postings, names: NameTerms, lengths: Ints, documents: int) -> None:
        """`lengths` has a row for each slot and a column for each field; rows of empty slots are 0."""
        self._postings = postings
        self._documents = documents
        self._slots = len(lengths)
        usual = np.maximum(lengths.sum(axis=0) / max(documents, 1), 1e-9)
        self._worth = _WEIGHTS / (1 - _DISCOUNTS + _DISCOUNTS * lengths / usual)
        self._name_rarities = names.rarities(documents, self._slots)
        self._relevance: dict[str, tuple[Ints, Floats]] = {}
        self._name_relevance: dict[str, tuple[Ints, Floats]] = {}
        self._coverage: dict[str, tuple[Ints, Floats]] = {}

    def rarity(self, term: str) -> float | None:
        """The fewer functions it occurs in, the more; None of a term that does not occur."""
        if term not in self._postings:
            return None
        return rarity(self._documents, len(self._postings[term]))

    def relevance(self, weights: Mapping[str, float]) -> Floats:
        """BM25F of each slot, over all fields, for terms that occur."""
        scores = np.zeros(self._slots)
        for term, weight in weights.items():
            slots, amounts = self._relevance.get(term) or self._relevance_of(term)
            scores[slots] += weight * amounts  # a term lists a slot once
        return scores

    def add_name_relevance(self, scores: Floats, weights: Mapping[str, float]) -> None:
        """Add what BM25F would be if the terms occurred in names only."""
        for term, weight in weights.items():
            slots, amounts = self._name_relevance.get(term) or self._name_relevance_of(term)
            scores[slots] += weight * amounts

    def name_coverage(self, weights: Mapping[str, float]) -> Floats:
        """How much of each slot's name the terms make up; a rare term more; all terms of a name make 1."""
        scores = np.zeros(self._slots)
        for term, weight in weights.items():
            slots, shares = self._coverage.get(term) or self._coverage_of(term)
            scores[slots] += weight * shares
        return scores

    def _relevance_of(self, term: str) -> tuple[Ints, Floats]:
        entries = self._postings[term]
        slots = slots_of(entries)
        counted: Floats = np.einsum("sf,sf->s", counts_of(entries), self._worth[slots])
        found = self._relevance[term] = (slots, self._saturated(counted, len(entries)))
        return found

    def _name_relevance_of(self, term: str) -> tuple[Ints, Floats]:
        entries = self._postings[term]
        counts = counts_of(entries)[:, _NAME]
        slots = slots_of(entries[counts > 0])
        counted = counts[counts > 0] * self._worth[slots, _NAME]
        found = self._name_relevance[term] = (slots, self._saturated(counted, len(entries)))
        return found

    def _saturated(self, counted: Floats, frequency: int) -> Floats:
        amounts: Floats = (
            rarity(self._documents, frequency) * counted * (_SATURATION + 1) / (_SATURATION + counted)
        )
        return amounts

    def _coverage_of(self, term: str) -> tuple[Ints, Floats]:
        entries = self._postings[term]
        slots = slots_of(entries[counts_of(entries)[:, _NAME] > 0])
        shares: Floats = rarity(self._documents, len(slots)) / self._name_rarities[slots]
        found = self._coverage[term] = (slots, shares)
        return found
