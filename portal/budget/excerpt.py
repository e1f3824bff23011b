"""A part of a JSON value that keeps its structure: texts shortened, tails of lists and objects left out, and marked."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from manifests.json_value import Json
from portal.budget.cuts import Cut, Kind, Path

MAX_DEPTH = 64
"""Levels of nesting ever shown; JSON readers, MCP's own among them, give up somewhere between 100 and 1,000."""

_SLACK_CHARS = 32
"""A text that is only this much too long is kept: the words that say what is missing would be as long."""

_MIN_KEY_CHARS = 64
"""Keys carry the structure: they are never shortened more."""

_TOO_LONG = 10**4_300
"""Of such integers Python refuses to write the digits."""


@dataclass(frozen=True)
class Detail:
    """How much is shown: characters of a text, items of a list, keys of an object, levels of nesting."""

    characters: int
    items: int
    keys: int
    depth: int
    notices: int
    """How many cuts are told one by one."""


def _detail(characters: int) -> Detail:
    # A text is worth its characters, a list's item sixteen of them, a key one: texts are cut before items are left
    # out, and keys are left out last. The least detail shows no more of a value than how large it is.
    return Detail(
        characters=characters,
        items=characters // 16,
        keys=max(8, characters),
        depth=min(MAX_DEPTH, characters // 4),
        notices=min(6, characters // 32),
    )


def _details() -> tuple[Detail, ...]:
    characters = [0, 4, 8]
    while characters[-1] < 1 << 24:
        characters.append(characters[-1] + max(1, characters[-1] // 40))
    return tuple(map(_detail, characters))


EVERYTHING = Detail(1 << 62, 1 << 62, 1 << 62, MAX_DEPTH, notices=6)

DETAILS = (*_details(), EVERYTHING)
"""From next to nothing up, in steps of a fortieth. Each shows all that the one before shows, and more."""


class ExcerptTooLargeError(Exception):
    """The excerpt outgrew the size it was allowed."""


class Excerpt:
    """Makes excerpts in one detail and remembers what it left out.

    Raises:
        ExcerptTooLargeError: From any method, as soon as it has met or written more than it may. So an excerpt
            never costs more than its allowance, however large the value is.
    """

    def __init__(self, detail: Detail, *, max_values: int, max_chars: int) -> None:
        self._detail = detail
        self._left_values = max_values
        self._max_chars = max_chars
        self._cuts: dict[tuple[Path, Kind], Cut] = {}
        self.chars = 0
        """About how many characters of JSON it has made."""

    @property
    def cuts(self) -> Sequence[Cut]:
        return list(self._cuts.values())

    def value(self, value: Json, path: Path, depth: int = 0) -> Json:
        self._left_values -= 1
        if self._left_values < 0:
            raise ExcerptTooLargeError
        if not value:
            self._spend(5)
            return value
        if isinstance(value, str):
            return self.text(value, path)
        if isinstance(value, dict):
            return self._object(value, path, depth)
        if isinstance(value, list):
            return self._list(value, path, depth)
        if isinstance(value, int):
            return self._integer(value, path)
        self._spend(8)
        return value

    def text(self, value: str, path: Path, share: float = 1) -> str:
        """`share` is how many times the characters of other texts it may have."""
        characters = int(self._detail.characters * share)
        left = len(value) - characters
        if left <= min(characters, _SLACK_CHARS):
            self._spend(len(value) + 3)
            return value if value.isascii() else self._unicode(value, path)
        self._spend(characters + _SLACK_CHARS)
        self.cut(path, "text", characters, len(value))
        return f"{self._unicode(value[:characters], path)}… [{left:,} more character{'s' * (left > 1)}]"

    def cut(self, path: Path, kind: Kind, kept: int, total: int) -> None:
        self._cuts.setdefault((path, kind), Cut(path, kind)).add(kept, total)

    def _spend(self, chars: int) -> None:
        self.chars += chars
        if self.chars > self._max_chars:
            raise ExcerptTooLargeError

    def _unicode(self, value: str, path: Path) -> str:
        """The text without lone surrogates, which no encoding of Unicode can carry."""
        try:
            value.encode()
        except UnicodeEncodeError:
            self.cut(path, "characters", 0, 0)
            return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return value

    def _integer(self, value: int, path: Path) -> Json:
        digits = value.bit_length() * 3 // 10
        if digits <= max(self._detail.characters, _SLACK_CHARS) and abs(value) < _TOO_LONG:
            self._spend(digits + 2)
            return value
        self._spend(_SLACK_CHARS)
        self.cut(path, "number", 0, digits)
        return f"… [an integer of about {digits:,} digits]"

    def _list(self, value: list[Json], path: Path, depth: int) -> Json:
        if depth >= self._detail.depth:
            return self._too_deep(f"{len(value):,} items", path)
        self._spend(2)
        inside: Path = (path, None)
        kept = len(value) if len(value) <= self._detail.items + 1 else self._detail.items
        items = [self.value(item, inside, depth + 1) for item in islice(value, kept)]
        if kept < len(value):
            self.cut(path, "items", kept, len(value))
            items.append(f"… {len(value) - kept:,} more items left out")
        return items

    def _object(self, value: dict[str, Json], path: Path, depth: int) -> Json:
        if depth >= self._detail.depth:
            return self._too_deep(f"{len(value):,} keys", path)
        self._spend(2)
        kept = len(value) if len(value) <= self._detail.keys + 1 else self._detail.keys
        shown: dict[str, Json] = {}
        for key in islice(value, kept):
            inside: Path = (path, key)
            short = _short_key(key, max(_MIN_KEY_CHARS, self._detail.characters))
            name = self._unicode(short, inside)
            if name in shown:
                continue  # it differs from that one only in what is not shown
            if short != key:
                self.cut(inside, "key", len(short), len(key))
            self._spend(len(name) + 3)
            shown[name] = self.value(value[key], inside, depth + 1)
        if len(shown) < len(value):
            self.cut(path, "keys", len(shown), len(value))
            shown.setdefault(f"… {len(value) - len(shown):,} more keys left out", None)
        return shown

    def _too_deep(self, size: str, path: Path) -> str:
        self._spend(_SLACK_CHARS)
        self.cut(path, "depth", 0, 1)
        return f"… [{size}, too deep to show]"


def _short_key(key: str, characters: int) -> str:
    """Its beginning and its end, which is where addresses and paths differ."""
    left = len(key) - characters
    if left <= min(characters, _SLACK_CHARS):
        return key
    end = characters // 2
    return f"{key[: characters - end]}… [{left:,} characters] …{key[-end:]}"
