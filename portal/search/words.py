"""Text and identifiers as search terms: split, folded, stemmed, without stopwords.

`createIssue`, `create_issue` and "creating issues" give the same terms. Accents and case are folded; scripts
written without spaces become pairs of characters.

Words like "in", "off" and "like" say nothing in a description. In a name they may be all that tells `turn_on_light`
from `turn_off_light` and `like_post` from `share_post`. They are phrases there, with the word beside each.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

from snowballstemmer.english_stemmer import EnglishStemmer  # type: ignore[import-untyped]  # ships no types

STOPWORDS = frozenset(
    """
    a about above after again all also am an and any are aren as at be because been before being below
    between both but by can could couldn did didn do does doesn doing don down during each few for from
    further had has have having he her here hers him his how i if in into is isn it its itself just me
    more most my myself no nor not now of off on once only or other our ours out over own please same
    she should so some such than that the their theirs them then there these they this those through to
    too under until up very was wasn we were what when where which while who whom why will with won
    would wouldn you your yours
    """.split()  # noqa: SIM905
)
"""English words that say nothing about what a function does."""

ASKING = frozenset(
    """
    able give hello help hey hi im interested kindly know let like look looking may might need show sure
    tell thank thanks us use using want way wondering
    """.split()  # noqa: SIM905
)
"""Words of the asking, not of what is asked for. Kept in descriptions: "show" is a good name for a tool."""

_SILENT = frozenset(
    {"a", "an", "the", "my", "your", "our", "his", "her", "its", "their", "this", "that", "these", "those"}
)
"""What may stand between two words of a phrase: "like this post"."""

_PARTICLES = frozenset({"in", "off", "on", "out", "up", "down"})
"""They are phrases by themselves too: "turn the light off"."""

_SMALL = (STOPWORDS | ASKING) - _SILENT
_MAX_PHRASE_WORDS = 256
_LONGEST_NAME = 16
"""Words of one: who asks with more does not ask for a name."""

PHRASE = " "
"""How a phrase begins; no term does."""

WHOLE = "  "
"""How one begins that has all words of a text."""

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


def phrases_of(text: str, max_chars: int) -> list[str]:
    """The small words with their neighbours, of the text's first `max_chars` characters; last, all that it says as one.

    Names and queries share that one if their words are the same: "get the tables", `getTable`.
    """
    parts = (part for word in _words(text, max_chars) for part in _parts(word))
    words = [part for part in parts if part not in _SILENT][:_MAX_PHRASE_WORDS]
    phrases = [f" {word}" for word in words if word in _PARTICLES]
    for first, second in pairwise(words):
        if first in _SMALL or second in _SMALL:
            phrases.append(f" {stem(first)} {stem(second)}")
    said = sorted({stem(word) for word in words if word not in STOPWORDS})
    whole = [WHOLE + " ".join(said)] if said and len(words) <= _LONGEST_NAME else []
    return [*phrases, *whole]


@lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    # A stemmer keeps the word it works on in itself: one each, so that threads can share this function.
    stem: str = EnglishStemmer().stemWord(word)
    return stem


def _words(text: str, max_chars: int) -> list[str]:
    words: list[str] = _WORD.findall(_without_accents(text[:max_chars])[:max_chars])
    return [word for word in words if len(word) <= _MAX_WORD_CHARS]


@lru_cache(maxsize=1 << 16)
def _terms_of_word(word: str) -> tuple[str, ...]:
    parts = [*_parts(word)]
    if len(parts) > 1 and word.isascii():
        parts.append(word.casefold())  # "GitHub" is found as "github" too
    return tuple(stem(part) for part in parts if part not in STOPWORDS)


@lru_cache(maxsize=1 << 16)
def _parts(word: str) -> Sequence[str]:
    """The words in an identifier, case folded; of scripts without spaces, pairs of characters."""
    if word.isascii():
        return [word] if word.islower() else [part.casefold() for part in _PART.findall(word)]
    parts = []
    for part in _PART_BEYOND_ASCII.findall(word.casefold()):
        is_unspaced = _UNSPACED_RUN.search(part)
        parts += [part[at : at + 2] for at in range(len(part) - 1)] if is_unspaced else [part]
    return parts


def _without_accents(text: str) -> str:
    if text.isascii():
        return text
    letters = (letter for letter in unicodedata.normalize("NFKD", text) if not unicodedata.combining(letter))
    return unicodedata.normalize("NFC", "".join(letters))


ASKING_TERMS = frozenset(term for word in ASKING for term in _terms_of_word(word))
