"""Takes credentials out of whatever an upstream sends, where a script or a stub would have them otherwise.

Some tools show the request, or the environment, that they are in.
"""

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Final, TypeAlias

from upstreams.json_spelling import QUOTE, SHORT_ESCAPES, SHORTS, any_case, places, unescaped
from upstreams.passages import Clue, Place, merged, passages, put_together, taken_apart
from upstreams.steps import STEP_BYTES, STEP_ITEMS, Steps

Mask: TypeAlias = Callable[[bytes], Steps[bytes]]
"""JSON text in, the same without credentials out; a ValueError where it takes too long to look for them."""

_LEAST_CHARACTERS: Final = 16
_LETTER: Final = re.compile("[A-DF-Za-df-z]")  # none of which is in a number
_MASK: Final = b"[hidden]"
_MOST_FOUND: Final = 100_000
_SCHEME: Final = re.compile(r"(?:basic|bearer|token)\s+(?:token=)?(\S+)", re.IGNORECASE)
_ESCAPE_BYTES: Final = len(rb"\u0000")
_SURROGATES: Final = range(0xD800, 0xE000)

# Where one of these is written as \uXXXX, a text within may have an escape that does not look so: "\\\u0075002b".
_SPELLERS: Final = "\\u0123456789abcdefABCDEF"

_UNIT: Final = rb"u[0-9a-fA-F]{4}"
_LONGEST_UNIT_BYTES: Final = 36
"""\\uXXXX of a text within, each character of which is written so once more."""

_BACKSLASHES_AND_ANOTHER: Final = re.compile(r"\\*[^\\]|\\+")


class CredentialMask:
    """Hides credentials, however JSON spells them, or JSON that is a text within: what shows its environment often
    shows it as that.

    Only such as can stand nowhere but in strings, and are too long to do so by chance.
    """

    def __init__(self, credentials: Iterable[str]) -> None:
        given = set(credentials)
        # A server reads a file or a variable without the end of its line.
        given |= {each.strip() for each in given}
        given |= {found[1] for found in map(_SCHEME.fullmatch, given) if found}
        telling = {each for each in given if len(each) >= _LEAST_CHARACTERS and _LETTER.search(each)}
        # The longest first: one may contain another.
        self._hidden = sorted(map(_Credential.of, telling), key=lambda each: (-len(each.meant), each.meant))
        units = _units("".join([_SPELLERS, *telling]))
        self._escape = _escape_of(units)
        self._escape_start = rb"\u00" if max(units) < "0100" else rb"\u"
        longest = max((len(_encoded_units(each)) // 2 for each in telling), default=0) * _LONGEST_UNIT_BYTES
        self._speller = Clue(_escape_of(_units(_SPELLERS)), longest, longest)

    def __call__(self, text: bytes) -> Steps[bytes]:
        if not self._hidden or b"\\" not in text:
            return (yield from _replaced(text, self._hidden))
        escaped = yield from self._escaped_units(text)
        cores = [each.core_without(escaped) for each in self._hidden]
        told = yield from _told(text, cores)
        there = [each for each, core in zip(self._hidden, cores, strict=True) if core in told]
        if not escaped and all(each.is_plain for each in there):
            return (yield from _replaced(text, there))
        spellers = escaped.intersection(map(ord, _SPELLERS))
        clues = [each.clue(escaped - spellers) for each in there]
        if spellers:
            clues.append(self._speller)
            there = self._hidden
        looked_at = yield from passages(text, clues)
        return (yield from _without(text, looked_at, there)) if looked_at else text

    def _escaped_units(self, text: bytes) -> Steps[frozenset[int]]:
        """Those of the credentials that are written as \\uXXXX somewhere, in the text or in one within."""
        found: set[bytes] = set()
        for start in range(0, len(text), STEP_BYTES):
            if start:
                yield
            end = start + STEP_BYTES + _ESCAPE_BYTES - 1
            if text.find(self._escape_start, start, end) >= 0:
                found.update(self._escape.findall(text, start, end))
        return frozenset(int(each[2:], 16) for each in found)


@dataclass(frozen=True)
class _Credential:
    text: str
    meant: bytes
    """As it stands in unescaped text."""

    core: bytes
    """What each of its spellings without \\uXXXX has in it."""

    @classmethod
    def of(cls, text: str) -> "_Credential":
        return cls(text, _encoded(text).replace(b'"', QUOTE), _core(text, ()))

    @property
    def is_plain(self) -> bool:
        """Whether each of these spellings is the same."""
        return self.core == self.meant

    def core_without(self, escaped: Collection[int]) -> bytes:
        """What each of its spellings has in it that has no other units than these as \\uXXXX."""
        return _core(self.text, escaped) if escaped else self.core

    def clue(self, escaped: Collection[int]) -> Clue:
        """Finds each of these spellings, and some that are none; by what follows its first characters, where these can
        be spelled in many ways: a search for what is spelled in one way is quick.

        None of `_SPELLERS` is among the units: behind a backslash, a u that may be \\u0075 could be read in two ways.
        """
        parts = _BACKSLASHES_AND_ANOTHER.findall(self.text)
        patterns, longest = zip(*(_spelled(each, escaped) for each in parts), strict=True)
        first = next((place for place, each in enumerate(parts) if patterns[place] == _literal(each)), 0)
        return Clue(re.compile(b"".join(patterns[first:])), sum(longest[:first]), sum(longest))


def _spelled(part: str, escaped: Collection[int]) -> tuple[bytes, int]:
    """A pattern of what may stand for it, in the text or in one within, and how many bytes that are at most.

    It matches in one way only: with two for each of many parts, a search would try all of their combinations.
    """
    # A run of backslashes goes with those of the escape behind it: nothing tells them apart.
    character = part.lstrip("\\")
    run = len(part) - len(character)
    plain = _literal(character)
    if character in SHORTS:
        either = b"|".join(dict.fromkeys([plain, re.escape(SHORTS[character].encode()), _UNIT]))
        return _behind(run, 4 * run + 3, either), 4 * run + len(rb"\\\u0000")
    if character > "\uffff" and any(unit in _SURROGATES for unit in escaped):
        either = rb"%b|%b\\{1,2}+%b" % (plain, _UNIT, _UNIT)
        return _behind(run, 4 * run + 2, either), 4 * run + 2 * len(rb"\\u0000")
    if character and ord(character) in escaped:
        return _behind(run, 4 * run + 2, rb"%b|%b" % (plain, _UNIT)), 4 * run + len(rb"\\u0000")
    return _behind(run, 4 * run, plain) if run else plain, 4 * run + len(_encoded(character))


def _behind(least: int, most: int, either: bytes) -> bytes:
    return rb"\\{%d,%d}+(?:%b)" % (least, most, either)


def _literal(part: str) -> bytes:
    return re.escape(_encoded(part))


def _core(text: str, escaped: Collection[int]) -> bytes:
    """The longest part of it without a character that has an escape of its own, or one of these units."""
    marks = "".join(map(re.escape, {*SHORT_ESCAPES.values(), *map(chr, escaped)}))
    if any(unit in _SURROGATES for unit in escaped):
        marks += "\U00010000-\U0010ffff"
    return _encoded(max(re.split(f"[{marks}]", text), key=len))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _units(text: str) -> set[str]:
    """The XXXX of all \\uXXXX that it can be written with."""
    return set(re.findall("....", _encoded_units(text).hex()))


def _encoded_units(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


def _escape_of(units: Iterable[str]) -> re.Pattern[bytes]:
    """Any \\uXXXX with one of these."""
    starts: dict[str, set[str]] = {}
    for unit in units:
        starts.setdefault(any_case(unit[:3]), set()).update((unit[3], unit[3].upper()))
    either = "|".join(f"{start}[{''.join(sorted(ends))}]" for start, ends in sorted(starts.items()))
    return re.compile(rb"\\u(?:%b)" % either.encode())


def _told(text: bytes, words: Collection[bytes]) -> Steps[set[bytes]]:
    """Those of the words that are in the text."""
    told, longest = set[bytes](), max(map(len, words), default=0)
    for start in range(0, len(text), STEP_BYTES):
        if start:
            yield
        end = start + STEP_BYTES + longest
        told.update(word for word in words if word not in told and text.find(word, start, end) >= 0)
    return told


def _replaced(text: bytes, credentials: Collection[_Credential]) -> Steps[bytes]:
    told = yield from _told(text, [each.meant for each in credentials])
    for each in credentials:
        if each.meant in told:
            text = text.replace(each.meant, _MASK)
            if len(text) > STEP_BYTES:
                yield
    return text


def _without(text: bytes, looked_at: Collection[Place], credentials: Collection[_Credential]) -> Steps[bytes]:
    """The same, however they are spelled in these passages of it."""
    found = yield from _found_spelled(put_together(text, looked_at), credentials)
    kept, kept_to = bytearray(), 0
    for start, end in (yield from taken_apart(found, looked_at)):
        kept += text[kept_to:start]
        kept += _MASK
        kept_to = end
    return bytes(kept) + text[kept_to:]


def _found_spelled(text: bytes, credentials: Collection[_Credential]) -> Steps[list[Place]]:
    once = yield from unescaped(text)
    found = yield from _found(once, credentials)
    if b"\\" in once:
        twice = yield from unescaped(once)
        within = yield from _found(twice, credentials)
        found = yield from merged([*found, *(yield from _placed(once, within))])
    return (yield from _placed(text, found))


def _found(text: bytes, credentials: Iterable[_Credential]) -> Steps[list[Place]]:
    """Where they are in unescaped text."""
    found: list[Place] = []
    for each in credentials:
        start = text.find(each.meant)
        while start >= 0:
            end = start + len(each.meant)
            found.append((start, end))
            if len(found) % STEP_ITEMS == 0:
                yield
            if len(found) > _MOST_FOUND:
                raise ValueError("more credentials than the portal takes out")
            start = text.find(each.meant, end)
        yield
    return (yield from merged(found))


def _placed(text: bytes, found: list[Place]) -> Steps[list[Place]]:
    """Where in the text stands what was found there in the unescaped one."""
    edges = yield from places(text, chain.from_iterable(found))
    return [*zip(edges[::2], edges[1::2], strict=True)]
