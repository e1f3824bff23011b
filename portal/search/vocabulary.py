"""Which terms of an index a query's words mean."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import log

from portal.search.postings import Postings

_MAX_WORDS = 256
"""Of a query; of further ones nothing is looked up."""

_REPEATED = 0.5
_JOINED = 0.5
_RELATED = 0.2
_SHORTEST_RELATED = 4
_MAX_COMPLETIONS = 8


def meant_terms(words: Sequence[str], postings: Postings) -> dict[str, float]:
    """The terms meant by the words, those that occur, with how much each counts.

    Beside the words themselves (1, repeated ones a little more) that is two neighbours as one word ("app config" for
    `appconfig`) and, for less, abbreviations and completions ("configuration" for `config`, "repo" for `repository`).
    """
    words = words[:_MAX_WORDS]
    weights = {word: 1 + _REPEATED * log(count) for word, count in Counter(words).items()}
    for first, second in pairwise(words):
        weights.setdefault(first + second, _JOINED)
    for word in dict.fromkeys(words):
        for related in _related(word, postings.terms):
            weights[related] = max(weights.get(related, 0), _RELATED * weights[word])
    return {term: weight for term, weight in weights.items() if term in postings}


def _related(word: str, terms: Sequence[str]) -> Iterator[str]:
    if len(word) < _SHORTEST_RELATED or word.isdecimal():
        return
    yield from (word[:length] for length in range(_SHORTEST_RELATED, len(word)))
    first = bisect_left(terms, word + "\0")
    longer = terms[first : first + _MAX_COMPLETIONS]
    yield from (term for term in longer if term.startswith(word))
