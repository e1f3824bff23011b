"""Makes the answer of `execute_code` fit the tokens its reader can afford."""

from bisect import bisect_left
from itertools import islice
from typing import Final

from manifests.json_value import Json
from portal.budget.tokens import compact, is_within
from portal.ledger import summarised

Answer = dict[str, Json]

MAX_DEPTH: Final = 64
"""Levels of nesting ever shown; JSON readers, MCP's own among them, give up somewhere between 100 and 1,000."""

_FEW_VALUES: Final = 200
_SLACK_CHARS: Final = 32
"""A text that is only this much too long is kept: the words that say what is missing would be as long."""

_TOO_LONG: Final = 10**4_300
"""Of such integers Python refuses to write the digits."""

_ROW_LEVELS: Final = 3
"""Of a row of the ledger, always shown."""

_UNTOUCHED: Final = ("status", "run_id", "session")
_SHARES: Final = {"stdout": 1.4, "error": 4, "notices": 4}
"""How many times the characters of other texts these may have."""

_SIZES: Final = (0, 4, *(int(8 * 1.025**step) for step in range(590)))
_EVERYTHING: Final = 1 << 62


def fit(answer: Answer, max_tokens: int) -> Answer:
    """The answer in at most `max_tokens` tokens (o200k_base, compact JSON).

    Structure stays: texts are shortened, tails of lists and objects left out, each marked in place; the ledger is
    summarised, and one of the answer's `notices` says so. `status`, `run_id`, `session` and the error's code stay as
    they are. A larger budget never shows less of the result. From 200 tokens on the budget holds; below, the answer is
    as small as it gets.

    An answer of at most `max_tokens` bytes costs no counting, a large one as much as the part that is shown.
    """
    if _is_small(answer, max_tokens):
        return answer

    def shown(size: int) -> Answer | None:
        fitted = _shown(answer, size, max_tokens)
        return fitted if fitted is not None and is_within(compact(fitted), max_tokens) else None

    # Of a fixed range: a larger budget takes the same turns or ends further on.
    too_large = bisect_left(_SIZES, True, key=lambda size: shown(size) is None)
    fitted = shown(_EVERYTHING) or _shown(answer, _SIZES[max(0, too_large - 1)], max_tokens)
    assert fitted is not None, "the least size has room for anything"
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


def _shown(answer: Answer, size: int, max_tokens: int) -> Answer | None:
    """The answer in one size, and what was cut of it; None if it outgrew what could fit."""
    excerpt = _Excerpt(size, max_tokens)
    cut: list[str] = []
    shown: Answer = {}
    for key, value in answer.items():
        excerpt.is_cut = False
        try:
            shown[key] = value if key in _UNTOUCHED else _part(key, value, excerpt)
        except _TooLargeError:
            return None
        cut += [key] if excerpt.is_cut else []
    if cut:
        # No commas in the number: a larger one must not take more tokens than it gives.
        advice = (
            f"Cut to fit {max_tokens} tokens and JSON: {', '.join(cut)}. To see more, filter in the script and return "
            "less, or raise server.output_tokens."
        )
        shown["notices"] = [*shown.get("notices", ()), advice]
    return shown


def _part(key: str, value: Json, excerpt: "_Excerpt") -> Json:
    share = _SHARES.get(key, 1)
    if key == "calls":
        rows = summarised(value, excerpt.items)
        excerpt.is_cut = rows is not value
        return [excerpt.value(row, depth=-_ROW_LEVELS) for row in rows]
    if key == "notices":
        limit = min(excerpt.characters, excerpt.items + 2)
        excerpt.is_cut = len(value) > limit
        return [excerpt.text(str(notice), share) for notice in value[:limit]]
    if isinstance(value, str):
        return excerpt.text(value, share)
    if key == "error" and value is not None:
        return {
            name: excerpt.text(part, share) if isinstance(part, str) and name != "code" else part
            for name, part in value.items()
        }
    return excerpt.value(value)


class _TooLargeError(Exception):
    """The excerpt outgrew what could fit."""


class _Excerpt:
    """Makes excerpts of one size, the characters of a text.

    A list's item is worth sixteen characters, an object's key one: texts are cut before items are left out, and keys
    are left out last. An excerpt never costs more than a reader could be shown, however large the value is.

    Raises:
        _TooLargeError: From any method, as soon as it has met or written more than that: answers with more of
            either per token are rules of dashes, and lists of empty lists.
    """

    def __init__(self, size: int, max_tokens: int) -> None:
        self.characters = size
        self.items = size // 16
        self._keys = max(8, size)
        self._depth = min(MAX_DEPTH, size // 4)
        self._left_values = 100 + int(max_tokens * 1.25)
        self._left_characters = 1_000 + max_tokens * 16
        self.is_cut = False

    def value(self, value: Json, depth: int = 0) -> Json:
        self._left_values -= 1
        if self._left_values < 0:
            raise _TooLargeError
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list | dict) and value:
            if depth >= self._depth:
                return self._mark(
                    f"… [{len(value):,} {'items' if isinstance(value, list) else 'keys'}, too deep]"
                )
            return self._list(value, depth) if isinstance(value, list) else self._object(value, depth)
        if isinstance(value, int):
            digits = value.bit_length() * 3 // 10
            if digits > max(self.characters, _SLACK_CHARS) or abs(value) >= _TOO_LONG:
                return self._mark(f"… [an integer of about {digits:,} digits]")
            self._spend(digits)
        self._spend(8)
        return value

    def text(self, value: str, share: float = 1) -> str:
        """`share` is how many times the characters of other texts it may have."""
        characters = int(self.characters * share)
        left = len(value) - characters
        if left <= min(characters, _SLACK_CHARS):
            self._spend(len(value) + 3)
            return self._unicode(value)
        self._spend(characters)
        return self._unicode(value[:characters]) + self._mark(
            f"… [{left:,} more character{'s' * (left > 1)}]"
        )

    def _mark(self, text: str) -> str:
        self._spend(_SLACK_CHARS)
        self.is_cut = True
        return text

    def _spend(self, characters: int) -> None:
        self._left_characters -= characters
        if self._left_characters < 0:
            raise _TooLargeError

    def _unicode(self, value: str) -> str:
        """The text without lone surrogates, which no encoding of Unicode can carry."""
        try:
            value.encode()
        except UnicodeEncodeError:
            self.is_cut = True
            return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return value

    def _list(self, value: list[Json], depth: int) -> list[Json]:
        kept = len(value) if len(value) <= self.items + 1 else self.items
        items = [self.value(item, depth + 1) for item in islice(value, kept)]
        if kept < len(value):
            items.append(self._mark(f"… {len(value) - kept:,} more items left out"))
        return items

    def _object(self, value: dict[str, Json], depth: int) -> dict[str, Json]:
        kept = len(value) if len(value) <= self._keys + 1 else self._keys
        shown: dict[str, Json] = {}
        for key in islice(value, kept):
            name = self._unicode(self._short_key(key))
            if name not in shown:  # else it differs from that one only in what is not shown
                self._spend(len(name) + 3)
                shown[name] = self.value(value[key], depth + 1)
        if left := len(value) - len(shown):
            shown.setdefault(self._mark(f"… {left:,} more keys left out"), None)
        return shown

    def _short_key(self, key: str) -> str:
        """Its beginning and its end, which is where addresses and paths differ."""
        characters = max(2 * _SLACK_CHARS, self.characters)
        left = len(key) - characters
        if left <= _SLACK_CHARS:
            return key
        half = characters // 2
        return f"{key[: characters - half]}{self._mark(f'… [{left:,} characters] …')}{key[-half:]}"
