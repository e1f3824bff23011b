"""Truncates the answer of `execute_code` to a token budget."""

from bisect import bisect_left
from itertools import islice
from typing import Final

from manifests.json_value import Json
from portal.budget.tokens import compact, is_within
from portal.ledger import summarised

Answer = dict[str, Json]

MAX_DEPTH: Final = 64
"""Levels of nesting shown. JSON parsers, including that of the MCP SDK, fail between 100 and 1,000 levels."""

_FEW_VALUES: Final = 200
_SLACK_CHARS: Final = 32
"""A text is kept if it is too long by no more than this: the mark would be as long."""

_TOO_LONG: Final = 10**4_300
"""Python refuses to format larger integers."""

_ROW_LEVELS: Final = 3
"""Levels of a ledger row that are always shown."""

_UNTOUCHED: Final = ("status", "run_id", "session")
_SHARES: Final = {"stdout": 1.4, "error": 4, "notices": 4}
"""Factors by which these texts may be longer than others."""

_SIZES: Final = (0, 4, *(int(8 * 1.025**step) for step in range(590)))
_EVERYTHING: Final = 1 << 62


def truncate(answer: Answer, max_tokens: int) -> Answer:
    """Truncate the answer to `max_tokens` tokens (o200k_base, compact JSON).

    The structure stays. Texts are shortened, ends of lists and objects dropped, and each cut is marked in place. The
    ledger is summarised. One of `notices` says what was cut. `status`, `run_id`, `session` and the error's code do not
    change. A larger budget never shows less of the result. The budget holds from 200 tokens on; below, the answer is
    as small as possible.

    An answer of at most `max_tokens` bytes needs no counting. A large one costs as much as the part that is shown.
    """
    if _is_small(answer, max_tokens):
        return answer

    def shown(size: int) -> Answer | None:
        truncated = _shown(answer, size, max_tokens)
        return truncated if truncated is not None and is_within(compact(truncated), max_tokens) else None

    # The sizes are fixed, so a larger budget never chooses a smaller size.
    too_large = bisect_left(_SIZES, True, key=lambda size: shown(size) is None)
    truncated = shown(_EVERYTHING) or _shown(answer, _SIZES[max(0, too_large - 1)], max_tokens)
    assert truncated is not None, "the smallest size fits any answer"
    return truncated


def _is_small(answer: Answer, max_tokens: int) -> bool:
    """Whether the answer is certainly small enough, without counting. Most are."""
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
    """The answer in one size, with a notice of what was cut. None if it is too large."""
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
        # No commas in the number: a larger budget must not cost more tokens than it adds.
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
    """The excerpt exceeds the budget."""


class _Excerpt:
    """Makes excerpts of one size: the characters per text.

    A list item counts as sixteen characters, an object key as one. So texts are cut first, then items, then keys. The
    cost depends on the budget, not on the size of the value.

    Raises:
        _TooLargeError: Any method raises it once it has read or written more than the budget can hold. Only lines of
            dashes and lists of empty lists have more values or characters per token.
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
        """`share` is the factor by which the text may be longer than others."""
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
        """Replace lone surrogates, which no Unicode encoding can represent."""
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
            if name not in shown:  # two long keys may look equal when shortened
                self._spend(len(name) + 3)
                shown[name] = self.value(value[key], depth + 1)
        if left := len(value) - len(shown):
            shown.setdefault(self._mark(f"… {left:,} more keys left out"), None)
        return shown

    def _short_key(self, key: str) -> str:
        """Its beginning and its end, where URLs and paths differ."""
        characters = max(2 * _SLACK_CHARS, self.characters)
        left = len(key) - characters
        if left <= _SLACK_CHARS:
            return key
        half = characters // 2
        return f"{key[: characters - half]}{self._mark(f'… [{left:,} characters] …')}{key[-half:]}"
