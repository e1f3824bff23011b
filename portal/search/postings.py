"""For each term, the functions it occurs in and what it adds to their scores, worked out ahead of queries.

Source: Robertson, Zaragoza, Taylor: Simple BM25 Extension to Multiple Weighted Fields (2004).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from portal.search.document import FIELDS, Document
from portal.search.vocabulary import Vocabulary

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# One number per field: how much an occurrence counts, and how far a long field is discounted. Round numbers on a
# plateau of the development queries: half or twice of one costs 1.4 points of Recall@5 at worst, mostly nothing.
_WEIGHTS = np.array([3.0, 1.2, 1.0, 0.8, 0.5])
_DISCOUNTS = np.array([0.5, 0.3, 0.7, 0.5, 0.5])
_SATURATION = 1.2
_NAME = FIELDS.index("name")


@dataclass(frozen=True)
class Postings:
    """Entries `starts[t]` to `starts[t + 1]` are term t's: numbers of documents, and what t adds to each."""

    starts: Ints
    owners: Ints
    amounts: Floats
    documents: int

    def scores(self, weights: Mapping[int, float]) -> Floats:
        """One number per document: the amounts of the given terms, weighted and summed."""
        scores = np.zeros(self.documents)
        for term, weight in weights.items():
            entries = slice(self.starts[term], self.starts[term + 1])
            scores[self.owners[entries]] += weight * self.amounts[entries]  # a term lists a document once
        return scores


class Columns:
    """The entries of all documents, one below the other, as BM25F needs them."""

    def __init__(self, documents: Sequence[Document], vocabulary: Vocabulary) -> None:
        number = vocabulary.numbers
        self._documents = len(documents)
        self._vocabulary = len(vocabulary)
        self._terms = _ints([number[term] for each in documents for term in each.terms])
        self._owners = np.repeat(np.arange(len(documents)), [len(each.terms) for each in documents])
        self._fields = np.frombuffer(b"".join(each.fields for each in documents), dtype=np.uint8)
        self._counts = _ints([count for each in documents for count in each.counts])
        self._lengths = _ints([each.lengths for each in documents]).reshape(-1, len(FIELDS))

    def relevance(self) -> Postings:
        """BM25F over all fields, for single terms."""
        usual = np.maximum(self._lengths.sum(axis=0) / max(self._documents, 1), 1e-9)
        worth = _WEIGHTS / (1 - _DISCOUNTS + _DISCOUNTS * self._lengths / usual)
        keys, places = np.unique(self._terms * self._documents + self._owners, return_inverse=True)
        terms, owners = np.divmod(keys, max(self._documents, 1))
        amounts = np.bincount(places, self._counts * worth[self._owners, self._fields], minlength=len(keys))
        rarity = self._rarity(terms)
        return self._postings(
            terms, owners, rarity[terms] * amounts * (_SATURATION + 1) / (_SATURATION + amounts)
        )

    def name_coverage(self) -> Postings:
        """How much of a function's name a term makes up; a rare term more; all terms of a name make 1."""
        in_name = self._fields == _NAME
        terms, owners = self._terms[in_name], self._owners[in_name]
        rarity = self._rarity(terms)[terms]
        shares = rarity / np.bincount(owners, rarity, minlength=self._documents)[owners]
        order = np.lexsort((owners, terms))
        return self._postings(terms[order], owners[order], shares[order])

    def _rarity(self, terms: Ints) -> Floats:
        """Inverse document frequency of each term, given one entry per document it occurs in."""
        frequency = np.bincount(terms, minlength=self._vocabulary)
        rarity: Floats = np.log1p((self._documents - frequency + 0.5) / (frequency + 0.5))
        return rarity

    def _postings(self, terms: Ints, owners: Ints, amounts: Floats) -> Postings:
        ends = np.cumsum(np.bincount(terms, minlength=self._vocabulary))
        return Postings(np.concatenate(([0], ends)), owners, amounts, self._documents)


def _ints(values: Sequence[int] | Sequence[tuple[int, ...]]) -> Ints:
    return np.array(values, dtype=np.int64)
