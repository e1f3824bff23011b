"""Text of strangers, made safe to read: nothing hidden, nothing endless.

Descriptions are written by upstreams and read by models and people. Characters that show nothing or reorder
what is shown (controls, bidi overrides, zero-width characters, tags, variation selectors) are removed: what
a person reviews is what a model reads. In lines that a person reads to decide they are spelt out instead.
"""

import re
import unicodedata

_UNSAFE_ASCII = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
# Of other categories, and show nothing all the same; variation selectors are the ranges.
_BLANK = frozenset(
    {
        *"\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\U00016fe4\U0001d159",
        *map(chr, (*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))),
    }
)
_LINE_SEPARATORS = re.compile(r"\r\n|[\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_STEERING = re.compile(r"\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
MARK = "    | "
"""Before what only goes on."""

_SENTENCE_END = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<!\betc)(?<!\bvs)[.!?](?=\s|$)|[。！？]")
_BLANK_LINES = re.compile(r"\n[ \t]*(?:\n[ \t]*)+")


def readable(text: str, longest: int) -> str:
    """The text without hidden characters, as `\\n`-separated lines, cut at a word to `longest` characters."""
    if len(text) > 4 * longest:
        text = text[: 4 * longest]
    text = _LINE_SEPARATORS.sub("\n", text).replace("\t", " ")
    lines = (line.rstrip() for line in visible(text).split("\n"))
    return cut(_BLANK_LINES.sub("\n\n", "\n".join(lines)).strip(), longest)


def one_line(text: str, longest: int) -> str:
    """The text as `readable` leaves it, on a single line."""
    return cut(" ".join(readable(text, 2 * longest).split()), longest)


def first_sentence(text: str, longest: int) -> str:
    """The first sentence of the first paragraph, without Markdown's marks in front."""
    for paragraph in readable(text, 4 * longest).split("\n\n"):
        flat = " ".join(paragraph.split()).lstrip("#*->| ")
        if any(character.isalnum() for character in flat):
            end = _SENTENCE_END.search(flat)
            return cut(flat[: end.end()] if end else flat, longest)
    return ""


def visible(text: str) -> str:
    """The text without characters that show nothing, or that change how others are shown; keeps newlines."""
    if text.isascii():
        return _UNSAFE_ASCII.sub("", text)
    return "".join(character for character in text if character == "\n" or not is_hidden(character))


def spelt_out(text: str) -> str:
    """The text on one line, with everything that shows nothing, or reorders what is shown, spelt out."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_spelt(character) for character in text)


def marked_lines(text: str) -> str:
    """The text spelt out line by line, with a mark before each line but the first, so that none of them passes for
    one of whoever prints it.
    """
    lines = text.replace("\r\n", "\n").rstrip("\n").split("\n")
    return f"\n{MARK}".join(spelt_out(line.expandtabs(4)) for line in lines)


def unsteered(text: str) -> str:
    """The text, of as many lines as it has, with what moves a cursor, colours or reorders spelt out."""
    return _STEERING.sub(lambda found: _code_point(found[0]), text)


def is_hidden(character: str) -> bool:
    """Whether a character shows nothing, or changes how others are shown."""
    return unicodedata.category(character) in _HIDDEN_CATEGORIES or character in _BLANK


def _spelt(character: str) -> str:
    if character == "\n":
        return "\\n"
    if is_hidden(character) or character in "\u2028\u2029" or (character.isspace() and character != " "):
        return _code_point(character)
    return character


def _code_point(character: str) -> str:
    return f"<U+{ord(character):04X}>"


def cut(text: str, longest: int) -> str:
    """At most `longest` characters, cut between words and ended with `…`."""
    if len(text) <= longest:
        return text
    head = text[: longest - 1]
    space = max(head.rfind(" "), head.rfind("\n"))
    return (head[:space] if space > longest // 2 else head).rstrip(" \n,;:") + "…"
