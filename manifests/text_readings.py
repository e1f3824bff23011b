"""The ways in which somebody behind the portal may read a text: as a path, decoded, or normalised.

A condition on the beginning or the end of a text must hold for all of them. The text itself is sent as it is: what was
looked at is what the upstream gets.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final
from urllib.parse import unquote

MAX_CHARACTERS: Final = 4_096
"""A longer text, or one that becomes longer, is not read: whoever waits for the portal would wait for that."""

MAX_DECODINGS: Final = 5
"""A text that still changes when it is percent-decoded once more is read in no way at all."""

MAX_READINGS: Final = 16
MAX_READ_CHARACTERS: Final = 6 * MAX_CHARACTERS
"""A text that may be read in more ways, or in ways that are longer in all, is not read, either."""

MAX_MARKS: Final = 30
"""More combining marks in a row are not put into order: the time that takes grows with their square.

Source: Unicode Standard Annex #15, Stream-Safe Text Format.
"""

# Bounded, and begun at no other place of a word: else each letter of a long name would be tried as a beginning.
_SCHEME: Final = re.compile(r"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{0,40}://")
_OWN_SCHEME: Final = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]+:")
"""What a text begins with that is read as a URL, with slashes behind it or without. `C:` is none."""
_MARKS: Final = re.compile(rb"[^\x00]{%d}" % (MAX_MARKS + 1))
_LATER_MARKS: Final = str.maketrans(dict.fromkeys("\u0f73\u0f75\u0f81\uff9e\uff9f", "\u0301"))
"""What is no combining mark, and becomes one or two of them by NFKC. There are no others."""
_SEPARATORS: Final = str.maketrans(
    dict.fromkeys("\\\u2044\u2215\u2216\u29f5\u29f8\u29f9\ufe68\uff0f\uff3c", "/")
)
"""What some systems take for a slash, or map to one."""
_UNKNOWN: Final = re.compile(r"%[uU][0-9A-Fa-f]{4}")
"""What only some systems decode."""
_UNREADABLE: Final = "/../"
# Some are countries, too, as md, py and rs are: files end so far more often than what is meant to be a host.
FILE_ENDING: Final = re.compile(
    r".*\.(?:bat|bz2|cfg|conf|cpp|css?|csv|docx?|erb|exs?|go|gz|hpp|html?|ini|ipynb|java|jsonl?|jsx?|kts?|lock|log|lua"
    r"|lz4|mdx?|[cm][jt]s|patch|pdf|php|png|proto|ps1|pyi?|rb|rs|rst|s[ac]ss|scala|sh|sig|sql|svelte|svg|swift|tex"
    r"|tf|toml|tsv|tsx?|txt|vue|xlsx?|xml|xz|ya?ml|zip|zst)",
    re.IGNORECASE,
)
_BREAKS: Final = re.compile(r"[\t\n\u2028\u2029]")
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class ReadText:
    """One text, read once for all the conditions on it."""

    def __init__(self, text: str) -> None:
        self.text = text

    def begins(self, prefix: str) -> bool:
        """Whether it begins so however it is read, and leads nowhere else."""
        return not self.detour and all(each.startswith(prefix) for each in self._readings)

    def ends(self, suffix: str) -> bool:
        """Whether it ends so however it is read, and leads nowhere else."""
        return not self.other_end(suffix) and all(each.endswith(suffix) for each in self._readings)

    def other_end(self, suffix: str) -> str:
        """What makes its end another one than it seems, beside the suffix it is to have; "" if nothing does."""
        return (
            self.detour or self._several_lines or self._several_addresses(suffix) or self._early_end(suffix)
        )

    @cached_property
    def detour(self) -> str:
        """What makes it lead elsewhere than its beginning says, if it is read as a path; "" if nothing does."""
        if len(self.text) > MAX_CHARACTERS:
            return f"more than {MAX_CHARACTERS:,} characters"
        if _CONTROLS.search(self.text):
            return "a control character"
        return next(filter(None, map(_detour, self._readings)), "")

    @cached_property
    def _readings(self) -> Sequence[str]:
        return tuple(_readings(self.text))

    @cached_property
    def _several_lines(self) -> str:
        """What parts it, so that somebody may take its end for a text of its own; "" if nothing does."""
        return "a line break or a tab" if any(map(_BREAKS.search, self._readings)) else ""

    def _several_addresses(self, suffix: str) -> str:
        """What makes of it more than the one address that ends with `suffix`; "" if nothing does, or it ends none."""
        most = suffix.count("@")
        is_list = most and any(
            "," in each or ";" in each or each.count("@") > most for each in self._readings
        )
        return "more than one address" if is_list else ""

    def _early_end(self, suffix: str) -> str:
        """What ends the path of a URL before a suffix that is the last part of a name, as `.pdf`; "" if nothing does.

        Files may be called `C#.md`: their endings are no part of a host, so a text without a scheme is no URL to them.
        """
        is_file = suffix.count(".") == 1 and bool(FILE_ENDING.fullmatch(suffix))
        if not suffix.startswith(".") or (is_file and not self._has_scheme):
            return ""
        ended = (each.removesuffix(suffix) for each in self._readings)
        return "a `?` or `#`" if any("?" in each or "#" in each for each in ended) else ""

    @cached_property
    def _has_scheme(self) -> bool:
        return any("://" in each or _OWN_SCHEME.match(each) for each in self._readings)


def _readings(text: str) -> Iterator[str]:
    """The text, and what it becomes by percent-decoding and by compatibility normalisation, in any order.

    What is too much to be read ends them.
    """
    if text.isascii() and "%" not in text:
        yield text
        return
    seen: set[str] = set()
    waiting, characters = [text], 0
    for _ in range(MAX_DECODINGS + 1):
        new: dict[str, None] = {}
        for each in waiting:
            for reading in _normalised(each):
                if reading not in seen:
                    seen.add(reading)
                    new[reading] = None
                    characters += len(reading)
                    yield reading
                    if reading is _UNREADABLE or len(reading) > MAX_CHARACTERS:
                        return
        if len(seen) > MAX_READINGS or characters > MAX_READ_CHARACTERS:
            break
        # What is normalised may have become decodable, as a fullwidth percent sign does, and the other way around.
        decoded = {each: unquote(each) for each in new}
        if any(after.count("\ufffd") > each.count("\ufffd") for each, after in decoded.items()):
            break  # no UTF-8: some systems read overlong dots and slashes in there
        waiting = [after for after in decoded.values() if after not in seen]
        if not waiting:
            return
    yield _UNREADABLE  # nobody knows what is in there


def _normalised(text: str) -> Iterator[str]:
    """The text, and what it is by NFKC."""
    yield text
    if not text.isascii():
        marks = bytes(map(unicodedata.combining, text.translate(_LATER_MARKS)))
        yield _UNREADABLE if _MARKS.search(marks) else unicodedata.normalize("NFKC", text)


def _detour(reading: str) -> str:
    if len(reading) > MAX_CHARACTERS:
        return f"more than {MAX_CHARACTERS:,} characters, once it is normalised,"
    if reading is _UNREADABLE or _UNKNOWN.search(reading):
        return "an encoding that not all read alike"
    if _CONTROLS.search(reading):
        return "an encoded control character"
    plain = reading.replace("\\", "/") if reading.isascii() else reading.translate(_SEPARATORS)
    shapes = [_shape(each) for each in _SCHEME.sub("", plain, count=1).split("/")]
    if "." in shapes:
        return "a `.` or `..` between slashes"
    return "" if all(shapes[1:-1]) else "two slashes in a row"


def _shape(segment: str) -> str:
    """ "." for one of dots alone, "" for one that is empty, "x" for any other.

    Also with what some systems drop: a parameter or a query (`..;x`, `..?x`), blanks, what is invisible (`.\u200b.`).
    """
    shape = ""
    for character in segment:
        if character == ".":
            shape = "."
        elif character in ";?#":
            return shape or "x"
        elif unicodedata.category(character)[0] not in "CZ":
            return "x"
    return shape
