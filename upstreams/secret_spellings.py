"""How a secret may be written in text for people: as it is, in JSON of any writer, in Python, or in a URL."""

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

from upstreams.json_spelling import SHORTS, any_case

# Text in JSON in JSON in JSON has seven before a quotation mark; so does what a shell or Java writes so.
_MOST_BACKSLASHES: Final = 7
_LONGEST_WAY: Final = _MOST_BACKSLASHES + len(r"ud83d\\\\udd11")

# No usual writer spells letters, digits and these otherwise.
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.~-]+")
_PARTS: Final = re.compile(rf"{_PLAIN.pattern}|\\*[^\\A-Za-z0-9_.~-]|\\+")


def any_of(secrets: Iterable[str]) -> tuple[str, int]:
    """A pattern of any of them, whichever way each character is written, the longest of those that begin alike first;
    and how many characters it finds at most. Without any it is the pattern that never matches.
    """
    behind: dict[str, list[str]] = {}
    most = 0
    # Always in one order: upstreams with the same secrets then share what `re` compiled.
    for secret in sorted(secrets, key=lambda each: (-len(each), each)):
        patterns, longest = zip(*map(_spelled, _PARTS.findall(secret)), strict=True)
        # What begins in many ways takes time to be tried everywhere, so that is tried once for all.
        shared = len(patterns) if _PLAIN.match(secret) else 1
        behind.setdefault("".join(patterns[:shared]), []).append("".join(patterns[shared:]))
        most = max(most, sum(longest))
    return "|".join(f"{first}(?:{'|'.join(rest)})" for first, rest in behind.items()) or "(?!)", most


def _spelled(part: str) -> tuple[str, int]:
    """It matches in one way only, as in `upstreams.masking`."""
    if _PLAIN.match(part):
        return re.escape(part), len(part)
    # A run of backslashes goes with those of the escape behind it: nothing tells them apart.
    character = part.lstrip("\\")
    run = len(part) - len(character)
    most = _MOST_BACKSLASHES * (run + bool(character))
    start = rf"(?:\\{{{run}}}|(?:%5[cC]){{{run}}})" if run else ""
    ways = f"(?:{_ways(character)})" if character else ""
    return rf"{start}\\{{0,{most}}}+{ways}", run * len("%5C") + most + _LONGEST_WAY


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
