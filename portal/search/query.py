"""What somebody looks for, as words; a whole task is looked at sentence by sentence and step by step too."""

import re
from dataclasses import dataclass, replace
from typing import TypeVar

from portal.search.phrases import Phrases, phrases_of
from portal.search.roles import ACTIONS
from portal.search.words import is_asking, terms_of

P = TypeVar("P")

_MAX_CHARS = 4_000
"""Of a longer query the rest is not read."""

_MAX_SENTENCES = 16
_MAX_STEPS = 5
_MAX_WORD_CHARS = 64
_SENTENCE_END = re.compile(
    r"[.!?;]\s|\n|\b(?:and then|and also|then|also|additionally|after that|finally|moreover|furthermore)\b",
    re.IGNORECASE,
)
_STEP_END = re.compile(
    r"(?<!\d)[.!?;]\s+|\n|,\s+|\b(?:and then|and also|and|then|after that)\b", re.IGNORECASE
)
_STEP_BEGIN = re.compile(
    r"\W*(?:\d+[.)]\s*)?(?:(?:please|first|next|then|also|finally|and)\b\W*)*", re.IGNORECASE
)
_WORD = re.compile(rf"\w{{1,{_MAX_WORD_CHARS}}}")

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
    phrases: Phrases
    """Those that a name may share."""
    sentences: tuple[tuple[str, ...], ...] = ()
    """The words of each sentence; empty if there is only one."""
    steps: tuple["Query", ...] = ()
    """The steps of a task that spells them out: "find the overdue invoices and mail their owners"."""


def read_query(text: str) -> Query:
    text = text[:_MAX_CHARS]
    sentences = [words for part in _several(_SENTENCE_END.split(text)) if len(words := _words(part)) > 1]
    steps = [step for part in _several(_steps(text)) if len((step := _one_query(part)).words) > 1]
    return replace(
        _one_query(text),
        sentences=tuple(_several(sentences)[:_MAX_SENTENCES]),
        steps=tuple(_several(steps)[:_MAX_STEPS]),
    )


def _several(parts: list[P]) -> list[P]:
    """The parts, if there are more than one: a single one is the whole."""
    return parts if len(parts) > 1 else []


def _one_query(text: str) -> Query:
    words = _words(text) or tuple(terms_of(text, _MAX_CHARS))
    roles = (*words, _SHOW) if _first_term(text) == _SHOW else words
    return Query(words, roles, phrases_of(text, _MAX_CHARS))


def _words(text: str) -> tuple[str, ...]:
    return tuple(term for term in terms_of(text, _MAX_CHARS) if not is_asking(term))


def _steps(text: str) -> list[str]:
    """The parts that begin with an action, each with what follows; none unless the first one does."""
    steps: list[str] = []
    for part in filter(str.strip, _STEP_END.split(text)):
        if not steps or _first_term(part) in _STEPS:
            steps.append(part)
        else:
            steps[-1] += f" {part}"
    return steps if steps and _first_term(steps[0]) in _STEPS else []


def _first_term(text: str) -> str:
    begin = _STEP_BEGIN.match(text)
    first = _WORD.match(text, begin.end() if begin else 0)
    terms = terms_of(first[0], _MAX_WORD_CHARS) if first else []
    return terms[0] if terms else ""


(_SHOW,) = terms_of("show", _MAX_WORD_CHARS)
_STEPS = ACTIONS | frozenset(terms_of(_OTHER_STEPS, len(_OTHER_STEPS)))
