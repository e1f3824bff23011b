"""Finds functions by what they do, or by their exact name."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from portal.search.document import FIELDS
from portal.search.exact_names import ExactNames
from portal.search.name_terms import Floats, Ints, NameTerms
from portal.search.postings import Postings
from portal.search.query import Query, read_query
from portal.search.ranking import Ranking
from portal.search.roles import role_terms
from portal.search.searchable import Searchable
from portal.search.shelf import Change, Shelf
from portal.search.vocabulary import meant_terms

S = TypeVar("S", bound=Searchable)

_BEST_SENTENCE = 0.6
_NAME_COVERAGE = 0.3
_PHRASE = 0.25
_WHOLE_NAME = 0.5
_SAME_UPSTREAM = 0.3
_FIRST = 5
"""Of so many places, the steps of a task that spells them out have equal shares."""
_WHOLE_TASK = 0.3
_NOBODY = -1


@dataclass(frozen=True)
class SearchHits(Generic[S]):
    """The best functions, best first.

    `total` is how many fit at all; `exact` of them, the first, have the very name that was asked for.
    """

    functions: tuple[S, ...]
    total: int
    exact: int = 0


@dataclass(frozen=True)
class _Slots:
    """What is known of each slot: the terms of its fields, its upstream's number, its place by qualified name."""

    lengths: Ints
    upstreams: Ints
    ranks: Ints


class SearchIndex(Generic[S]):
    """Immutable: whoever holds an index sees one library, whatever changes meanwhile.

    `build` makes one, `updated` another one of it, in a time that depends on what is new in it.
    """

    def __init__(
        self,
        shelf: Shelf[S],
        postings: Postings,
        names: NameTerms,
        exact: ExactNames,
        slots: _Slots,
        upstreams: Mapping[str, int],
    ) -> None:
        self._shelf = shelf
        self._postings = postings
        self._names = names
        self._exact = exact
        self._slots = slots
        self._upstreams = upstreams
        self._ranking = Ranking(postings, names, slots.lengths, int(np.sum(slots.upstreams != _NOBODY)))

    @classmethod
    def build(cls, functions: Iterable[S]) -> "SearchIndex[S]":
        """An index of the functions."""
        namespaces: defaultdict[str, list[S]] = defaultdict(list)
        for each in functions:
            namespaces[each.namespace].append(each)
        empty = np.empty(0, np.int64)
        nothing = _Slots(empty.reshape(0, len(FIELDS)), empty, empty)
        return cls(Shelf(), Postings(), NameTerms(), ExactNames(), nothing, {}).updated(namespaces)

    def updated(self, namespaces: Mapping[str, Sequence[S]]) -> "SearchIndex[S]":
        """An index of these functions, by namespace. It finds what one would that was built anew.

        Nothing is done for a namespace that is the very sequence it was; of others only the functions are read whose
        texts are new.
        """
        shelf, change = self._shelf.changed(namespaces)
        upstreams = dict(self._upstreams)
        for each in change.come.values():
            upstreams.setdefault(each.function.upstream, len(upstreams))
        return SearchIndex(
            shelf,
            self._postings.changed(change),
            self._names.changed(change),
            self._exact.changed(change),
            _changed_slots(self._slots, change, upstreams, shelf.in_order()),
            upstreams,
        )

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
        named = np.fromiter(
            (slot for slot in self._exact.find(query, self._shelf) if allowed[slot]), np.int64
        )
        others = np.setdiff1d(found, named, assume_unique=True)
        best = [*self._best(named, scores, limit), *self._best(others, scores, limit)][:limit]
        if read.steps and not len(named):
            best = self._with_each_step(best, read, scores, found)
        functions = tuple(self._shelf[slot] for slot in best)
        return SearchHits(functions, len(named) + len(others), len(named))

    def _with_each_step(self, best: list[int], query: Query, scores: Floats, found: Ints) -> list[int]:
        """The best of the whole task, with each step's own best among the first, in equal shares."""
        first, rest = best[:_FIRST], best[_FIRST:]
        share = max(1, len(first) // len(query.steps))
        wanted: dict[int, None] = {}
        for step in query.steps:
            wanted.update(dict.fromkeys(self._best(found, self._scores(step) + _WHOLE_TASK * scores, share)))
        wanted = dict.fromkeys([*wanted][: len(first)])
        spare = [slot for slot in first if slot not in wanted][: len(first) - len(wanted)]
        kept = [slot for slot in first if slot in wanted or slot in spare]
        first = [*kept, *(slot for slot in wanted if slot not in kept)]
        return [*first, *(slot for slot in [*best[:_FIRST], *rest] if slot not in first)][: len(best)]

    def _scores(self, query: Query) -> Floats:
        weights = meant_terms(query.words, self._postings)
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
            sentences = (meant_terms(words, self._postings) for words in query.sentences)
            scores += _BEST_SENTENCE * np.max([self._ranking.relevance(each) for each in sentences], axis=0)
        self._add_phrases(scores, query)
        once = {term: min(weight, 1.0) for term, weight in weights.items()} | roles
        return self._lifted(scores * (1 + _NAME_COVERAGE * self._ranking.name_coverage(once)))

    def _add_phrases(self, scores: Floats, query: Query) -> None:
        """They decide among what fits: by "in" or "up" alone nothing does."""
        weights = dict.fromkeys(query.phrases.small, _PHRASE) | {query.phrases.whole: _WHOLE_NAME}
        weights = {phrase: weight for phrase, weight in weights.items() if phrase in self._postings}
        if weights:
            more = np.zeros(len(scores))
            self._ranking.add_name_relevance(more, weights)
            scores += np.where(scores > 0, more, 0)

    def _lifted(self, scores: Floats) -> Floats:
        """A function beside a very good one is likelier to be meant than its own words say."""
        best = np.zeros(len(self._upstreams) + 1)
        np.maximum.at(best, self._slots.upstreams, scores)
        lifted: Floats = np.where(scores > 0, scores + _SAME_UPSTREAM * best[self._slots.upstreams], 0)
        return lifted

    def _is_of(self, upstream: str | None) -> NDArray[np.bool_]:
        if upstream is None:
            return np.not_equal(self._slots.upstreams, _NOBODY)
        return np.equal(self._slots.upstreams, self._upstreams.get(upstream, _NOBODY - 1))

    def _best(self, slots: Ints, scores: Floats, count: int) -> list[int]:
        if len(slots) > count:
            worst = np.partition(scores[slots], -count)[-count]
            slots = slots[scores[slots] >= worst]
        order = np.lexsort((self._slots.ranks[slots], -scores[slots]))[:count]
        best: list[int] = slots[order].tolist()
        return best


def _changed_slots(former: _Slots, change: Change[S], upstreams: Mapping[str, int], in_order: Ints) -> _Slots:
    more = change.size - len(former.upstreams)
    lengths = np.pad(former.lengths, ((0, more), (0, 0)))
    owners = np.pad(former.upstreams, (0, more), constant_values=_NOBODY)
    for slot in change.gone:
        lengths[slot], owners[slot] = 0, _NOBODY
    for slot, shelved in change.come.items():
        lengths[slot], owners[slot] = shelved.document.lengths, upstreams[shelved.function.upstream]
    ranks = np.zeros(change.size, np.int64)
    ranks[in_order] = np.arange(len(in_order))
    return _Slots(lengths, owners, ranks)
