"""A part of a JSON value that has its structure: texts shortened, tails of lists and objects left out, and marked."""

from collections.abc import Sequence
from itertools import islice

from manifests.json_value import Json
from portal.budget.cut import Cut, Kind, Path
from portal.budget.detail import Detail

_SLACK_CHARS = 32
"""A text that is only this much too long is kept: the words that say what is missing would be as long."""

_MIN_KEY_CHARS = 64
"""Keys carry the structure: no rung shortens them more."""

_TOO_LONG = 10**4_300
"""Of such integers Python refuses to write the digits."""


class ExcerptTooLargeError(Exception):
    """The excerpt outgrew the size it was allowed."""


class Excerpt:
    """Makes excerpts and remembers what it left out.

    The first `ahead` values it meets, in reading order, are shown in the detail `more`, all others in `less`.

    Raises:
        ExcerptTooLargeError: From any method, as soon as it has met or written more than it may. So an excerpt
            never costs more than its allowance, however large the value is.
    """

    def __init__(self, less: Detail, more: Detail, ahead: int, *, max_values: int, max_chars: int) -> None:
        self._less = less
        self._more = more
        self._ahead = ahead
        self._max_values = max_values
        self._max_chars = max_chars
        self._cuts: dict[tuple[Path, Kind], Cut] = {}
        self.values = 0
        """How many values it has met."""
        self.chars = 0
        """About how many characters of JSON it has made of them."""

    @property
    def cuts(self) -> Sequence[Cut]:
        return list(self._cuts.values())

    def value(self, value: Json, path: Path, depth: int = 0) -> Json:
        detail = self._next_detail()
        if not value:
            self._spend(5)
            return value
        if isinstance(value, str):
            return self._text(value, path, detail.characters)
        if isinstance(value, dict):
            return self._object(value, path, depth, detail)
        if isinstance(value, list):
            return self._list(value, path, depth, detail)
        if isinstance(value, int):
            return self._integer(value, path, detail.characters)
        self._spend(8)
        return value

    def text(self, value: str, path: Path, share: float) -> str:
        """A text that may have a share of the characters that others may have."""
        return self._text(value, path, int(self._next_detail().characters * share))

    def cut(self, path: Path, kind: Kind, kept: int, total: int) -> None:
        self._cuts.setdefault((path, kind), Cut(path, kind)).add(kept, total)

    def _next_detail(self) -> Detail:
        self.values = met = self.values + 1
        if met > self._max_values:
            raise ExcerptTooLargeError
        return self._more if met <= self._ahead else self._less

    def _spend(self, chars: int) -> None:
        self.chars += chars
        if self.chars > self._max_chars:
            raise ExcerptTooLargeError

    def _text(self, value: str, path: Path, characters: int) -> str:
        left = len(value) - characters
        if left <= min(characters, _SLACK_CHARS):
            self._spend(len(value) + 3)
            return value if value.isascii() else self._unicode(value, path)
        self._spend(characters + _SLACK_CHARS)
        self.cut(path, "text", characters, len(value))
        return f"{self._unicode(value[:characters], path)}… [{left:,} more character{'s' * (left > 1)}]"

    def _unicode(self, value: str, path: Path) -> str:
        """The text without lone surrogates, which no encoding of Unicode can carry."""
        try:
            value.encode()
        except UnicodeEncodeError:
            self.cut(path, "characters", 0, 0)
            return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return value

    def _integer(self, value: int, path: Path, characters: int) -> Json:
        digits = value.bit_length() * 3 // 10
        if digits <= max(characters, _SLACK_CHARS) and abs(value) < _TOO_LONG:
            self._spend(digits + 2)
            return value
        self._spend(_SLACK_CHARS)
        self.cut(path, "number", 0, digits)
        return f"… [an integer of about {digits:,} digits]"

    def _list(self, value: list[Json], path: Path, depth: int, detail: Detail) -> Json:
        if depth >= detail.depth:
            return self._too_deep(f"{len(value):,} items", path)
        self._spend(2)
        inside: Path = (path, None)
        kept = len(value) if len(value) <= detail.items + 1 else detail.items
        items = [self.value(item, inside, depth + 1) for item in islice(value, kept)]
        if kept < len(value):
            self.cut(path, "items", kept, len(value))
            items.append(f"… {len(value) - kept:,} more items left out")
        return items

    def _object(self, value: dict[str, Json], path: Path, depth: int, detail: Detail) -> Json:
        if depth >= detail.depth:
            return self._too_deep(f"{len(value):,} keys", path)
        self._spend(2)
        kept = len(value) if len(value) <= detail.keys + 1 else detail.keys
        shown: dict[str, Json] = {}
        for key in islice(value, kept):
            inside: Path = (path, key)
            short = _short_key(key, max(_MIN_KEY_CHARS, detail.characters))
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
