"""How a secret may be written in text for people: as it is, in JSON of any writer, in Python, or in a URL."""

import re
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Final
from urllib.parse import quote

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

# No usual writer spells letters, digits and these otherwise.
_PLAIN: Final = re.compile("[A-Za-z0-9_.~-]{1,64}")
# "%25" is a percent sign or three characters. Which of them, is known behind the last "25".
_PARTS: Final = re.compile(rf"{_PLAIN.pattern}|\\*%(?:25)*|\\*[^\\A-Za-z0-9_.~-]|\\+")


class Spelling:
    """All the ways in which one secret may be written."""

    def __init__(self, secret: str) -> None:
        parts: list[str] = _PARTS.findall(secret)
        ends = accumulate(map(len, parts))
        in_head = next((number for number, end in enumerate(ends, 1) if end >= _HEAD), len(parts))
        self._first, self._rest = parts[:in_head], parts[in_head:]
        self.core = max((part for part in self._first if _PLAIN.match(part)), key=len, default="")
        """Each of its spellings has this in it."""

        before = self._first[: self._first.index(self.core)] if self.core else []
        self._longest_before = _longest("".join(before))
        self._longest_head = _longest("".join(self._first))
        self.longest = _longest(secret)

    def places(self, text: str, end: int) -> Iterator[Place]:
        """Where it stands before `end`. These overlap where it does so with itself."""
        at = looked_at = 0
        while (core := text.find(self.core, at, end)) >= 0:
            # No further than that takes: a search for what begins in many ways is slow.
            near = core + self._longest_head
            far = min(end, near + self._longest_head)
            found = self._head.search(text, max(at, core - self._longest_before), far)
            if not found or found.start() > near:
                at = near
                continue
            start, stop = found.start(), self._end(text, found.end(), end)
            yield start, stop
            looked_at += stop - start
            at = start + 1 if looked_at < max(_PATIENCE, 4 * end) else max(start + 1, stop - _HEAD)

    @cached_property
    def _head(self) -> re.Pattern[str]:
        # Only when a text has its core: most never do.
        return re.compile("".join(map(_pattern, self._first)))

    def _end(self, text: str, at: int, end: int) -> int:
        """Where a text that spells its head up to there is no more like it."""
        for part in self._rest:
            if _PLAIN.match(part):
                if not text.startswith(part, at, end):
                    break
                at += len(part)
            elif found := _compiled(part).match(text, at, end):
                at = found.end()
            else:
                break
        return at


def places_of(spellings: Iterable[Spelling], text: str, end: int) -> list[Place]:
    """Where any of them stands before `end`: in order, those that overlap as one."""
    found: list[Place] = []
    likely = (each for each in spellings if each.core in text)
    for start, stop in sorted(place for each in likely for place in each.places(text, end)):
        if found and start < found[-1][1]:
            found[-1] = found[-1][0], max(stop, found[-1][1])
        else:
            found.append((start, stop))
    return found


def _longest(text: str) -> int:
    """Of its spellings; or a little more."""
    return len(text) + (_LONGEST_WAY + len("%5C")) * len(_PLAIN.sub("", text))


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
        any_case(quote(character, safe="", errors="surrogatepass")),
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
