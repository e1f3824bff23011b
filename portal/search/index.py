"""Finds functions by what they do, or by their exact name."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np

from portal.library.function import Function
from portal.search.query import Query, asked_name, meant_terms, partitions, read_query, role_terms
from portal.search.ranking import Encoded, Floats, Ints, Ranking
from portal.search.words import WHOLE

_BEST_SENTENCE = 0.6
_NAME_COVERAGE = 0.3
_PHRASE = 0.25
_WHOLE_NAME = 0.5
_SAME_UPSTREAM = 0.3
_FIRST = 5
"""Of so many places, the steps of a task that spells them out have equal shares."""
_WHOLE_TASK = 0.3
_MANY_TERMS = 10_000


@dataclass(frozen=True)
class SearchHits:
    """The best functions, best first.

    `total` is how many fit at all; `exact` of them, the first, have the very name that was asked for.
    """

    functions: tuple[Function, ...]
    total: int
    exact: int = 0


class SearchIndex:
    """Immutable: whoever holds an index sees one library, whatever changes meanwhile."""

    def __init__(self, namespaces: Mapping[str, Encoded], vocabulary: dict[str, int]) -> None:
        self._namespaces = namespaces
        self._vocabulary = vocabulary
        in_order = [namespaces[name] for name in sorted(namespaces)]
        self._functions = [function for encoded in in_order for function in encoded.functions]
        self._ranking = Ranking(in_order, vocabulary)
        self._upstreams: dict[str, int] = {}
        owners = [self._upstreams.setdefault(each.upstream, len(self._upstreams)) for each in self._functions]
        self._owners = np.array(owners, np.int64)

    @cached_property
    def _named(self) -> Mapping[str, set[int]]:
        named: defaultdict[str, set[int]] = defaultdict(set)
        for number, each in enumerate(self._functions):
            named[each.name.casefold()].add(number)
            named[each.tool.casefold()].add(number)
        return named

    def updated(self, namespaces: Mapping[str, Sequence[Function]]) -> "SearchIndex":
        """An index of these functions, by namespace. A namespace that is the very sequence it was is not read again."""
        # Terms of functions that are gone stay in the vocabulary.
        is_worn = len(self._vocabulary) > 2 * len(self._ranking) + _MANY_TERMS
        former, vocabulary = ({}, {}) if is_worn else (self._namespaces, self._vocabulary)
        encoded = {
            name: former[name]
            if name in former and former[name].given is given
            else Encoded(given, vocabulary)
            for name, given in namespaces.items()
        }
        return SearchIndex(encoded, vocabulary)

    def search(self, query: str, limit: int, upstream: str | None = None) -> SearchHits:
        """The `limit` best functions of all upstreams, or of one; ties in the order of their qualified names.

        Those named exactly like the query come first: `create_issue`, `github.create_issue` or the tool's own
        name. An empty query finds all functions of the given upstream. Of a query, 4,000 characters are read.
        """
        read = read_query(query)
        scores = self._scores(read)
        allowed = np.ones(len(scores), np.bool_)
        if upstream is not None:
            allowed = np.equal(self._owners, self._upstreams.get(upstream, -1))
        lists_upstream = upstream is not None and not query.strip()
        found = np.flatnonzero(allowed if lists_upstream else allowed & (scores > 0))
        named = np.array([number for number in self._called(query) if allowed[number]], np.int64)
        others = np.setdiff1d(found, named, assume_unique=True)
        best = [*_best(named, scores, limit), *_best(others, scores, limit)][:limit]
        if read.steps and not len(named):
            best = self._with_each_step(best, read, scores, found)
        functions = tuple(self._functions[number] for number in best)
        return SearchHits(functions, len(named) + len(others), len(named))

    def _called(self, query: str) -> set[int]:
        """All functions called `create_issue` or `github.create_issue`, however that is quoted."""
        asked = asked_name(query)
        found = {*self._named.get(asked, ())}
        for owner, name in partitions(asked):
            for number in self._named.get(name, ()):
                each = self._functions[number]
                if owner in (each.namespace.casefold(), each.upstream.casefold()):
                    found.add(number)
        return found

    def _with_each_step(self, best: list[int], query: Query, scores: Floats, found: Ints) -> list[int]:
        """The best of the whole task, with each step's own best among the first, in equal shares."""
        first = best[:_FIRST]
        share = max(1, len(first) // len(query.steps))
        of_steps = [_best(found, self._scores(step) + _WHOLE_TASK * scores, share) for step in query.steps]
        wanted = [*dict.fromkeys(chain.from_iterable(of_steps))][: len(first)]
        spare = [number for number in first if number not in wanted][: len(first) - len(wanted)]
        kept = [number for number in first if number in wanted or number in spare]
        return [*dict.fromkeys([*kept, *wanted, *best])][: len(best)]

    def _scores(self, query: Query) -> Floats:
        ranking = self._ranking
        weights = meant_terms(query.words, ranking)
        roles = role_terms(query.roles, ranking)
        more = {term: weight - weights.get(term, 0) for term, weight in roles.items()}
        scores = ranking.relevance(weights)
        scores += ranking.name_relevance({term: weight for term, weight in more.items() if weight > 0})
        if query.sentences:
            # A task names several things to do: a function that fits one sentence well fits the task.
            sentences = (meant_terms(words, ranking) for words in query.sentences)
            scores += _BEST_SENTENCE * np.max([ranking.relevance(each) for each in sentences], axis=0)
        phrases = {
            each: _WHOLE_NAME if each.startswith(WHOLE) else _PHRASE
            for each in query.phrases
            if each in ranking
        }
        # They decide among what fits: by "in" or "up" alone nothing does.
        scores += np.where(scores > 0, ranking.name_relevance(phrases), 0)
        covering = {term: min(weight, 1.0) for term, weight in weights.items()}
        covering |= {term: weight for term, weight in roles.items() if more[term] > 0}
        return self._lifted(scores * (1 + _NAME_COVERAGE * ranking.name_coverage(covering)))

    def _lifted(self, scores: Floats) -> Floats:
        """A function beside a very good one is likelier to be meant than its own words say."""
        best = np.zeros(len(self._upstreams))
        np.maximum.at(best, self._owners, scores)
        lifted: Floats = np.where(scores > 0, scores + _SAME_UPSTREAM * best[self._owners], 0)
        return lifted


def _best(numbers: Ints, scores: Floats, count: int) -> list[int]:
    """The best of some functions, whose numbers are in the order of their qualified names."""
    best: list[int] = numbers[np.lexsort((numbers, -scores[numbers]))[:count]].tolist()
    return best
