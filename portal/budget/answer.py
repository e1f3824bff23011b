"""Makes the answer of `execute_code` fit the tokens its reader can afford."""

from manifests.json_value import Json
from portal.budget.cuts import Path, advice, sentences
from portal.budget.excerpt import DETAILS, EVERYTHING, MAX_DEPTH, Detail, Excerpt, ExcerptTooLargeError
from portal.budget.tokens import compact, is_within
from portal.ledger import summarised

Answer = dict[str, Json]

_FEW_VALUES = 200

# Answers with more of either per token are cut unasked: they are rules of dashes and lists of empty lists.
_MAX_CHARS_PER_TOKEN = 16
_MAX_VALUES_PER_TOKEN = 1.25

_STDOUT_SHARE = 1.4
"""How many times the characters of another text stdout may have."""

_ROW_LEVELS = 3
"""Of a row of the ledger, shown in any detail."""

_UNTOUCHED = ("status", "run_id", "session")


def fit(answer: Answer, max_tokens: int) -> tuple[Answer, list[str]]:
    """The answer in at most `max_tokens` tokens (o200k_base, compact JSON), and sentences on what was left out.

    The sentences stand in the answer's `notices` too. Structure stays: texts are shortened, tails of lists and
    objects left out, each marked in place; the ledger is summarised. Error and notices are shortened last;
    `status`, `run_id` and `session` never. A larger budget never shows less of the result. From 200 tokens on the
    budget holds; below, the answer is as small as it gets.

    An answer of at most `max_tokens` bytes costs no counting, a large one as much as the part that is shown.
    """
    if _is_small(answer, max_tokens):
        return answer, []
    # Halving a fixed range: a larger budget takes the same turns or ends further on.
    low, high = 0, len(DETAILS)
    while high - low > 1:
        middle = (low + high) // 2
        fitted = _shown(answer, DETAILS[middle], max_tokens)
        low, high = (middle, high) if _fits(fitted, max_tokens) else (low, middle)
    fitted = _shown(answer, EVERYTHING, max_tokens)
    if not _fits(fitted, max_tokens):
        fitted = _shown(answer, DETAILS[low], max_tokens)
    assert fitted is not None, "the least detail has room for anything"
    return fitted


def _is_small(answer: Answer, max_tokens: int) -> bool:
    """Whether the answer is so small and plain that nothing has to be counted: most are."""
    waiting: list[Json] = [answer]
    for value in waiting:
        if isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
        elif isinstance(value, str) and len(value) > max_tokens:
            return False
        if len(waiting) > _FEW_VALUES:
            return False
    try:
        text = compact(answer)
        is_short = len(text) <= max_tokens and len(text.encode()) <= max_tokens
    except (RecursionError, ValueError):  # nested too deep, an integer of too many digits, a lone surrogate
        return False
    return is_short and text.count("[") + text.count("{") <= MAX_DEPTH


def _fits(fitted: tuple[Answer, list[str]] | None, max_tokens: int) -> bool:
    return fitted is not None and is_within(compact(fitted[0]), max_tokens)


def _shown(answer: Answer, detail: Detail, max_tokens: int) -> tuple[Answer, list[str]] | None:
    """The answer in one detail, and what that leaves out; None if it outgrew what could fit."""
    excerpt = Excerpt(
        detail,
        max_values=100 + int(max_tokens * _MAX_VALUES_PER_TOKEN),
        max_chars=1_000 + max_tokens * _MAX_CHARS_PER_TOKEN,
    )
    try:
        shown = {key: _part(key, value, excerpt, detail) for key, value in answer.items()}
    except ExcerptTooLargeError:
        return None
    notices = sentences(excerpt.cuts, detail.notices)
    if excerpt.cuts and detail is not EVERYTHING:
        notices.append(advice(excerpt.cuts, max_tokens))
    if notices:
        shown["notices"] = [*shown.get("notices", ()), *notices]
    return shown, notices


def _part(key: str, value: Json, excerpt: Excerpt, detail: Detail) -> Json:
    path: Path = ((), key)
    if key in _UNTOUCHED:
        return value
    if key == "stdout" and isinstance(value, str):
        return excerpt.text(value, path, share=_STDOUT_SHARE)
    if key == "error" and isinstance(value, dict):
        return {name: _error_part(name, inner, excerpt, (path, name)) for name, inner in value.items()}
    if key == "notices" and isinstance(value, list):
        return _notices(value, excerpt, path, min(detail.characters, detail.items + 2))
    if key == "calls" and isinstance(value, list):
        shown = summarised(value, detail.items)
        if shown is not value:
            excerpt.cut(path, "rows", 0, len(value))
        return [excerpt.value(call, (path, None), depth=-_ROW_LEVELS) for call in shown]
    return excerpt.value(value, path)


def _error_part(name: str, value: Json, excerpt: Excerpt, path: Path) -> Json:
    if name == "code":
        return value
    return excerpt.text(value, path, share=4) if isinstance(value, str) else excerpt.value(value, path)


def _notices(notices: list[Json], excerpt: Excerpt, path: Path, limit: int) -> list[Json]:
    if len(notices) > limit:
        excerpt.cut(path, "items", limit, len(notices))
    return [excerpt.text(str(notice), (path, None), share=4) for notice in notices[:limit]]
