"""A function as the index keeps it: how often each term occurs in each of its fields."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from portal.search.words import phrases_of, terms_of

FIELDS = ("name", "upstream", "description", "parameter names", "parameter docs")

COUNT_BITS = 8
_MOST = (1 << COUNT_BITS) - 1
"""Of a term that occurs in a field more often no more is counted."""

# Texts are an upstream's own: these bounds keep one definition from costing the whole index its time.
_MAX_NAME_CHARS = 200
_MAX_TEXT_CHARS = 4_000
_MAX_PARAMETERS = 64


class SearchableParameter(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def wire_name(self) -> str: ...
    @property
    def doc(self) -> str: ...


class Searchable(Protocol):
    """A function as search sees it. Its texts are an upstream's own words: hostile and of any length."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def upstream(self) -> str: ...
    @property
    def tool(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def parameters(self) -> Sequence[SearchableParameter]: ...


@dataclass(frozen=True, slots=True)
class Document:
    """`counts[i]` says how often `terms[i]` occurs: a byte for each of `FIELDS`, that of the first one lowest.

    The phrases of the name are among the terms, as if it had them. `lengths` has the number of the other terms of each
    field.
    """

    terms: tuple[str, ...]
    counts: tuple[int, ...]
    lengths: tuple[int, ...]


def read_document(function: Searchable) -> Document:
    counts: dict[str, int] = {}
    lengths = []
    for number, terms in enumerate(_terms_by_field(function)):
        lengths.append(len(terms))
        for term, count in Counter(terms).items():
            counts[term] = counts.get(term, 0) | min(count, _MOST) << COUNT_BITS * number
    phrases = phrases_of(function.tool, _MAX_NAME_CHARS)
    for phrase in filter(None, (*phrases.small, phrases.whole)):
        counts[phrase] = 1 << COUNT_BITS * FIELDS.index("name")
    return Document(tuple(counts), tuple(counts.values()), tuple(lengths))


def _terms_by_field(function: Searchable) -> Iterator[list[str]]:
    parameters = function.parameters[:_MAX_PARAMETERS]
    yield terms_of(function.tool, _MAX_NAME_CHARS)
    yield terms_of(function.upstream, _MAX_NAME_CHARS)
    yield terms_of(function.description, _MAX_TEXT_CHARS)
    yield terms_of(" ".join(each.wire_name[:_MAX_NAME_CHARS] for each in parameters), _MAX_TEXT_CHARS)
    yield terms_of(" ".join(each.doc[:_MAX_TEXT_CHARS] for each in parameters), _MAX_TEXT_CHARS)
