"""Formats the arguments of a call for the person who decides about it.

Rule 1: each part of the arguments has its share of the length, so that none hides another. Cuts are marked.
"""

import hashlib
import itertools
import json
from collections.abc import Sequence
from os.path import commonprefix
from typing import Final

from manifests.grants import Hints
from manifests.json_value import Json
from portal.base.tokens import compact

MAX_CHARACTERS: Final = 2_000
"""Characters for all arguments of one call in a form."""

MAX_SHOWN_CHARACTERS: Final = 20_000
"""Longer arguments are stored for the person as a form shows them; their sha256 identifies the whole."""

MAX_LATER: Final = 50
"""Later calls that one approval can stand for."""

_LEAST_CHARACTERS: Final = 40  # the share of a part; if there are too many, the last ones are only counted
_LONGEST_NAME: Final = 60
_LONGEST_KEY: Final = 200  # of a map, such as a path
_LONGEST_PARTED: Final = 100_000  # characters of what is shown part by part, which takes milliseconds


def readable(value: Json, characters: int = MAX_CHARACTERS, name: str = "") -> list[str]:
    """Arguments as lines, of about `characters` in all: `name: value`, or a name and a block of marked lines."""
    if (parts := _parts(name, value, characters)) is None:
        return _value(name or "arguments", value, characters)
    shown, left, share = parts[: max(1, characters // _LEAST_CHARACTERS)], characters, 0
    for n, size in enumerate(sorted(len(compact(part)) for _, part in shown)):
        share = left // (len(shown) - n)  # longer parts get what shorter ones do not need
        if size > share:
            break
        left -= size
    lines = [line for label, part in shown for line in readable(part, share, label)]
    more = len(parts) - len(shown)
    return [*lines, f"  … and {more:,} more of {name or 'the arguments'}, not shown"] if more else lines


def indented(value: Json, most: int, *, is_ascii: bool = False) -> str:
    """A value as indented JSON, of which no more is made once it has more than `most` characters."""
    pieces, size = list[str](), 0
    for piece in json.JSONEncoder(indent=2, ensure_ascii=is_ascii).iterencode(value):
        pieces.append(piece)
        if (size := size + len(piece)) > most:
            break
    return "".join(pieces)


def sha256_of(arguments: dict[str, Json]) -> str:
    """Identifies arguments, however they are written."""
    text = json.dumps(arguments, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def told_hints(hints: Hints) -> str:
    """What a tool declares about itself: `destructive, open world`."""
    words = "destructive" * hints.destructive, "only reads" * hints.readonly, "open world" * hints.open_world
    return ", ".join(filter(None, words))


def _parts(name: str, value: Json, characters: int) -> list[tuple[str, Json]] | None:
    """The parts of a value to show one by one, if it contains texts of several lines, changes, or more than a line of
    `characters` can show; else None. A change is a pair of texts.
    """
    if not isinstance(value, dict | list):
        return None
    text = compact(value) if name else "\\n"
    hides = len(text) > characters >= len(value) * _LEAST_CHARACTERS
    is_line = not hides and "\\n" not in text and '"old' not in text
    if len(name) > _LONGEST_NAME or len(text) > _LONGEST_PARTED or is_line:
        return None
    if isinstance(value, list):
        return [(f"{name}[{n}]", part) for n, part in enumerate(value)]
    parts: list[tuple[str, Json]] = []
    for key, part in value.items():
        # A key that could imitate something else on its line is quoted.
        word = key if key.isidentifier() and len(key) <= _LONGEST_NAME else compact(key[:_LONGEST_KEY])
        word += f"… ({len(key):,} characters)" * (len(key) > _LONGEST_KEY)
        old, new = value.get(f"old{key[3:]}"), value.get(f"new{key[3:]}")
        is_change = key[:3] in ("old", "new") and isinstance(old, str) and isinstance(new, str)
        if not is_change or key[:3] == "old":
            parts.append((f"{name}.{word}" if name else word, (old, new) if is_change else part))
    return parts


def _value(name: str, value: Json, characters: int) -> list[str]:
    if isinstance(value, tuple):
        old, new = (text.split("\n") for text in value)
        head = len(commonprefix([old, new]))  # noqa: RUF071  # of lines, not of characters
        tail = len(commonprefix([old[head:][::-1], new[head:][::-1]]))  # noqa: RUF071
        marked = (
            ("  = ", old[:head]),
            ("  - ", old[head : len(old) - tail]),
            ("  + ", new[head : len(new) - tail]),
        )
        blocks = [_block(*each, characters // 3) for each in (*marked, ("  = ", old[len(old) - tail :]))]
        return [f"  {name}:", *itertools.chain(*blocks)]
    if not isinstance(value, str):
        return _block(f"  {name}: ", [compact(value)], characters)
    if "\n" in value:
        return [f"  {name}:", *_block("  | ", value.split("\n"), characters)]
    return _block(f'  {name}: "', [value], characters, '"')


def _block(mark: str, lines: Sequence[str], characters: int, end: str = "") -> list[str]:
    text = "\n".join(lines)
    shown = [f"{mark}{line}{end}" for line in text[:characters].split("\n") if lines]
    return [*shown, f"  … cut: it has {len(text):,} characters"] if len(text) > characters else shown
