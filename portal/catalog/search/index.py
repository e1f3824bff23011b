"""Finds functions by description or exact name: BM25F, combined with how much of a name the terms cover.

Source: Robertson, Zaragoza, Taylor: Simple BM25 Extension to Multiple Weighted Fields (2004).
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from math import log
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from portal.catalog.search import query as queries
from portal.library.function import Function

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Amounts = tuple[Ints, Floats]
"""Functions, and the amount that a term adds to the score of each."""

# Field weights and length discounts of a function's name, upstream, description, parameter names and parameter
# descriptions. These are round numbers on a plateau of the development queries. Halving or doubling one costs at most
# 1.4 points of Recall@5, mostly nothing.
_WEIGHTS = np.array([3.0, 1.2, 1.0, 0.8, 0.5])
_DISCOUNTS = np.array([0.5, 0.3, 0.7, 0.5, 0.5])
_SATURATION = 1.2
_NAME = 0

_BEST_SENTENCE = 0.6
_NAME_COVERAGE = 0.3
_PHRASE = 0.25
_WHOLE_NAME = 0.5
_SAME_UPSTREAM = 0.3
_COMMON = 0.7
"""The IDF of a term that half of all functions have: in a small library, its topic."""

_FIRST = 5
"""The first results, which the steps of a task share equally."""
_WHOLE_TASK = 0.3
_LAST = 1e-9
"""The factor of a deprecated function's score."""

_MANY_TERMS = 10_000

_MAX_WORDS = 256
"""Words looked up per query."""

_REPEATED = 0.5
_JOINED = 0.5
_RELATED = 0.2
_MAX_COMPLETIONS = 8
_MAX_SYNONYM_WEIGHT = 0.7
_SHARED_SYNONYM_WEIGHT = 1.5

# Upstreams write these texts. The bounds keep one definition from slowing the whole index down.
_MAX_NAME_CHARS = 200
_MAX_TEXT_CHARS = 4_000
_MAX_PARAMETERS = 64


class Encoded:
    """A namespace's functions as numbers. A term is its number in the vocabulary; new terms are added."""

    def __init__(self, given: Sequence[Function], vocabulary: dict[str, int]) -> None:
        self.given = given
        self.functions = sorted(given, key=attrgetter("name"))
        self.standing = np.array([_LAST if each.is_deprecated else 1.0 for each in self.functions])
        sizes, lengths = [], []
        terms: list[str] = []
        counts: list[list[int]] = []
        for function in self.functions:
            fields = [*_terms_by_field(function)]
            occurrences: dict[str, list[int]] = {}
            for number, field in enumerate(fields):
                for term in field:
                    occurrences.setdefault(term, [0] * len(_WEIGHTS))[number] += 1
            for phrase in queries.phrases_of(function.tool, _MAX_NAME_CHARS):
                occurrences[phrase] = [int(number == _NAME) for number in range(len(_WEIGHTS))]
            terms += occurrences
            counts += occurrences.values()
            sizes.append(len(occurrences))
            lengths.append([len(field) for field in fields])
        self.terms = np.array([vocabulary.setdefault(term, len(vocabulary)) for term in terms], np.int64)
        self.counts = np.array(counts, np.uint16).reshape(-1, len(_WEIGHTS))
        """Occurrences of each term, one column per field."""
        is_word = np.array([not term.startswith(queries.PHRASE) for term in terms], np.bool_)
        self.is_name = (self.counts[:, _NAME] > 0) & is_word
        self.sizes = np.array(sizes, np.int64)
        self.lengths = np.array(lengths, np.int64).reshape(-1, len(_WEIGHTS))


def _terms_by_field(function: Function) -> Iterator[list[str]]:
    parameters = function.parameters[:_MAX_PARAMETERS]
    yield queries.terms_of(function.tool, _MAX_NAME_CHARS)
    yield queries.terms_of(function.upstream, _MAX_NAME_CHARS)
    yield queries.terms_of(function.description, _MAX_TEXT_CHARS)
    yield queries.terms_of(" ".join(each.wire_name[:_MAX_NAME_CHARS] for each in parameters), _MAX_TEXT_CHARS)
    yield queries.terms_of(" ".join(each.doc[:_MAX_TEXT_CHARS] for each in parameters), _MAX_TEXT_CHARS)


@dataclass(frozen=True, slots=True)
class _Added:
    """The amounts that one term adds to the functions in which it occurs."""

    relevance: Amounts
    name_relevance: Amounts
    name_share: Amounts


class Ranking:
    """Scores functions, which are identified by number. The amounts of a term are computed on its first use."""

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
        self._name_frequencies = np.bincount(by_term[is_name], minlength=size)
        idfs = _idf(self._size, self._name_frequencies)
        named = np.bincount(owners[is_name], idfs[by_term[is_name]], minlength=self._size)
        self._name_idf_sums = np.maximum(named, 1e-9)
        self._added: dict[str, _Added] = {}

    @cached_property
    def terms(self) -> Sequence[str]:
        """All terms that occur, sorted, so that nothing depends on the order of functions."""
        # Another index may be adding to the vocabulary.
        return sorted(term for term in [*self._vocabulary] if term in self)

    def __len__(self) -> int:
        """The number of terms that occur."""
        return int(np.count_nonzero(self._frequencies))

    def __contains__(self, term: str) -> bool:
        number = self._vocabulary.get(term, len(self._ends))
        return number < len(self._ends) and bool(self._frequencies[number])

    def _idf_of(self, term: str) -> float | None:
        """The inverse document frequency of a term; of a common one, within names; None if it does not occur."""
        if term not in self:
            return None
        of_all, of_names = (
            each[self._vocabulary[term]] for each in (self._frequencies, self._name_frequencies)
        )
        return float(idf if (idf := _idf(self._size, of_all)) >= _COMMON else _idf(self._size, of_names))

    def _is_named(self, term: str) -> bool:
        return term in self and bool(self._name_frequencies[self._vocabulary[term]])

    def expanded(self, words: Sequence[str]) -> dict[str, float]:
        """Expand the words to the terms that occur, with weights.

        The words themselves weigh 1, repeated ones a little more. Two neighbours as one word ("app config" for
        `appconfig`) weigh less. So do abbreviations and completions ("configuration" for `config`, "repo" for
        `repository`).
        """
        words = words[:_MAX_WORDS]
        weights = {word: 1 + _REPEATED * log(count) for word, count in Counter(words).items()}
        for first, second in pairwise(words):
            weights.setdefault(first + second, _JOINED)
        for word in dict.fromkeys(words):
            for related in self._related(word):
                weights[related] = max(weights.get(related, 0), _RELATED * weights[word])
        return {term: weight for term, weight in weights.items() if term in self}

    def _related(self, word: str) -> Iterator[str]:
        is_long = len(word) >= queries.SHORTEST_RELATED and not word.isdecimal()
        if not (is_long or queries.UNSPACED_CHARACTER.fullmatch(word)):
            return
        yield from (word[:length] for length in range(queries.SHORTEST_RELATED, len(word)))
        first = bisect_left(self.terms, word + "\0")
        yield from (term for term in self.terms[first : first + _MAX_COMPLETIONS] if term.startswith(word))

    def synonyms(self, words: Sequence[str]) -> dict[str, float]:
        """Synonyms of the words in functions' names, with weights; the word itself weighs 1.

        A long query leaves less to guess, so each synonym weighs less. A rare synonym of a common word weighs little
        too: `describe_table` does not answer "get table" better than `get_table`.
        """
        most = min(_MAX_SYNONYM_WEIGHT, _SHARED_SYNONYM_WEIGHT / max(len(words), 1))
        weights: dict[str, float] = {}
        for word in words:
            own = self._idf_of(word)
            others_of = queries.SYNONYMS.get(word, set())
            if len(words) <= queries.FEW_WORDS and not any(map(self._is_named, (word, *others_of))):
                others_of = queries.LOOSE_SYNONYMS.get(word, others_of)
            for other in others_of:
                if (others := self._idf_of(other)) is not None:
                    weight = most if own is None else most * min(1.0, own / others)
                    weights[other] = max(weights.get(other, 0.0), weight)
        return weights

    def relevance(self, weights: Mapping[str, float]) -> Floats:
        """BM25F score of each function over all fields. All terms must occur."""
        return self._sum(weights, lambda added: added.relevance)

    def name_relevance(self, weights: Mapping[str, float]) -> Floats:
        """BM25F score of each function over its name only."""
        return self._sum(weights, lambda added: added.name_relevance)

    def name_coverage(self, weights: Mapping[str, float]) -> Floats:
        """The share of each name that the terms cover, weighted by IDF; 1 if they cover all of it."""
        return self._sum(weights, lambda added: added.name_share)

    def _sum(self, weights: Mapping[str, float], amounts_of: Callable[[_Added], Amounts]) -> Floats:
        scores = np.zeros(self._size)
        for term, weight in weights.items():
            owners, amounts = amounts_of(self._added.get(term) or self._add(term))
            scores[owners] += weight * amounts  # owners has no duplicates
        return scores

    def _add(self, term: str) -> _Added:
        number = self._vocabulary[term]
        part = slice(self._ends[number - 1] if number else 0, self._ends[number])
        owners, counts = self._owners[part], self._counts[part]
        is_name = counts[:, _NAME] > 0
        named = owners[is_name]
        idf, idf_of_names = _idf(self._size, len(owners)), _idf(self._size, len(named))
        if idf < _COMMON:  # its frequency in a text says nothing, only its presence in a name does
            counts = np.minimum(counts, 1)
        idfs = np.where(is_name, np.maximum(idf, np.minimum(idf_of_names, _COMMON)), idf)
        counted: Floats = np.einsum("sf,sf->s", counts, self._worth[owners])
        self._added[term] = _Added(
            (owners, idfs * _saturated(counted)),
            (named, idf * _saturated(counts[is_name, _NAME] * self._worth[named, _NAME])),
            (named, idf_of_names / self._name_idf_sums[named]),
        )
        return self._added[term]


def _saturated(counted: Floats) -> Floats:
    return counted * (_SATURATION + 1) / (_SATURATION + counted)


def _idf(functions: int, frequency: int | Ints) -> Floats:
    """The inverse document frequency of a term that occurs in `frequency` of the functions."""
    logs: Floats = np.log1p((functions - frequency + 0.5) / (frequency + 0.5))
    return logs


@dataclass(frozen=True)
class SearchHits:
    """The best functions, best first.

    `total` counts all matches. The first `exact` functions have exactly the name in the query.
    """

    functions: tuple[Function, ...]
    total: int
    exact: int = 0


class SearchIndex:
    """An immutable search index of one library."""

    def __init__(self, namespaces: Mapping[str, Encoded], vocabulary: dict[str, int]) -> None:
        self._namespaces = namespaces
        self._vocabulary = vocabulary
        in_order = [namespaces[name] for name in sorted(namespaces)]
        self._functions = [function for encoded in in_order for function in encoded.functions]
        self._ranking = Ranking(in_order, vocabulary)
        self._upstreams: dict[str, int] = {}
        owners = [self._upstreams.setdefault(each.upstream, len(self._upstreams)) for each in self._functions]
        self._owners = np.array(owners, np.int64)
        self._standing: Floats = np.concatenate([each.standing for each in (*in_order, Encoded((), {}))])

    @cached_property
    def _named(self) -> Mapping[str, set[int]]:
        named: defaultdict[str, set[int]] = defaultdict(set)
        for number, each in enumerate(self._functions):
            named[each.name.casefold()].add(number)
            named[each.tool.casefold()].add(number)
        return named

    def updated(self, namespaces: Mapping[str, Sequence[Function]]) -> "SearchIndex":
        """An index of these functions, by namespace. A namespace with the same sequence object is reused."""
        # Terms of removed functions stay in the vocabulary, so that it is rebuilt from time to time.
        is_stale = len(self._vocabulary) > 2 * len(self._ranking) + _MANY_TERMS
        former, vocabulary = ({}, {}) if is_stale else (self._namespaces, self._vocabulary)
        encoded = {
            name: former[name]
            if name in former and former[name].given is given
            else Encoded(given, vocabulary)
            for name, given in namespaces.items()
        }
        return SearchIndex(encoded, vocabulary)

    def search(self, query: str, limit: int, upstream: str | None = None) -> SearchHits:
        """The `limit` best functions of all upstreams, or of one. Ties are in the order of qualified names.

        Functions named exactly like the query come first: `create_issue`, `github.create_issue` or the tool's own name.
        An empty query finds all functions of the given upstream. Only 4,000 characters of a query are read.
        """
        read = queries.read_query(query)
        scores = self._scores(read)
        allowed = np.ones(len(scores), np.bool_)
        if upstream is not None:
            allowed = np.equal(self._owners, self._upstreams.get(upstream, -1))
        lists_upstream = upstream is not None and not query.strip()
        found = np.flatnonzero(allowed if lists_upstream else allowed & (scores > 0))
        named = np.array([number for number in self._exact_matches(query) if allowed[number]], np.int64)
        others = np.setdiff1d(found, named, assume_unique=True)
        best = [*_best(named, scores, limit), *_best(others, scores, limit)][:limit]
        if read.steps and not len(named):
            best = self._with_each_step(best, read, scores, found)
        functions = tuple(self._functions[number] for number in best)
        return SearchHits(functions, len(named) + len(others), len(named))

    def _exact_matches(self, query: str) -> set[int]:
        """All functions named `create_issue` or `github.create_issue`, with or without quotes."""
        asked = queries.asked_name(query)
        found = {*self._named.get(asked, ())}
        for owner, name in queries.partitions(asked):
            for number in self._named.get(name, ()):
                each = self._functions[number]
                if owner in (each.namespace.casefold(), each.upstream.casefold()):
                    found.add(number)
        return found

    def _with_each_step(
        self, best: list[int], query: queries.Query, scores: Floats, found: Ints
    ) -> list[int]:
        """The best functions for the whole task. The first results are shared equally by the best of each step."""
        first = best[:_FIRST]
        share = max(1, len(first) // len(query.steps))
        of_steps = [_best(found, self._scores(step) + _WHOLE_TASK * scores, share) for step in query.steps]
        wanted = [*dict.fromkeys(chain.from_iterable(of_steps))][: len(first)]
        spare = [number for number in first if number not in wanted][: len(first) - len(wanted)]
        kept = [number for number in first if number in wanted or number in spare]
        return [*dict.fromkeys([*kept, *wanted, *best])][: len(best)]

    def _scores(self, query: queries.Query) -> Floats:
        ranking = self._ranking
        weights, synonyms = ranking.expanded(query.words), ranking.synonyms(query.synonym_words)
        more = {term: weight - weights.get(term, 0) for term, weight in synonyms.items()}
        scores = ranking.relevance(weights)
        scores += ranking.name_relevance({term: more[term] for term in more if more[term] > 0})
        if query.sentences:
            # A task has several steps: a function that matches one sentence well matches the task.
            sentences = map(ranking.expanded, query.sentences)
            scores += _BEST_SENTENCE * np.max([ranking.relevance(each) for each in sentences], axis=0)
        phrases = {
            each: _WHOLE_NAME if each.startswith(queries.WHOLE) else _PHRASE
            for each in query.phrases
            if each in ranking
        }
        # Phrases only rank matches: "in" or "up" alone must not match anything.
        scores += np.where(scores > 0, ranking.name_relevance(phrases), 0)
        covering = {term: min(weight, 1.0) for term, weight in weights.items()}
        covering |= {term: weight for term, weight in synonyms.items() if more[term] > 0}
        return self._boosted(scores * (1 + _NAME_COVERAGE * ranking.name_coverage(covering)))

    def _boosted(self, scores: Floats) -> Floats:
        """Add a share of the upstream's best score to each function that matches."""
        best = np.zeros(len(self._upstreams))
        np.maximum.at(best, self._owners, scores)
        boosted: Floats = np.where(scores > 0, scores + _SAME_UPSTREAM * best[self._owners], 0)
        return boosted * self._standing


def _best(numbers: Ints, scores: Floats, count: int) -> list[int]:
    """The best functions. `numbers` are in the order of qualified names."""
    best: list[int] = numbers[np.lexsort((numbers, -scores[numbers]))[:count]].tolist()
    return best
