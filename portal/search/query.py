"""What is looked for, and what is looked at, as search terms: split, folded, stemmed, without stopwords.

`createIssue`, `create_issue` and "creating issues" give the same terms. Accents and case are folded; scripts
written without spaces become pairs of characters.

Words like "in", "off" and "like" say nothing in a description. In a name they may be all that tells `turn_on_light`
from `turn_off_light` and `like_post` from `share_post`. They are phrases there, with the word beside each.

A whole task is looked at sentence by sentence and step by step too. A server calls its functions by the words of its
own trade; somebody who asks in those of another means the same. Such a word counts where it stands in a function's
name, and less than the word that was asked for: `delete_issue` is found by "remove ticket".
"""

import re
import unicodedata
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from math import log
from typing import TYPE_CHECKING

from snowballstemmer.english_stemmer import EnglishStemmer  # type: ignore[import-untyped]  # ships no types

if TYPE_CHECKING:
    from portal.search.index import Ranking

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


_MAX_CHARS = 4_000
"""Of a longer query the rest is not read; of names with more than 16 dots, what stands behind these."""

_MAX_DOTS = 16
_MAX_SENTENCES = 16
_MAX_STEPS = 5
_MAX_WORDS = 256
"""Of a query; of further ones nothing is looked up."""

_REPEATED = 0.5
_JOINED = 0.5
_RELATED = 0.2
_SHORTEST_RELATED = 4
_MAX_COMPLETIONS = 8
_MOST_OF_ROLE = 0.7
_SHARED_BY_ROLES = 1.5

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

_OTHER_STEPS = """
    archive assign attach book build buy calculate cancel check close comment compare compute convert copy count deploy
    draft email extract generate invite log mail measure merge message monitor move notify open parse pay plot
    publish record rename reply report restart save schedule share start stop store submit summarize translate
    write
"""
"""What a step of a task may begin with, beside the actions that have other words."""


@dataclass(frozen=True)
class Query:
    words: tuple[str, ...]
    roles: tuple[str, ...]
    """Words that others may stand for in a function's name. "show" is one, although it is no word to look for."""
    phrases: tuple[str, ...]
    """Those that a name may share."""
    sentences: tuple[tuple[str, ...], ...] = ()
    """The words of each sentence; empty if there is only one."""
    steps: tuple["Query", ...] = ()
    """The steps of a task that spells them out: "find the overdue invoices and mail their owners"."""


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
    """What stands before and behind each dot: an upstream's key and a tool's name may have some of their own."""
    parts = name.split(".", _MAX_DOTS)
    for at in range(1, len(parts)):
        yield ".".join(parts[:at]), ".".join(parts[at:])


def meant_terms(words: Sequence[str], index: "Ranking") -> dict[str, float]:
    """The terms meant by the words, those that occur, with how much each counts.

    Beside the words themselves (1, repeated ones a little more) that is two neighbours as one word ("app config" for
    `appconfig`) and, for less, abbreviations and completions ("configuration" for `config`, "repo" for `repository`).
    """
    words = words[:_MAX_WORDS]
    weights = {word: 1 + _REPEATED * log(count) for word, count in Counter(words).items()}
    for first, second in pairwise(words):
        weights.setdefault(first + second, _JOINED)
    for word in dict.fromkeys(words):
        for related in _related(word, index.terms):
            weights[related] = max(weights.get(related, 0), _RELATED * weights[word])
    return {term: weight for term, weight in weights.items() if term in index}


def role_terms(words: Sequence[str], index: "Ranking") -> dict[str, float]:
    """Terms that may stand for the words in a function's name, and how much each counts where a word counts 1.

    The more words there are, the less is left to guess: of a long query every one counts little. A word that many
    functions have counts little for a rare one: `describe_table` is no better answer to "get table" than `get_table`.
    """
    most = min(_MOST_OF_ROLE, _SHARED_BY_ROLES / max(len(words), 1))
    weights: dict[str, float] = {}
    for word in words:
        own = index.rarity(word)
        for other in _EQUIVALENTS.get(word, ()):
            if (others := index.rarity(other)) is not None:
                weight = most if own is None else most * min(1.0, own / others)
                weights[other] = max(weights.get(other, 0.0), weight)
    return weights


def _related(word: str, terms: Sequence[str]) -> Iterator[str]:
    if len(word) < _SHORTEST_RELATED or word.isdecimal():
        return
    yield from (word[:length] for length in range(_SHORTEST_RELATED, len(word)))
    first = bisect_left(terms, word + "\0")
    yield from (term for term in terms[first : first + _MAX_COMPLETIONS] if term.startswith(word))


def _one_query(text: str) -> Query:
    words = _asked_terms(text) or tuple(terms_of(text, _MAX_CHARS))
    roles = (*words, _SHOW) if _first_term(text) == _SHOW else words
    return Query(words, roles, tuple(phrases_of(text, _MAX_CHARS)))


def _asked_terms(text: str) -> tuple[str, ...]:
    return tuple(term for term in terms_of(text, _MAX_CHARS) if term not in ASKING_TERMS)


def _steps(text: str) -> list[str]:
    """The parts that begin with an action, each with what follows; none unless the first one does."""
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
    """The terms of each line, any of which may stand for any other."""
    return [set(terms_of(line, _MAX_CHARS)) for line in lines.strip().split("\n")]


_SETS = _sets(_ACTIONS + _OBJECTS)
_EQUIVALENTS = {
    term: set().union(*(terms for terms in _SETS if term in terms)) - {term} for term in set().union(*_SETS)
}
(_SHOW,) = terms_of("show", 4)
_STEPS = set().union(*_sets(_ACTIONS), terms_of(_OTHER_STEPS, _MAX_CHARS))
