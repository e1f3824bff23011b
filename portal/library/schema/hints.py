"""What a type cannot say about a value: formats, bounds, patterns, examples, in a few words."""

from collections.abc import Iterator
from typing import Any, Final

from portal.library.literals import default_text
from portal.library.plain_text import one_line
from portal.library.schema.json_kinds import kind_words
from portal.library.schema.sound_schema import SoundNode

LONGEST_DOC: Final = 200
"""Characters of a parameter's description."""

_LONGEST_PATTERN: Final = 60
_LONGEST_HINTS: Final = 160
_SILENT_FORMATS: Final = frozenset({"int32", "int64", "float", "double", "string"})
_SIZES: Final = (
    ("minimum", "maximum", ""),
    ("minLength", "maxLength", " characters"),
    ("minItems", "maxItems", " items"),
)
_MOST: Final = 2**31
_MOST_ITEMS: Final = 6


def value_doc(node: SoundNode) -> str:
    """A property's description with its hints behind it; plain text on one line, "" if there is nothing."""
    if not isinstance(node, dict):
        return ""
    text = one_line(node.get("description", ""), LONGEST_DOC)
    hints = one_line("; ".join(_hints(node)), _LONGEST_HINTS)
    return f"{text} ({hints})" if text and hints else text or hints


def _hints(node: dict[str, Any]) -> Iterator[str]:
    if node.get("deprecated"):
        yield "deprecated"
    if node.get("format") and node["format"] not in _SILENT_FORMATS:
        yield one_line(node["format"], 30)
    yield from _bounds(node)
    pattern = node.get("pattern")
    if pattern and len(pattern) <= _LONGEST_PATTERN:
        yield f"pattern {pattern}"
    if "prefixItems" in node:
        yield f"in this order: {', '.join(map(_item_words, node['prefixItems'][:_MOST_ITEMS]))}"
    for example in node.get("examples", ())[:1]:
        text = default_text(example)
        if text:
            yield f"e.g. {text}"


def _bounds(node: dict[str, Any]) -> Iterator[str]:
    for least, most, unit in _SIZES:
        bounds = _range(node.get(least), node.get(most), is_size=bool(unit))
        if bounds:
            yield bounds + unit
    for word, sign in (("exclusiveMinimum", ">"), ("exclusiveMaximum", "<"), ("multipleOf", "multiple of")):
        if word in node and abs(node[word]) < _MOST:
            yield f"{sign} {node[word]}"


def _item_words(item: SoundNode) -> str:
    """What one item of a tuple is: by its title, else its type."""
    if not isinstance(item, dict):
        return "anything"
    kind = kind_words(item["type"]) if "type" in item else "a value"
    return f"{one_line(item['title'], 30)} ({kind})" if item.get("title") else kind


def _range(least: float | None, most: float | None, *, is_size: bool) -> str:
    """`1 to 100`, `>= 1` or `<= 100`; that a text is not empty, or a number a number, goes without saying."""
    has_least = least is not None and abs(least) < _MOST and not (is_size and least <= 1)
    has_most = most is not None and abs(most) < _MOST
    if has_least and has_most:
        return f"{least} to {most}"
    if has_least:
        return f">= {least}"
    return f"<= {most}" if has_most else ""
