"""Turns queries and texts into search terms: split, folded, stemmed, without stopwords.

`createIssue`, `create_issue` and "creating issues" give the same terms. Accents and case are folded. Writing systems
without spaces become pairs of characters.

Words like "in", "off" and "like" are noise in a description. In a name they may be the only difference between
`turn_on_light` and `turn_off_light`, or `like_post` and `share_post`. In names they form phrases with their neighbours.

A whole task is also searched sentence by sentence and step by step. Servers name functions in the words of their own
field, so synonyms count too. A synonym counts only in a function's name, and less than the word in the query: "remove
ticket" finds `delete_issue`.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
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
"""English words that carry no information about a function."""

ASKING = frozenset(
    """
    able give hello help hey hi im interested kindly know let like look looking may might need show sure
    tell thank thanks us use using want way wondering
    """.split()  # noqa: SIM905
)
"""Words of politeness and asking. Only dropped from queries: "show" is a good name for a tool."""

_SILENT = frozenset(
    {"a", "an", "the", "my", "your", "our", "his", "her", "its", "their", "this", "that", "these", "those"}
)
"""Words that are skipped inside a phrase: "like this post"."""

_PARTICLES = frozenset({"in", "off", "on", "out", "up", "down"})
"""Words that are also phrases by themselves: "turn the light off"."""

_SMALL = (STOPWORDS | ASKING) - _SILENT
_MAX_PHRASE_WORDS = 256
_LONGEST_NAME = 16
"""Words of a name. A query with more words does not name a function."""

PHRASE = " "
"""Prefix of phrases; no term begins with it."""

WHOLE = "  "
"""Prefix of the phrase that has all words of a text."""

_MAX_WORD_CHARS = 64
"""A longer run of letters and digits is a key or a blob, which no one searches for."""

_UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3\uf900-\ufaff"
    r"\U00020000-\U0003ffff"
)
"""Thai, Lao, Burmese, Khmer, kana, Chinese characters, and Hangul, whose words end with particles. A change of writing
system ends a word."""

_WORD = re.compile(
    rf"([^\W_{_UNSPACED}]+|(?:[{_UNSPACED}](?<=\w)){{1,{_MAX_WORD_CHARS}}})(?:['’](?:s|t|d|m|ll|re|ve)\b)?"
)
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_PART_BEYOND_ASCII = re.compile(r"[^\W\d_]+|\d+")
_UNSPACED_RUN = re.compile(f"[{_UNSPACED}]{{2,}}")
UNSPACED_CHARACTER = re.compile(f"[{_UNSPACED}]")


def terms_of(text: str, max_chars: int) -> list[str]:
    """The terms of the text's first `max_chars` characters, in order, with repetitions."""
    return [term for word in _words(text, max_chars) for term in _terms_of_word(word)]


def phrases_of(text: str, max_chars: int) -> list[str]:
    """The phrases of the text's first `max_chars` characters: small words with their neighbours, then the whole text.

    Names and queries share the last one if they have the same words: "get the tables", `getTable`.
    """
    parts = (part for word in _words(text, max_chars) for part in _parts(word))
    words = [part for part in parts if part not in _SILENT][:_MAX_PHRASE_WORDS]
    phrases = [f" {word}" for word in words if word in _PARTICLES]
    for first, second in pairwise(words):
        if first in _SMALL or second in _SMALL:
            phrases.append(f" {stem(first)} {stem(second)}")
    stems = sorted({stem(word) for word in words if word not in STOPWORDS})
    whole = [WHOLE + " ".join(stems)] if stems and len(words) <= _LONGEST_NAME else []
    return [*phrases, *whole]


@lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    # A stemmer has state. One per call lets threads share this function.
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
    """The words in an identifier, casefolded; pairs of characters in writing systems without spaces."""
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
    # One by one: the time to sort the marks of a whole text grows with the square of their number.
    letters = (letter for each in text for letter in unicodedata.normalize("NFKD", each))
    return unicodedata.normalize("NFC", "".join(each for each in letters if not unicodedata.combining(each)))


ASKING_TERMS = frozenset(term for word in ASKING for term in _terms_of_word(word))


_MAX_CHARS = 4_000
"""Characters read of a query. In a name, only the first 16 dots count as separators."""

_MAX_DOTS = 16
_MAX_SENTENCES = 16
_MAX_STEPS = 5
SHORTEST_RELATED = 4
FEW_WORDS = 4
"""A query with more words is a task."""


_SENTENCE_END = re.compile(r"[.!?;]\s|\n")
_STEP_END = re.compile(r"(?<!\d)[.!?;]\s+|\n|,\s+|\b(?:and|then|after that)\b", re.IGNORECASE)

_ACTIONS = """
list show browse enumerate
search find query lookup
get fetch read retrieve view describe show
create add new make insert
update edit modify change
delete remove drop destroy erase
send post deliver
run execute
download export
upload import
"""
_OBJECTS = """
issue ticket bug
repository repo project
message mail email
folder directory
image picture photo
user member account person
event meeting appointment
comment note reply
label tag
channel room
database db
document doc file
task todo
price cost quote
organization org company
website site url
"""
_LOOSE_ACTIONS = """
list search find get
calculate compute evaluate
tap click press
"""
"""Further synonyms, in a query of FEW_WORDS, for a word that occurs in no name, nor does a synonym of it."""

_OTHER_STEPS = """
    archive assign attach book build buy calculate cancel check close comment compare compute convert copy count deploy
    draft email extract generate invite log mail measure merge message monitor move notify open parse pay plot
    publish record rename reply report restart save schedule share start stop store submit summarize translate
    write
"""
"""Further words with which a step of a task may begin, besides _ACTIONS."""


@dataclass(frozen=True)
class Query:
    words: tuple[str, ...]
    synonym_words: tuple[str, ...]
    """Words whose synonyms are searched in names. "show" may be one, although it is not searched for itself."""
    phrases: tuple[str, ...]
    """Phrases that a name may share."""
    sentences: tuple[tuple[str, ...], ...] = ()
    """The words of each sentence; empty if there is only one."""
    steps: tuple["Query", ...] = ()
    """The steps of a task with several: "find the overdue invoices and mail their owners"."""


def read_query(text: str) -> Query:
    text = text[:_MAX_CHARS]
    sentences = [words for part in _SENTENCE_END.split(text) if len(words := _asked_terms(part)) > 1]
    steps = [step for part in _steps(text) if len((step := _one_query(part)).words) > 1]
    return replace(
        _one_query(text),
        sentences=tuple(sentences[:_MAX_SENTENCES] if len(sentences) > 1 else ()),
        steps=tuple(steps[:_MAX_STEPS] if len(steps) > 1 else ()),
    )


def asked_name(query: str) -> str:
    """The name in `jira.create_issue`, "create_issue" or await jira.create_issue(title="x"), in lower case."""
    bare = query.strip().strip("`'\"").strip().removeprefix("await ").strip().casefold()
    name, bracket, _ = bare.partition("(")
    is_call = bracket and bare.endswith(")") and not name.endswith(" ")
    return name if is_call else bare


def partitions(name: str) -> Iterator[tuple[str, str]]:
    """Split at each dot in turn, as upstream keys and tool names may contain dots."""
    parts = name.split(".", _MAX_DOTS)
    for at in range(1, len(parts)):
        yield ".".join(parts[:at]), ".".join(parts[at:])


def may_mean(word: str, terms: Set[str]) -> bool:
    """Whether the word, a synonym, or another word with the same first letters is among the terms."""
    is_alike = any(each.startswith(word[: SHORTEST_RELATED + 1]) for each in terms)
    return is_alike or not LOOSE_SYNONYMS.get(word, set()).isdisjoint(terms)


def _one_query(text: str) -> Query:
    words = _asked_terms(text) or tuple(terms_of(text, _MAX_CHARS))
    synonym_words = (*words, _SHOW) if _first_term(text) == _SHOW else words
    return Query(words, synonym_words, tuple(phrases_of(text, _MAX_CHARS)))


def _asked_terms(text: str) -> tuple[str, ...]:
    return tuple(term for term in terms_of(text, _MAX_CHARS) if term not in ASKING_TERMS)


def _steps(text: str) -> list[str]:
    """The parts that begin with an action, each with what follows. Empty if the first part does not."""
    steps: list[str] = []
    for part in filter(str.strip, _STEP_END.split(text)):
        if _first_term(part) in _STEPS:
            steps.append(part)
        elif not steps:
            return []
        else:
            steps[-1] += f" {part}"
    return steps


def _first_term(text: str) -> str:
    terms = terms_of(text, _MAX_CHARS)
    return next((term for term in terms if not term.isdecimal()), "")


def _sets(lines: str) -> list[set[str]]:
    """The terms of each line, which are synonyms."""
    return [set(terms_of(line, _MAX_CHARS)) for line in lines.strip().split("\n")]


def _synonyms(sets: list[set[str]]) -> Mapping[str, set[str]]:
    return {
        term: set().union(*(each for each in sets if term in each)) - {term} for term in set().union(*sets)
    }


SYNONYMS = _synonyms(_sets(_ACTIONS + _OBJECTS))
LOOSE_SYNONYMS = _synonyms(_sets(_ACTIONS + _OBJECTS + _LOOSE_ACTIONS))
(_SHOW,) = terms_of("show", 4)
_STEPS = set().union(*_sets(_ACTIONS), terms_of(_OTHER_STEPS, _MAX_CHARS))
