"""What somebody looks for, as words; a whole task is looked at sentence by sentence and step by step too.

A server calls its functions by the words of its own trade; somebody who asks in those of another means the same. Such a
word counts where it stands in a function's name, and less than the word that was asked for: `delete_issue` is found by
"remove ticket".
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import log

from portal.search.ranking import Ranking
from portal.search.words import ASKING_TERMS, phrases_of, terms_of

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
    sentences = [words for part in _SENTENCE_END.split(text) if len(words := _words(part)) > 1]
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


def meant_terms(words: Sequence[str], index: Ranking) -> dict[str, float]:
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


def role_terms(words: Sequence[str], index: Ranking) -> dict[str, float]:
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
    words = _words(text) or tuple(terms_of(text, _MAX_CHARS))
    roles = (*words, _SHOW) if _first_term(text) == _SHOW else words
    return Query(words, roles, tuple(phrases_of(text, _MAX_CHARS)))


def _words(text: str) -> tuple[str, ...]:
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
