"""A function as the index keeps it: how often each term occurs in each of its fields."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from portal.search.searchable import Searchable
from portal.search.words import terms_of

FIELDS = ("name", "upstream", "description", "parameter names", "parameter docs")

# Texts are an upstream's own: these bounds keep one definition from costing the whole index its time.
_MAX_NAME_CHARS = 200
_MAX_TEXT_CHARS = 4_000
_MAX_PARAMETERS = 64


@dataclass(frozen=True, slots=True)
class Document:
    """`terms[i]` occurs `counts[i]` times in `FIELDS[fields[i]]`; `lengths` has the sum of each field."""

    terms: tuple[str, ...]
    fields: bytes
    counts: tuple[int, ...]
    lengths: tuple[int, ...]


def read_document(function: Searchable) -> Document:
    counted = [Counter(terms) for terms in _terms_by_field(function)]
    return Document(
        terms=tuple(term for field in counted for term in field),
        fields=bytes(number for number, field in enumerate(counted) for _ in field),
        counts=tuple(count for field in counted for count in field.values()),
        lengths=tuple(field.total() for field in counted),
    )


def _terms_by_field(function: Searchable) -> Iterator[list[str]]:
    parameters = function.parameters[:_MAX_PARAMETERS]
    yield terms_of(function.tool, _MAX_NAME_CHARS)
    yield terms_of(function.upstream, _MAX_NAME_CHARS)
    yield terms_of(function.description, _MAX_TEXT_CHARS)
    yield terms_of(" ".join(each.wire_name[:_MAX_NAME_CHARS] for each in parameters), _MAX_TEXT_CHARS)
    yield terms_of(" ".join(each.doc[:_MAX_TEXT_CHARS] for each in parameters), _MAX_TEXT_CHARS)
