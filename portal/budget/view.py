"""One view of an answer: each part in the detail that is its due, and the notices of what that leaves out."""

from contextlib import suppress
from dataclasses import dataclass

from manifests.json_value import Json
from portal.budget.cut import Path, advice, sentences
from portal.budget.detail import EVERYTHING, LADDER, Detail
from portal.budget.excerpt import Excerpt, ExcerptTooLargeError
from portal.budget.ledger import summarised

Answer = dict[str, Json]

# Answers with more of either per token are cut unasked: they are rules of dashes and lists of empty lists.
_MAX_CHARS_PER_TOKEN = 16
_MAX_VALUES_PER_TOKEN = 1.25

_USUAL = next(rung for rung in LADDER if rung.characters >= 300)
_ROW_LEVELS = 3
"""Of a row of the ledger, shown in any detail."""

_UNTOUCHED = ("status", "run_id", "session")


@dataclass(frozen=True)
class View:
    """`answer` is None if the view outgrew what could fit, after meeting `values` values."""

    answer: Answer | None
    notices: list[str]
    values: int


class Viewer:
    """Makes views of one answer for one budget."""

    def __init__(self, answer: Answer, max_tokens: int) -> None:
        self._answer = answer
        self._max_tokens = max_tokens
        self._stdout_share = _stdout_share(answer.get("result"))

    def view(self, less: Detail, more: Detail | None = None, ahead: int = 0) -> View:
        """The answer with its first `ahead` values in the detail `more`, the others in `less`."""
        excerpt = Excerpt(
            less,
            more or less,
            ahead,
            max_values=100 + int(self._max_tokens * _MAX_VALUES_PER_TOKEN),
            max_chars=1_000 + self._max_tokens * _MAX_CHARS_PER_TOKEN,
        )
        try:
            answer = {key: self._part(key, value, excerpt, less) for key, value in self._answer.items()}
        except ExcerptTooLargeError:
            return View(None, [], excerpt.values)
        notices = sentences(excerpt.cuts, less.notices)
        if excerpt.cuts and less is not EVERYTHING:
            notices.append(advice(excerpt.cuts, self._max_tokens))
        if notices:
            answer["notices"] = [*answer.get("notices", ()), *notices]
        return View(answer, notices, excerpt.values)

    def _part(self, key: str, value: Json, excerpt: Excerpt, detail: Detail) -> Json:
        path: Path = ((), key)
        if key in _UNTOUCHED:
            return value
        if key == "stdout" and isinstance(value, str):
            return excerpt.text(value, path, self._stdout_share)
        if key == "error" and isinstance(value, dict):
            return {name: _error_part(name, inner, excerpt, (path, name)) for name, inner in value.items()}
        if key == "notices" and isinstance(value, list):
            return _notices(value, excerpt, path, min(detail.characters, detail.items + 2))
        if key == "calls" and isinstance(value, list):
            return _calls(value, excerpt, path, detail.items)
        return excerpt.value(value, path)


def _stdout_share(result: Json) -> float:
    """How many times a text's characters stdout may have, so that it gets about a fifth of what is shown.

    Measured on a rung of its own, so that it is the same whatever the budget.
    """
    excerpt = Excerpt(_USUAL, _USUAL, 0, max_values=5_000, max_chars=20 * _USUAL.characters)
    with suppress(ExcerptTooLargeError):
        excerpt.value(result, ())
    return max(0.5, excerpt.chars / _USUAL.characters / 4)


def _error_part(name: str, value: Json, excerpt: Excerpt, path: Path) -> Json:
    if name == "code":
        return value
    return excerpt.text(value, path, share=4) if isinstance(value, str) else excerpt.value(value, path)


def _notices(notices: list[Json], excerpt: Excerpt, path: Path, limit: int) -> list[Json]:
    if len(notices) > limit:
        excerpt.cut(path, "items", limit, len(notices))
    inside: Path = (path, None)
    return [excerpt.text(str(notice), inside, share=4) for notice in notices[:limit]]


def _calls(calls: list[Json], excerpt: Excerpt, path: Path, rows: int) -> list[Json]:
    shown = summarised(calls, rows)
    if shown is not calls:
        excerpt.cut(path, "rows", 0, len(calls))
    inside: Path = (path, None)
    return [excerpt.value(call, inside, depth=-_ROW_LEVELS) for call in shown]
