"""The ways in which somebody behind the portal may read a text: as a path, decoded, or normalised.

A condition on the beginning or the end of a text must hold for all of them. The text itself is sent as it is: what was
looked at is what the upstream gets.
"""

import re
import unicodedata
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote

MAX_CHARACTERS: Final = 4_096
"""A longer text, or one that becomes longer, is not read: whoever waits for the portal would wait for that."""

MAX_DECODINGS: Final = 5
"""A text that still changes when it is percent-decoded once more is read in no way at all."""

MAX_READINGS: Final = 16
"""A text that may be read in more ways is not read, either."""

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SEPARATORS: Final = str.maketrans(
    dict.fromkeys("\\\u2044\u2215\u2216\u29f5\u29f8\u29f9\ufe68\uff0f\uff3c", "/")
)
"""What some systems take for a slash, or map to one."""
_ENDS: Final = re.compile(r"[;?#]")
"""Where the name in a segment ends: parameters, a query or a fragment follow."""
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


def readings(text: str) -> Iterator[str]:
    """The text, and what it becomes by percent-decoding and by compatibility normalisation, in any order."""
    if text.isascii() and "%" not in text:
        yield text
        return
    seen: set[str] = set()
    waiting = [text]
    for _ in range(MAX_DECODINGS + 1):
        new: dict[str, None] = {}
        for each in waiting:
            for reading in (each, unicodedata.normalize("NFKC", each)):
                if reading not in seen:
                    seen.add(reading)
                    new[reading] = None
                    yield reading
        if len(seen) > MAX_READINGS:
            break
        # What is normalised may have become decodable, as a fullwidth percent sign does, and the other way around.
        decoded = {each: unquote(each) for each in new}
        if any(after.count("\ufffd") > each.count("\ufffd") for each, after in decoded.items()):
            break  # no UTF-8: some systems read overlong dots and slashes in there
        waiting = [after for after in decoded.values() if after not in seen]
        if not waiting:
            return
    yield _UNREADABLE  # nobody knows what is in there


def several_lines(text: str) -> str:
    """What parts a text, so that somebody may take its end for a text of its own; "" if nothing does."""
    return "a line break or a tab" if any(map(_BREAKS.search, readings(text))) else ""


def several_addresses(text: str, suffix: str) -> str:
    """What makes of a text more than the one address that ends with `suffix`; "" if nothing does, or it ends none."""
    most = suffix.count("@")
    is_list = any("," in each or ";" in each or each.count("@") > most for each in readings(text))
    return "more than one address" if most and is_list else ""


def early_end(text: str, suffix: str) -> str:
    """What ends the path of a URL before a suffix that is the last part of a name, as `.pdf` is; "" if nothing does.

    Files may be called `C#.md`: their endings are no part of a host, so a text without a scheme is no URL to them.
    """
    is_file = suffix.count(".") == 1 and bool(FILE_ENDING.fullmatch(suffix))
    if not suffix.startswith(".") or (is_file and not any("://" in each for each in readings(text))):
        return ""
    is_early = any(
        "?" in each or "#" in each for each in (each.removesuffix(suffix) for each in readings(text))
    )
    return "a `?` or `#`" if is_early else ""


def detour(text: str) -> str:
    """What makes a text lead elsewhere than its beginning says, if it is read as a path; "" if nothing does."""
    if len(text) > MAX_CHARACTERS:
        return f"more than {MAX_CHARACTERS:,} characters"
    if _CONTROLS.search(text):
        return "a control character"
    for reading in readings(text):
        if len(reading) > MAX_CHARACTERS:
            return f"more than {MAX_CHARACTERS:,} characters, once it is normalised,"
        if reading is _UNREADABLE or _UNKNOWN.search(reading):
            return "an encoding that not all read alike"
        if _CONTROLS.search(reading):
            return "an encoded control character"
        plain = reading.replace("\\", "/") if reading.isascii() else reading.translate(_SEPARATORS)
        segments = _visible(_SCHEME.sub("", plain, count=1)).split("/")
        if any(map(_is_dots, segments)):
            return "a `.` or `..` between slashes"
        if not all(segments[1:-1]):
            return "two slashes in a row"
    return ""


def _is_dots(segment: str) -> bool:
    """Also with what some systems drop: `..;x`, `..?x`."""
    name = _ENDS.split(segment, maxsplit=1)[0]
    return bool(name) and not name.strip(".")


def _visible(text: str) -> str:
    """Without blanks and invisible characters, which some systems drop: `.. `, `.\u200b.`."""
    if text.isascii():
        return text.replace(" ", "").replace("\t", "").replace("\n", "")
    return "".join(character for character in text if unicodedata.category(character)[0] not in "CZ")


def other_end(text: str, suffix: str) -> str:
    """What makes the end of a text another one than it seems, beside the suffix it is to have; "" if nothing does."""
    several = several_lines(text) or several_addresses(text, suffix)
    return detour(text) or several or early_end(text, suffix)
