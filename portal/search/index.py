"""Finds functions by what they do, or by their exact name."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from portal.search.document import Document, read_document
from portal.search.postings import Columns, Floats, Ints
from portal.search.query import Query, read_query
from portal.search.searchable import Searchable
from portal.search.vocabulary import Vocabulary

S = TypeVar("S", bound=Searchable)

_BEST_SENTENCE = 0.6
_NAME_COVERAGE = 0.3
_SAME_UPSTREAM = 0.3


@dataclass(frozen=True)
class SearchHits(Generic[S]):
    """The best functions, best first.

    `total` is how many fit at all; the first `exact` of them have the very name that was asked for.
    """

    functions: tuple[S, ...]
    total: int
    exact: int = 0


class SearchIndex(Generic[S]):
    """Immutable: whoever holds an index sees one library, whatever changes meanwhile. `build` makes one."""

    def __init__(self, entries: Iterable[tuple[S, Document]]) -> None:
        ordered = sorted(entries, key=lambda entry: (entry[0].namespace, entry[0].name))
        self._functions = [function for function, _ in ordered]
        self._documents = [document for _, document in ordered]
        self._vocabulary = Vocabulary(term for each in self._documents for term in each.terms)
        columns = Columns(self._documents, self._vocabulary)
        self._relevance = columns.relevance()
        self._name_coverage = columns.name_coverage()
        self._upstreams = _numbered(each.upstream for each in self._functions)
        self._upstream_of: Ints = np.array(
            [self._upstreams[each.upstream] for each in self._functions], np.int64
        )
        self._named = self._numbers_by_name()

    @classmethod
    def build(cls, functions: Iterable[S], previous: "SearchIndex[S] | None" = None) -> "SearchIndex[S]":
        """An index of the functions. Those that `previous` holds, the same objects, are not read again."""
        known = previous._documents_by_identity() if previous else {}
        return cls((each, known.get(id(each)) or read_document(each)) for each in functions)

    def search(self, query: str, limit: int, upstream: str | None = None) -> SearchHits[S]:
        """The `limit` best functions of all upstreams, or of one; ties in the order of their qualified names.

        Those named exactly like the query come first: `create_issue`, `github.create_issue` or the tool's own
        name. An empty query finds all functions of the given upstream. Of a query, 4,000 characters are read.
        """
        scores = self._scores(read_query(query))
        allowed = self._is_of(upstream)
        lists_upstream = upstream is not None and not query.strip()
        found = np.flatnonzero(allowed if lists_upstream else allowed & (scores > 0))
        named = _ints(number for number in self._named.get(_as_name(query), ()) if allowed[number])
        others = np.setdiff1d(found, named, assume_unique=True)
        best = [*_best(named, scores, limit), *_best(others, scores, limit)][:limit]
        functions = tuple(self._functions[number] for number in best)
        return SearchHits(functions, len(named) + len(others), min(len(named), limit))

    def _scores(self, query: Query) -> Floats:
        weights = self._vocabulary.weights(query.words)
        scores = self._relevance.scores(weights)
        if query.sentences:
            # A task names several things to do: a function that fits one sentence well fits the task.
            sentences = (self._vocabulary.weights(words) for words in query.sentences)
            scores += _BEST_SENTENCE * np.max([self._relevance.scores(each) for each in sentences], axis=0)
        once = {term: min(weight, 1.0) for term, weight in weights.items()}
        return self._lifted(scores * (1 + _NAME_COVERAGE * self._name_coverage.scores(once)))

    def _lifted(self, scores: Floats) -> Floats:
        """A function beside a very good one is likelier to be meant than its own words say."""
        best = np.zeros(len(self._upstreams))
        np.maximum.at(best, self._upstream_of, scores)
        lifted: Floats = np.where(scores > 0, scores + _SAME_UPSTREAM * best[self._upstream_of], 0)
        return lifted

    def _is_of(self, upstream: str | None) -> NDArray[np.bool_]:
        if upstream is None:
            return np.ones(len(self._functions), np.bool_)
        return np.equal(self._upstream_of, self._upstreams.get(upstream, -1))

    def _numbers_by_name(self) -> dict[str, list[int]]:
        named: defaultdict[str, list[int]] = defaultdict(list)
        for number, each in enumerate(self._functions):
            qualified, sent = f"{each.namespace}.{each.name}", f"{each.upstream}.{each.tool}"
            for name in {each.name, qualified, each.tool, sent}:
                named[name.casefold()].append(number)
        return dict(named)

    def _documents_by_identity(self) -> dict[int, Document]:
        return {id(each): document for each, document in zip(self._functions, self._documents, strict=True)}


def _as_name(query: str) -> str:
    return query.strip().strip("`'\"").removesuffix("()").casefold()


def _best(numbers: Ints, scores: Floats, count: int) -> list[int]:
    if len(numbers) > count:
        worst = np.partition(scores[numbers], -count)[-count]
        numbers = numbers[scores[numbers] >= worst]
    order = np.argsort(-scores[numbers], kind="stable")[:count]
    best: list[int] = numbers[order].tolist()
    return best


def _numbered(names: Iterable[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(dict.fromkeys(names))}


def _ints(numbers: Iterable[int]) -> Ints:
    return np.fromiter(numbers, np.int64)
