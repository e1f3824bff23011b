"""Text and identifiers as search terms: split, folded, stemmed, without stopwords.

`createIssue`, `create_issue` and "creating issues" give the same terms. Accents and case are folded; scripts
written without spaces become pairs of characters.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

from snowballstemmer.english_stemmer import EnglishStemmer  # type: ignore[import-untyped]  # ships no types

from portal.search.stopwords import ASKING, STOPWORDS

_MAX_WORD_CHARS = 64
"""A longer run of letters and digits is a key or a blob: nobody searches for it."""

_WORD = re.compile(r"([^\W_]+)(?:['’](?:s|t|d|m|ll|re|ve)\b)?")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_PART_BEYOND_ASCII = re.compile(r"[^\W\d_]+|\d+")
_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]{2,}"
)
"""Thai, Lao, Burmese, Khmer, kana and Chinese characters."""


def terms_of(text: str, max_chars: int) -> list[str]:
    """The terms of the text's first `max_chars` characters, in order, repeated as often as they occur."""
    words = _WORD.findall(_without_accents(text[:max_chars])[:max_chars])
    return [term for word in words for term in _terms_of_word(word)]


def is_asking(term: str) -> bool:
    return term in _ASKING_TERMS


@lru_cache(maxsize=1 << 16)
def _terms_of_word(word: str) -> tuple[str, ...]:
    if len(word) > _MAX_WORD_CHARS:
        return ()
    parts = [part.casefold() for part in _parts(word)]
    if len(parts) > 1 and word.isascii():
        parts.append(
            word.casefold()
        )  # "GitHub" is found as "github" too, and "ec2" is more than "ec" and "2"
    return tuple(_stem(part) for part in parts if part not in STOPWORDS)


@lru_cache(maxsize=1 << 16)
def _stem(word: str) -> str:
    # A stemmer keeps the word it works on in itself: one each, so that threads can share this function.
    stem: str = EnglishStemmer().stemWord(word)
    return stem


def _parts(word: str) -> Iterator[str]:
    if word.isascii():
        yield from (word,) if word.islower() else _PART.findall(word)
        return
    for part in _PART_BEYOND_ASCII.findall(word):
        yield from _pairs(part) if _UNSPACED.search(part) else (part,)


def _pairs(text: str) -> Iterator[str]:
    return (text[at : at + 2] for at in range(len(text) - 1))


def _without_accents(text: str) -> str:
    if text.isascii():
        return text
    letters = (letter for letter in unicodedata.normalize("NFKD", text) if not unicodedata.combining(letter))
    return unicodedata.normalize("NFC", "".join(letters))


_ASKING_TERMS = frozenset(term for word in ASKING for term in _terms_of_word(word))
