"""All terms of an index, numbered, and which of them a query's words mean."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from math import log

_MAX_WORDS = 256
"""Of a query; of further ones nothing is looked up."""

_REPEATED = 0.5
_JOINED = 0.5
_RELATED = 0.2
_SHORTEST_RELATED = 4
_MAX_COMPLETIONS = 8


class Vocabulary:
    """Terms in alphabetical order, so that an index does not depend on the order of its functions."""

    def __init__(self, terms: Iterable[str]) -> None:
        self._terms = sorted(set(terms))
        self.numbers = {term: number for number, term in enumerate(self._terms)}

    def __len__(self) -> int:
        return len(self._terms)

    def weights(self, words: Sequence[str]) -> dict[int, float]:
        """The terms meant by the words, by number, with how much each counts.

        Beside the words themselves (1, repeated ones a little more) that is two neighbours as one word ("app
        config" for `appconfig`) and, for less, abbreviations and completions ("configuration" for `config`,
        "repo" for `repository`).
        """
        words = words[:_MAX_WORDS]
        weights = {word: 1 + _REPEATED * log(count) for word, count in Counter(words).items()}
        for first, second in pairwise(words):
            weights.setdefault(first + second, _JOINED)
        for word in dict.fromkeys(words):
            for related in self._related(word):
                weights[related] = max(weights.get(related, 0), _RELATED * weights[word])
        return {self.numbers[term]: weight for term, weight in weights.items() if term in self.numbers}

    def _related(self, word: str) -> Iterator[str]:
        if len(word) < _SHORTEST_RELATED or word.isdecimal():
            return
        yield from (word[:length] for length in range(_SHORTEST_RELATED, len(word)))
        first = bisect_left(self._terms, word + "\0")
        longer = self._terms[first : first + _MAX_COMPLETIONS]
        yield from (term for term in longer if term.startswith(word))
