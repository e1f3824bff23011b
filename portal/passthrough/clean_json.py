"""JSON of upstreams, fit to be shown to people and models: without secrets, bounded, and sendable as UTF-8."""

import json
from collections.abc import Callable
from typing import Final, TypeAlias

from manifests.json_value import Json
from portal.budget.tokens import compact

MAX_DEPTH: Final = 32

Scrub: TypeAlias = Callable[[str, int], str]
"""The first characters of an upstream's text, as many as the number says, without its secrets."""


def printable(scrub: Scrub) -> Scrub:
    """The same without what moves a terminal's cursor, turns text around or hides in it; lines and tabs stay."""

    def shown(text: str, limit: int) -> str:
        told = scrub(text, limit)
        if told.isprintable():
            return told
        return "".join(each if each.isprintable() or each in "\n\t" else " " for each in told)

    return shown


def one_line(scrub: Scrub) -> Scrub:
    """The same in one line, so that nothing in it can pass for what somebody else says."""
    return lambda text, limit: " ".join(printable(scrub)(text, limit).split())


def clean_json(value: Json, scrub: Scrub, longest: int, depth: int = MAX_DEPTH) -> Json:
    """The same with texts of at most `longest` characters; what nests deeper than MAX_DEPTH is left out."""
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
    """The same with lone surrogates replaced in all of its texts, names too."""
    return json.loads(compact(value).encode("utf-8", "replace"))


def sendable(text: str) -> str:
    """The same with lone surrogates replaced: one of them would end the SDK's whole stdio server."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def is_larger(value: Json, characters: int) -> bool:
    """Whether it has more characters of text, and values, than that; it looks at no more of them."""
    todo = [value]
    while todo and characters >= 0:
        each = todo.pop()
        characters -= 1 + (len(each) if isinstance(each, str | list | dict) else 0)
        if characters >= 0 and isinstance(each, list | dict):
            todo += each if isinstance(each, list) else [*each, *each.values()]
    return characters < 0
