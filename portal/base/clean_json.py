"""Makes JSON of upstreams safe to show to people and models: without secrets, bounded, valid UTF-8."""

import json
from collections.abc import Callable
from typing import Final, TypeAlias

from manifests.json_value import Json
from portal.base.tokens import compact

MAX_DEPTH: Final = 32

Scrub: TypeAlias = Callable[[str, int], str]
"""Removes secrets from an upstream's text and cuts it to a number of characters."""


def printable(scrub: Scrub) -> Scrub:
    """Also replace control, bidi and hidden characters by spaces. Line feeds and tabs stay."""

    def shown(text: str, limit: int) -> str:
        scrubbed = scrub(text, limit)
        if scrubbed.isprintable():
            return scrubbed
        return "".join(each if each.isprintable() or each in "\n\t" else " " for each in scrubbed)

    return shown


def one_line(scrub: Scrub) -> Scrub:
    """Also join all lines, so that the text cannot imitate another speaker."""
    return lambda text, limit: " ".join(printable(scrub)(text, limit).split())


def clean_json(value: Json, scrub: Scrub, longest: int, depth: int = MAX_DEPTH) -> Json:
    """Scrub all strings and cut them to `longest` characters. Values deeper than MAX_DEPTH become "…"."""
    if depth == 0:
        return "…"
    if isinstance(value, str):
        return clean_text(value, scrub, longest)
    if isinstance(value, list):
        return [clean_json(item, scrub, longest, depth - 1) for item in value]
    if isinstance(value, dict):
        return {
            clean_text(key, scrub, longest): clean_json(item, scrub, longest, depth - 1)
            for key, item in value.items()
        }
    return value


def clean_text(text: str, scrub: Scrub, longest: int) -> str:
    return sendable(scrub(text, longest))


def sendable_json(value: Json) -> Json:
    """Replace lone surrogates in all strings, including keys."""
    text = compact(value)
    return value if text.isascii() else json.loads(text.encode("utf-8", "replace"))


def sendable(text: str) -> str:
    """Replace lone surrogates. One of them would end the SDK's whole stdio server."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def is_larger(value: Json, characters: int) -> bool:
    """Whether the number of characters, values and digits exceeds `characters`, about. Reads no more than that."""
    todo = [value]
    for each in todo:  # which grows
        characters -= 1
        if isinstance(each, str):
            characters -= len(each)
        elif isinstance(each, int):
            characters -= each.bit_length() // 4
        elif isinstance(each, list | dict) and (characters := characters - len(each)) >= 0:
            todo += each if isinstance(each, list) else [*each, *each.values()]
        if characters < 0:
            return True
    return False
