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

_UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
    r"\U00020000-\U0003ffff"
)
"""Thai, Lao, Burmese, Khmer, kana and Chinese characters. Where another script begins, there a word does too."""

_WORD = re.compile(
    rf"([^\W_{_UNSPACED}]+|(?:[{_UNSPACED}](?<=\w)){{1,{_MAX_WORD_CHARS}}})(?:['’](?:s|t|d|m|ll|re|ve)\b)?"
)
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_PART_BEYOND_ASCII = re.compile(r"[^\W\d_]+|\d+")
_UNSPACED_RUN = re.compile(f"[{_UNSPACED}]{{2,}}")


def terms_of(text: str, max_chars: int) -> list[str]:
    """The terms of the text's first `max_chars` characters, in order, repeated as often as they occur."""
    return [term for word in _words(text, max_chars) for term in _terms_of_word(word)]


def parts_of(text: str, max_chars: int) -> list[str]:
    """The words that terms are made of: split and folded, not stemmed, and no stopword is left out."""
    return [part for word in _words(text, max_chars) for part in _folded_parts(word)]


@lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    # A stemmer keeps the word it works on in itself: one each, so that threads can share this function.
    stem: str = EnglishStemmer().stemWord(word)
    return stem


def is_asking(term: str) -> bool:
    return term in _ASKING_TERMS


def _words(text: str, max_chars: int) -> list[str]:
    words: list[str] = _WORD.findall(_without_accents(text[:max_chars])[:max_chars])
    return words


@lru_cache(maxsize=1 << 16)
def _terms_of_word(word: str) -> tuple[str, ...]:
    parts = [*_folded_parts(word)]
    if len(parts) > 1 and word.isascii():
        parts.append(
            word.casefold()
        )  # "GitHub" is found as "github" too, and "ec2" is more than "ec" and "2"
    return tuple(stem(part) for part in parts if part not in STOPWORDS)


@lru_cache(maxsize=1 << 16)
def _folded_parts(word: str) -> tuple[str, ...]:
    return tuple(part.casefold() for part in _parts(word)) if len(word) <= _MAX_WORD_CHARS else ()


def _parts(word: str) -> Iterator[str]:
    if word.isascii():
        yield from (word,) if word.islower() else _PART.findall(word)
        return
    for part in _PART_BEYOND_ASCII.findall(word):
        yield from _pairs(part) if _UNSPACED_RUN.search(part) else (part,)


def _pairs(text: str) -> Iterator[str]:
    return (text[at : at + 2] for at in range(len(text) - 1))


def _without_accents(text: str) -> str:
    if text.isascii():
        return text
    letters = (letter for letter in unicodedata.normalize("NFKD", text) if not unicodedata.combining(letter))
    return unicodedata.normalize("NFC", "".join(letters))


_ASKING_TERMS = frozenset(term for word in ASKING for term in _terms_of_word(word))
