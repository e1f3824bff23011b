"""Finds functions by what they do, or by their exact name."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from portal.search.document import Document, Searchable, read_document
from portal.search.query import Query, asked_name, meant_terms, partitions, read_query, role_terms
from portal.search.ranking import Encoded, Floats, Ints, Ranking

S = TypeVar("S", bound=Searchable)

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
class SearchHits(Generic[S]):
    """The best functions, best first.

    `total` is how many fit at all; `exact` of them, the first, have the very name that was asked for.
    """

    functions: tuple[S, ...]
    total: int
    exact: int = 0


@dataclass(frozen=True, slots=True)
class _Group(Generic[S]):
    """The functions of one namespace as they were given, and in the order of their names with their documents."""

    given: Sequence[S]
    functions: Sequence[S]
    documents: Sequence[Document]
    encoded: Encoded


class SearchIndex(Generic[S]):
    """Immutable: whoever holds an index sees one library, whatever changes meanwhile."""

    def __init__(self, groups: Mapping[str, _Group[S]], vocabulary: dict[str, int]) -> None:
        self._groups = groups
        self._vocabulary = vocabulary
        in_order = [groups[name] for name in sorted(groups)]
        self._functions = [function for group in in_order for function in group.functions]
        self._ranking = Ranking([group.encoded for group in in_order], vocabulary)
        self._upstreams: dict[str, int] = {}
        for each in self._functions:
            self._upstreams.setdefault(each.upstream, len(self._upstreams))
        self._owners = np.array([self._upstreams[each.upstream] for each in self._functions], np.int64)

    @cached_property
    def _named(self) -> Mapping[str, set[int]]:
        named: defaultdict[str, set[int]] = defaultdict(set)
        for number, each in enumerate(self._functions):
            named[each.name.casefold()].add(number)
            named[each.tool.casefold()].add(number)
        return named

    @classmethod
    def build(cls, functions: Iterable[S]) -> "SearchIndex[S]":
        """An index of the functions."""
        namespaces: defaultdict[str, list[S]] = defaultdict(list)
        for each in functions:
            namespaces[each.namespace].append(each)
        return cls({}, {}).updated(namespaces)

    def updated(self, namespaces: Mapping[str, Sequence[S]]) -> "SearchIndex[S]":
        """An index of these functions, by namespace.

        Of a namespace that is the very sequence it was nothing is read again; of others only the functions are read
        whose texts are new.
        """
        groups = {}
        vocabulary = self._vocabulary
        is_worn = len(vocabulary) > 2 * len(self._ranking) + _MANY_TERMS  # terms of functions that are gone
        vocabulary = {} if is_worn else vocabulary
        for name, given in namespaces.items():
            former = self._groups.get(name)
            is_same = former is not None and former.given is given and not is_worn
            groups[name] = former if former is not None and is_same else _group(given, former, vocabulary)
        return SearchIndex(groups, vocabulary)

    def search(self, query: str, limit: int, upstream: str | None = None) -> SearchHits[S]:
        """The `limit` best functions of all upstreams, or of one; ties in the order of their qualified names.

        Those named exactly like the query come first: `create_issue`, `github.create_issue` or the tool's own
        name. An empty query finds all functions of the given upstream. Of a query, 4,000 characters are read.
        """
        read = read_query(query)
        scores = self._scores(read)
        allowed = self._is_of(upstream)
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
        first, rest = best[:_FIRST], best[_FIRST:]
        share = max(1, len(first) // len(query.steps))
        wanted: dict[int, None] = {}
        for step in query.steps:
            wanted.update(dict.fromkeys(_best(found, self._scores(step) + _WHOLE_TASK * scores, share)))
        wanted = dict.fromkeys([*wanted][: len(first)])
        spare = [number for number in first if number not in wanted][: len(first) - len(wanted)]
        kept = [number for number in first if number in wanted or number in spare]
        first = [*kept, *(number for number in wanted if number not in kept)]
        return [*first, *(number for number in [*best[:_FIRST], *rest] if number not in first)][: len(best)]

    def _scores(self, query: Query) -> Floats:
        weights = meant_terms(query.words, self._ranking)
        roles = {
            term: weight
            for term, weight in role_terms(query.roles, self._ranking.rarity).items()
            if weight > weights.get(term, 0)
        }
        scores = self._ranking.relevance(weights)
        self._ranking.add_name_relevance(
            scores, {term: weight - weights.get(term, 0) for term, weight in roles.items()}
        )
        if query.sentences:
            # A task names several things to do: a function that fits one sentence well fits the task.
            sentences = (meant_terms(words, self._ranking) for words in query.sentences)
            scores += _BEST_SENTENCE * np.max([self._ranking.relevance(each) for each in sentences], axis=0)
        self._add_phrases(scores, query)
        once = {term: min(weight, 1.0) for term, weight in weights.items()} | roles
        return self._lifted(scores * (1 + _NAME_COVERAGE * self._ranking.name_coverage(once)))

    def _add_phrases(self, scores: Floats, query: Query) -> None:
        """They decide among what fits: by "in" or "up" alone nothing does."""
        weights = dict.fromkeys(query.phrases.small, _PHRASE) | {query.phrases.whole: _WHOLE_NAME}
        weights = {phrase: weight for phrase, weight in weights.items() if phrase in self._ranking}
        if weights:
            more = np.zeros(len(scores))
            self._ranking.add_name_relevance(more, weights)
            scores += np.where(scores > 0, more, 0)

    def _lifted(self, scores: Floats) -> Floats:
        """A function beside a very good one is likelier to be meant than its own words say."""
        best = np.zeros(len(self._upstreams))
        np.maximum.at(best, self._owners, scores)
        lifted: Floats = np.where(scores > 0, scores + _SAME_UPSTREAM * best[self._owners], 0)
        return lifted

    def _is_of(self, upstream: str | None) -> NDArray[np.bool_]:
        if upstream is None:
            return np.ones(len(self._functions), np.bool_)
        return np.equal(self._owners, self._upstreams.get(upstream, -1))


def _best(numbers: Ints, scores: Floats, count: int) -> list[int]:
    """The best of some functions, whose numbers are in the order of their qualified names."""
    if len(numbers) > count:
        worst = np.partition(scores[numbers], -count)[-count]
        numbers = numbers[scores[numbers] >= worst]
    order = np.lexsort((numbers, -scores[numbers]))[:count]
    best: list[int] = numbers[order].tolist()
    return best


def _group(given: Sequence[S], former: _Group[S] | None, vocabulary: dict[str, int]) -> _Group[S]:
    known: dict[Hashable, Document] = {}
    if former is not None:
        known = dict(zip(map(_texts, former.functions), former.documents, strict=True))
    functions = sorted(given, key=attrgetter("name"))
    documents = [known.get(_texts(each)) or read_document(each) for each in functions]
    return _Group(given, functions, documents, Encoded(documents, vocabulary))


def _texts(function: Searchable) -> Hashable:
    """All that the index reads of a function."""
    parameters = tuple((each.wire_name, each.doc) for each in function.parameters)
    return function.upstream, function.tool, function.description, parameters
