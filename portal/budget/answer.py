"""Makes the answer of `execute_code` fit the tokens its reader can afford."""

import json
from collections.abc import Callable

from manifests.json_value import Json
from portal.budget.detail import EVERYTHING, LADDER, MAX_DEPTH
from portal.budget.tokens import is_within
from portal.budget.view import Answer, View, Viewer

_FEW_VALUES = 200
_MANY_VALUES = 1 << 22
_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


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
    viewer = Viewer(answer, max_tokens)
    view = viewer.view(EVERYTHING)
    if not _fits(view, max_tokens):
        view = _largest(viewer, max_tokens)
    assert view.answer is not None, "the first rung has room for anything"
    return view.answer, view.notices


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
        text = _COMPACT.encode(answer)
        is_short = len(text) <= max_tokens and len(text.encode()) <= max_tokens
    except (RecursionError, ValueError):  # nested too deep, an integer of too many digits, a lone surrogate
        return False
    return is_short and text.count("[") + text.count("{") <= MAX_DEPTH


def _largest(viewer: Viewer, max_tokens: int) -> View:
    """The largest view that fits.

    All views are in one order, rung by rung and within a rung value by value, and each contains those before it.
    The search halves a fixed range of them, so that a larger budget takes the same turns or ends further on.
    """
    rung = _last(len(LADDER) - 1, lambda number: _fits(viewer.view(LADDER[number]), max_tokens))
    less, more = LADDER[rung], LADDER[rung + 1]
    values = viewer.view(more).values

    def is_affordable(ahead: int) -> bool:
        return ahead < values and _fits(viewer.view(less, more, ahead), max_tokens)

    return viewer.view(less, more, _last(_MANY_VALUES, is_affordable, coarseness=16))


def _fits(view: View, max_tokens: int) -> bool:
    return view.answer is not None and is_within(_COMPACT.encode(view.answer), max_tokens)


def _last(end: int, holds: Callable[[int], bool], coarseness: int | None = None) -> int:
    """A number below `end` for which it holds, 0 if it holds for no other, found by halving.

    With a coarseness of n, the number may be short of the last one by one nth.
    """
    low = 0
    while end - low > 1 + (low // coarseness if coarseness else 0):
        middle = (low + end) // 2
        if holds(middle):
            low = middle
        else:
            end = middle
    return low
