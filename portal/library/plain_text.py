"""Text of strangers, made safe to read, or to stand in Python source: nothing hidden, nothing endless.

Descriptions are written by upstreams and read by models and people. Characters that show nothing or reorder
what is shown (controls, bidi overrides, zero-width characters, tags, variation selectors) are removed: what
a person reviews is what a model reads. In lines that a person reads to decide they are spelt out instead.
"""

import math
import re

from manifests.json_value import Json
from portal.library.hidden_characters import is_hidden, respelt

_UNSAFE_ASCII = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
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


def spelt_out(text: str, exactly: range = range(0)) -> str:
    """The text on one line, with everything that hides something, or reorders what is shown, spelt out; at the places
    of `exactly` also what only shapes emoji and letters.
    """
    return respelt(text, _spelt, exactly)


def unhidden(text: str) -> str:
    """The text spelt out in as many lines as it has: for data, where no line passes for one of ours."""
    return respelt(text, lambda character: character if character in "\n\t" else code_point(character))


def marked_lines(text: str) -> str:
    """The text spelt out line by line, with a mark before each line but the first, so that none of them passes for
    one of whoever prints it.
    """
    lines = text.replace("\r\n", "\n").rstrip("\n").split("\n")
    return f"\n{MARK}".join(spelt_out(line.expandtabs(4)) for line in lines)


def unsteered(text: str) -> str:
    """The text, of as many lines as it has, with what moves a cursor, colours or reorders spelt out."""
    return _STEERING.sub(lambda found: code_point(found[0]), text)


def _spelt(character: str) -> str:
    return "\\n" if character == "\n" else code_point(character)


def code_point(character: str) -> str:
    """How a character is spelt out."""
    return f"<U+{ord(character):04X}>"


def cut(text: str, longest: int) -> str:
    """At most `longest` characters, cut between words and ended with `…`."""
    if len(text) <= longest:
        return text
    head = text[: longest - 1]
    space = max(head.rfind(" "), head.rfind("\n"))
    return (head[:space] if space > longest // 2 else head).rstrip(" \n,;:") + "…"


LONGEST_COMMENT = 100
"""Characters of a field's description that stand behind it."""

LONGEST_STRING = 200
"""Characters of a string that may stand in a `Literal`."""

LONGEST_DEFAULT = 40
"""Characters of a default that a signature shows."""

_ENDING_QUOTES = re.compile(r'"{3,}|"+\Z')
_PRAGMA = re.compile(r"#*\s*\b(type|ty|mypy|pyright|noqa)(?=\s*:)")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_MOST_BITS = 63  # mypy takes no larger ones


def docstring(text: str, indent: str = "") -> str:
    """A docstring with this text, already free of hidden characters, and nothing behind it."""
    escaped = _ENDING_QUOTES.sub(lambda quotes: '\\"' * len(quotes[0]), text.replace("\\", "\\\\"))
    lines = escaped.split("\n")
    body = "\n".join([lines[0], *(f"{indent}{line}".rstrip() for line in lines[1:])])
    end = f"\n{indent}" if len(lines) > 1 else ""
    return f'{indent}"""{body}{end}"""'


def comment(text: str, longest: int = LONGEST_COMMENT) -> str:
    """A trailing comment, or nothing: one line that no type checker takes for an instruction."""
    line = _PRAGMA.sub(r"\1 ", one_line(text, longest))
    return f"  # {line}" if line else ""


def is_literal(value: Json) -> bool:
    """Whether `typing.Literal` takes the value, and it is short enough to be read."""
    if isinstance(value, str):
        return len(value) <= LONGEST_STRING and not _LONE_SURROGATE.search(value)
    if isinstance(value, bool) or value is None:
        return True
    return isinstance(value, int) and value.bit_length() <= _MOST_BITS


def literal_text(value: Json) -> str:
    """The source of a literal; what cannot be seen (controls, bidi, zero-width characters) is escaped."""
    source = repr(value)
    if source.isascii():
        return source
    return "".join(f"\\U{ord(each):08x}" if is_hidden(each) else each for each in source)


def default_text(value: Json) -> str | None:
    """A declared default as a signature shows it, or None if it is not simple enough."""
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else None
    if isinstance(value, list | dict):
        return None if value else repr(value)
    text = literal_text(value) if is_literal(value) else ""
    return text if 0 < len(text) <= LONGEST_DEFAULT else None
