"""How a secret may be written in text for people: as it is, in JSON of any writer, in Python, or in a URL."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from itertools import accumulate
from math import inf, log2
from types import MappingProxyType
from typing import Final, TypeAlias

from upstreams.json_spelling import SHORTS, any_case
from upstreams.passages import Place

# Text in JSON in JSON in JSON has seven before a quotation mark; so does what a shell or Java writes so.
_MOST_BACKSLASHES: Final = 7
_LONGEST_WAY: Final = _MOST_BACKSLASHES + len(r"ud83d\\\\udd11")

_HEAD: Final = 128
"""What spells so many of a secret's first characters is hidden as far as it goes on like it. Only these are one
pattern: compiling takes milliseconds for each thousand.
"""

_PATIENCE: Final = 100_000
"""So many characters of a text, or four times as many as it has, are looked at in the rest of one secret. Only those
like "====" take more; of what then begins within itself, the last may be overlooked.
"""

# No usual writer spells letters, digits and these otherwise. A tilde is %7E to Node and Java, and in Azure's secrets.
_PLAIN: Final = re.compile("[A-Za-z0-9_.-]{1,64}")
# "%25" is a percent sign or three characters. Which of them, is known behind the last "25".
_PARTS: Final = re.compile(rf"{_PLAIN.pattern}|\\*%(?:25)*|\\*[^\\A-Za-z0-9_.-]|\\+")


_GRAM: Final = 4
_MANY: Final = 100
"""Of more secrets than that only those are looked for of which the text has the end of the core."""

_TELLING: Final = 8
"""A longer core is no rarer in texts."""

_CHARACTERS_OF_WORK: Final = 16
"""A search looks at so many in a tenth of a microsecond or ten."""

_SPELLED: Final = re.compile("%[c-fC-F][0-9a-fA-F]|[uU][0-9a-fA-F]{4}")
"""How else a character beyond Latin-1 may be written."""

_Head: TypeAlias = tuple[int, int, int]
"""Where what spells the first characters of a secret begins and ends, and from where on to look for the next."""

_ALONE: Final[Mapping[str, int]] = MappingProxyType({})


class Spelling:
    """All the ways in which one secret may be written."""

    def __init__(self, secret: str, shared: Mapping[str, int] = _ALONE) -> None:
        """`shared` says how many secrets have a core that this one might have, too; see `spellings_of`."""
        self._first, self._rest = _head_and_rest(secret)
        self.core = max(
            _cores(self._first),
            key=lambda core: (min(len(core), _TELLING) - 2 * log2(shared.get(core, 1)), len(core)),
            default="",
        )
        """Each of its spellings has this in it. Lines of one secret are often alike, and each is looked for wherever
        its core is, so that should be what the others do not have."""

        self.foreign = frozenset(each for each in "".join(self._first) if each > "\xff")
        """A text without these has none of its spellings, but where `_SPELLED` has a match."""

        at = self._first.index(self.core) if self.core else 0
        self._parts_before, self._parts_behind = self._first[:at], self._first[at + 1 :]
        self._longest_before = _longest("".join(self._parts_before))
        self._longest_edge = _longest("".join(self._parts_before[-1:]))
        self.longest_head = _longest("".join(self._first))
        self.longest = _longest(secret)

    def places(self, text: str, end: int, last: int, work: "_Work") -> Iterator[Place]:
        """Where it stands before `end`, if it begins before `last`. These overlap where it does so with itself."""
        heads = self._heads if self.core else self._heads_without_core
        at = looked_at = 0
        near_end = min(end, last + self.longest_head)
        while head := next(heads(text, at, near_end, work), None):
            start, head_stop, at = head
            if start >= last:
                continue
            stop, _ = _along(self._rest, text, head_stop, end, work)
            yield start, stop
            looked_at += stop - start
            if looked_at >= max(_PATIENCE, 4 * end):
                at = max(at, stop - _HEAD)

    def _heads(self, text: str, at: int, end: int, work: "_Work") -> Iterator[_Head]:
        # What follows the core comes first, and without a pattern of its own: most that has the core goes on otherwise.
        while (core := text.find(self.core, at, end)) >= 0:
            at = core + 1
            stop, is_whole = _along(self._parts_behind, text, core + len(self.core), end, work)
            if not is_whole or not self._edge.search(text, max(0, core - self._longest_edge), core):
                continue
            work.spend(self._longest_before // _CHARACTERS_OF_WORK)
            if found := self._before.search(text, max(0, core - self._longest_before), core):
                yield found.start(), stop, at

    def _heads_without_core(self, text: str, at: int, end: int, work: "_Work") -> Iterator[_Head]:
        while at < end:
            # No further than that takes: a search for what begins in many ways is slow.
            near = at + self.longest_head
            found = self._head.search(text, at, min(end, near + self.longest_head))
            work.spend(1 + ((found.end() if found else near) - at) // _CHARACTERS_OF_WORK)
            if found and found.start() <= near:
                at = found.start() + 1
                yield found.start(), found.end(), at
            else:
                at = near

    @cached_property
    def _before(self) -> re.Pattern[str]:
        # Only when a text has its core, and what follows: most never do.
        return _joined("".join(map(_pattern, self._parts_before)) + r"\Z")

    @cached_property
    def _edge(self) -> re.Pattern[str]:
        """The end of that, which is soon found to be another."""
        return _joined("".join(map(_pattern, self._parts_before[-1:])) + r"\Z")

    @cached_property
    def _head(self) -> re.Pattern[str]:
        return _joined("".join(map(_pattern, self._first)))


def spellings_of(secrets: Iterable[str]) -> dict[str, Spelling]:
    """Of each secret, in the knowledge of the others."""
    each_once = dict.fromkeys(secrets)
    shared = Counter(core for secret in each_once for core in set(_cores(_head_and_rest(secret)[0])))
    return {secret: Spelling(secret, shared) for secret in each_once}


class Spellings:
    """Those of many secrets. A text costs what it is long, and a little for each secret of which it has the core."""

    def __init__(
        self, spellings: Iterable[Spelling], is_place: Callable[[str, int, int], bool] | None = None
    ) -> None:
        """`is_place` says of a text, and where one of them stands there, whether it counts; None is always."""
        self._all = [*spellings]
        self._is_place = is_place
        self._by_gram: dict[str, list[Spelling]] = {}
        for each in self._all:
            self._by_gram.setdefault(each.core[-_GRAM:], []).append(each)
        self._short = [gram for gram in self._by_gram if len(gram) < _GRAM]
        self._longest_head = max((each.longest_head for each in self._all), default=0)
        self.longest = max((each.longest for each in self._all), default=0)

    def places(self, text: str, last: int | None = None, most_work: float = inf) -> list[Place]:
        """Where any of them stands that begins before `last`: in order, those that overlap as one. A text in which that
        takes more work, of about a microsecond each, is one place from its beginning to its end."""
        last = len(text) if last is None else last
        end = min(len(text), last + self.longest)
        near = text[: last + self._longest_head]
        likely = [each for each in self._likely(near) if each.core in near]
        if any(each.foreign for each in likely) and not _SPELLED.search(near):
            characters = set(near)
            likely = [each for each in likely if each.foreign <= characters]
        work = _Work(most_work)
        try:
            return as_one(
                place
                for each in likely
                for place in each.places(text, end, last, work)
                if self._is_place is None or self._is_place(text, *place)
            )
        except _TooMuchWorkError:
            return [(0, end)]

    def _likely(self, text: str) -> Iterable[Spelling]:
        """Those whose core may be in the text."""
        if len(self._all) <= _MANY:
            return self._all
        grams = {text[at : at + _GRAM] for at in range(len(text) - _GRAM + 1)}
        likely = [*self._short, *(self._by_gram.keys() & grams)]
        return (each for gram in likely for each in self._by_gram[gram])


def as_one(places: Iterable[Place]) -> list[Place]:
    """In order, those that overlap as one."""
    found: list[Place] = []
    for start, stop in sorted(places):
        if found and start < found[-1][1]:
            found[-1] = found[-1][0], max(stop, found[-1][1])
        else:
            found.append((start, stop))
    return found


class _TooMuchWorkError(Exception):
    """There is more to look at than is looked at."""


class _Work:
    def __init__(self, most: float) -> None:
        self._left = most

    def spend(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise _TooMuchWorkError


def _head_and_rest(secret: str) -> tuple[list[str], list[str]]:
    parts: list[str] = _PARTS.findall(secret)
    ends = accumulate(map(len, parts))
    in_head = next((number for number, end in enumerate(ends, 1) if end >= _HEAD), len(parts))
    return parts[:in_head], parts[in_head:]


def _cores(head: Iterable[str]) -> list[str]:
    return [part for part in head if _PLAIN.match(part)]


def _along(parts: Iterable[str], text: str, at: int, end: int, work: "_Work") -> tuple[int, bool]:
    """How far the text goes on like these parts, and whether it does so to their end."""
    work.spend(1)
    for part in parts:
        work.spend(1)
        if _PLAIN.match(part):
            if not text.startswith(part, at, end):
                return at, False
            at += len(part)
        elif found := _compiled(part).match(text, at, end):
            at = found.end()
        else:
            return at, False
    return at, True


def _longest(text: str) -> int:
    """Of its spellings; or a little more."""
    return len(text) + (_LONGEST_WAY + len("%5C")) * len(_PLAIN.sub("", text))


@lru_cache(maxsize=1024)
def _joined(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


@lru_cache(maxsize=1024)
def _compiled(part: str) -> re.Pattern[str]:
    return re.compile(_pattern(part))


@lru_cache(maxsize=1024)
def _pattern(part: str) -> str:
    """It matches in one way only, as in `upstreams.masking`."""
    if _PLAIN.match(part):
        return re.escape(part)
    # A run of backslashes goes with those of the escape behind it: nothing tells them apart.
    behind = part.lstrip("\\")
    character, rest = behind[:1], behind[1:]
    run = len(part) - len(behind)
    most = _MOST_BACKSLASHES * (run + bool(character))
    start = rf"(?:\\{{{run}}}|(?:%5[cC]){{{run}}})" if run else ""
    ways = f"(?:{_ways(character)})" if character else ""
    return rf"{start}\\{{0,{most}}}+{ways}{rest}"


def _ways(character: str) -> str:
    # A space is a plus in a form. What stands for a percent sign begins with one, so it comes first.
    ways = [
        any_case("".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))),
        re.escape(character),
        _unit(character),
    ]
    if character in SHORTS:
        ways.append(re.escape(SHORTS[character]))
    if character < "\u0100":
        ways.append(any_case(f"x{ord(character):02x}"))
    if character > "\uffff":
        ways.append(any_case(f"U{ord(character):08x}"))
    if character == " ":
        ways += [r"\+", _unit("+")]
    return "|".join(dict.fromkeys(ways))


def _unit(character: str) -> str:
    units = re.findall("....", character.encode("utf-16-be", "surrogatepass").hex())
    return r"\\{1,4}+".join(f"u{any_case(unit)}" for unit in units)
