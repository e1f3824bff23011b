"""What somebody looks for, as words; a whole task is looked at sentence by sentence too."""

import re
from dataclasses import dataclass

from portal.search.words import is_asking, terms_of

_MAX_CHARS = 4_000
"""Of a longer query the rest is not read."""

_MAX_SENTENCES = 16
_SENTENCE_END = re.compile(
    r"[.!?;]\s|\n|\b(?:and then|and also|then|also|additionally|after that|finally|moreover|furthermore)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Query:
    words: tuple[str, ...]
    sentences: tuple[tuple[str, ...], ...] = ()
    """The words of each sentence; empty if there is only one."""


def read_query(text: str) -> Query:
    text = text[:_MAX_CHARS]
    sentences = [words for part in _SENTENCE_END.split(text) if len(words := _words(part)) > 1]
    return Query(
        _words(text) or tuple(terms_of(text, _MAX_CHARS)),
        tuple(sentences[:_MAX_SENTENCES]) if len(sentences) > 1 else (),
    )


def _words(text: str) -> tuple[str, ...]:
    return tuple(term for term in terms_of(text, _MAX_CHARS) if not is_asking(term))
