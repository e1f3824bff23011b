"""Makes untrusted text safe to read and to embed in Python source: no hidden characters, limited length.

Upstreams write descriptions; models and people read them. Control, format, private-use and unassigned characters are
invisible or reorder text. They are removed for models and escaped for operators. Joiners and variation selectors stay
if they shape an emoji.
"""

import math
import os
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Final

from manifests.json_value import Json

MARK: Final = "    | "
"""Prefix of every line of a text but the first."""

LONGEST_COMMENT: Final = 100
"""Characters of a field's description in its comment."""

LONGEST_STRING: Final = 200
"""Characters of a string in a `Literal`."""

LONGEST_DEFAULT: Final = 40
"""Characters of a default that a signature shows."""

_NOT_PLAIN: Final = re.compile(r"[^\x20-\x7e]")
# isprintable() is true for these, but they are invisible: fillers and variation selectors.
_BLANK: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_EMOJI: Final = (
    "[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u25a0-\u27bf\u2900-\u297f\u2b00-\u2bff"
    "\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]"
)
_OF_EMOJI: Final = re.compile(
    f"(?<={_EMOJI})[\ufe0e\ufe0f]|(?<=[0-9#*])\ufe0f(?=\u20e3)|(?:(?<={_EMOJI})|(?<={_EMOJI}\ufe0f))\u200d(?={_EMOJI})"
)
_LINE_SEPARATORS: Final = re.compile(r"\r\n|[\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_SENTENCE_END: Final = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<!\betc)(?<!\bvs)[.!?](?=\s|$)|[。！？]")
_DEPRECATED: Final = re.compile(
    r"(?i)(?:^|[.!?\n(\[])\W*deprecated\b(?=\s*(?:[^\w\s]|$|(?:since|in|as|use|please)\b))"
    r"|\bthis \w+(?: is| has been)(?: now)? deprecated\b"
)
_BLANK_LINES: Final = re.compile(r"\n[ \t]*(?:\n[ \t]*)+")
_ENDING_QUOTES: Final = re.compile(r'"{3,}|"+\Z')
_PRAGMA: Final = re.compile(r"#*\s*\b(type|ty|mypy|pyright|noqa)(?=\s*:)")
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_MOST_BITS: Final = 63  # the largest integers that mypy accepts


def escaped(text: str, keep: str = "") -> str:
    """The text on one line, for a person: hidden characters not in `keep` as `<U+202E>`, line feeds as `\\n`."""
    return _without_hidden(text, lambda each: "\\n" if each == "\n" else f"<U+{ord(each):04X}>", keep)


def visible(text: str) -> str:
    """The text for a model, without hidden characters. Line feeds stay."""
    return _without_hidden(text, lambda _: "", "\n")


def marked_lines(text: str) -> str:
    """The text, escaped line by line. Lines after the first begin with MARK, so none looks like the portal's own."""
    lines = text.replace("\r\n", "\n").rstrip("\n").split("\n")
    return f"\n{MARK}".join(escaped(line.expandtabs(4)) for line in lines)


def is_hidden(character: str) -> bool:
    """Whether a character is invisible by itself, or changes how others are shown."""
    is_blank = _BLANK.match(character) is not None
    return is_blank or (not character.isprintable() and unicodedata.category(character) != "Zs")


def hidden_places(text: str, keep: str = "") -> list[int]:
    """The positions of hidden characters that are not in `keep`."""
    of_emoji = {found.start() for found in _OF_EMOJI.finditer(text)}
    hidden = (each for each in _NOT_PLAIN.finditer(text) if each[0] not in keep and is_hidden(each[0]))
    return [each.start() for each in hidden if each.start() not in of_emoji]


def readable(text: str, longest: int) -> str:
    """The text without hidden characters, as `\\n`-separated lines, cut at a word to `longest` characters."""
    text = _LINE_SEPARATORS.sub("\n", text[: 4 * longest]).replace("\t", " ")
    lines = (line.rstrip() for line in visible(text).split("\n"))
    return cut(_BLANK_LINES.sub("\n\n", "\n".join(lines)).strip(), longest)


def shown_path(path: str) -> str:
    """A path as its owner would write it."""
    home = os.path.expanduser("~")
    return f"~{path.removeprefix(home)}" if path.startswith(f"{home}/") else path


def one_line(text: str, longest: int) -> str:
    """The `readable` text on a single line."""
    if len(text) <= longest and text.isascii() and text.isprintable():  # as most names are
        return " ".join(text.split())
    return cut(" ".join(readable(text, 2 * longest).split()), longest)


def first_sentence(text: str, longest: int) -> str:
    """The first sentence of the first paragraph, without leading Markdown marks."""
    for paragraph in readable(text, 4 * longest).split("\n\n"):
        flat = " ".join(paragraph.split()).lstrip("#*->| ")
        if any(character.isalnum() for character in flat):
            end = _SENTENCE_END.search(flat)
            return cut(flat[: end.end()] if end else flat, longest)
    return ""


def says_deprecated(description: str) -> bool:
    """Whether the head of a description says that the tool itself is deprecated, not only something that it handles."""
    return _DEPRECATED.search(description[:200]) is not None


def cut(text: str, longest: int) -> str:
    """At most `longest` characters, cut between words and ended with `…`."""
    if len(text) <= longest:
        return text
    head = text[: longest - 1]
    space = max(head.rfind(" "), head.rfind("\n"))
    return (head[:space] if space > longest // 2 else head).rstrip(" \n,;:") + "…"


def some(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def docstring(text: str, indent: str = "") -> str:
    """The source of a docstring with this text, which must be free of hidden characters."""
    quoted = _ENDING_QUOTES.sub(lambda quotes: '\\"' * len(quotes[0]), text.replace("\\", "\\\\"))
    lines = quoted.split("\n")
    body = "\n".join([lines[0], *(f"{indent}{line}".rstrip() for line in lines[1:])])
    end = f"\n{indent}" if len(lines) > 1 else ""
    return f'{indent}"""{body}{end}"""'


def comment(text: str, longest: int = LONGEST_COMMENT, sign: str = "#") -> str:
    """A trailing comment on one line, or "". No type checker reads it as a directive."""
    line = _PRAGMA.sub(r"\1 ", one_line(text, longest))
    return f"  {sign} {line}" if line else ""


def is_literal(value: Json) -> bool:
    """Whether `typing.Literal` accepts the value and it is short enough."""
    if isinstance(value, str):
        return len(value) <= LONGEST_STRING and not _LONE_SURROGATE.search(value)
    if isinstance(value, bool) or value is None:
        return True
    return isinstance(value, int) and value.bit_length() <= _MOST_BITS


def literal_text(value: Json) -> str:
    """The source of a literal, with hidden characters (controls, bidi, zero-width) escaped."""
    source = repr(value)
    if source.isascii():
        return source
    return "".join(f"\\U{ord(each):08x}" if is_hidden(each) else each for each in source)


def default_text(value: Json, literal: Callable[[Json], str] = literal_text) -> str | None:
    """The source of a declared default in a signature; None if it is not simple enough."""
    if isinstance(value, float):
        return literal(value) if math.isfinite(value) else None
    if isinstance(value, list | dict):
        return None if value else literal(value)
    text = literal(value) if is_literal(value) else ""
    return text if 0 < len(text) <= LONGEST_DEFAULT else None


def _without_hidden(text: str, spell: Callable[[str], str], keep: str) -> str:
    places = set(hidden_places(text, keep))
    return "".join(spell(each) if at in places else each for at, each in enumerate(text)) if places else text
