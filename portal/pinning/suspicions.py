"""Words in definitions of tools that speak to the model behind the back of whoever installed the upstream.

A hint for reviewers, no defence: whoever knows the list writes around it. What defends is the quarantine of changed
definitions, that hidden characters reach nobody, and that scripts can do no more than the manifest grants.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from manifests.json_value import Json
from manifests.lock import Pin
from manifests.names import is_named_as_method
from portal.library.plain_text import escaped, hidden_places

MAX_SAID: Final = 5
"""Suspicions told of one tool."""

_EXCERPT: Final = 60
_LONGEST_PLACE: Final = 500
_PHRASES: Final = tuple(
    (what, re.compile(expression, re.IGNORECASE))
    for what, expression in {
        "markup for models": (
            r"</?\s*(important|system|instructions?|secret|hidden|assistant|admin|sys)\s*/?>"
            r"|<\|[a-z_]{1,20}\|>|\[/?INST\]|<<SYS>>"
        ),
        "a comment that pages do not show": r"<!--",
        "an instruction to disregard others": (
            r"\b(ignore|disregard|forget|override)\b[^.\n]{0,30}\b(previous|prior|above|earlier|other|system|all)\b"
            r"[^.\n]{0,30}\b(instructions?|prompts?|guidelines?|rules)\b"
        ),
        "an instruction to hide something from the user": (
            r"\b(do not|don'?t|never|without)\b[^.\n]{0,20}\b(tell|telling|mention|mentioning|inform|informing|reveal|"
            r"notify|notifying|show|alert|alerting|disclose)\b[^.\n]{0,30}\b(user|anyone|human)\b"
        ),
        "an order about calls of other tools": (
            r"\bbefore\b[^.\n]{0,30}\b(using|calling|invoking|running)\b[^.\n]{0,20}\b(any|every|all|other)\b"
            r"[^.\n]{0,20}\btools?\b|\binstead of\b[^.\n]{0,20}\b(any|all) other tools?\b"
            r"|\balways (call|use|run|invoke) this (tool )?(first|before)\b"
        ),
        "a place of credentials": (
            r"~/\.ssh|\bid_(rsa|ed25519)\b|\.cursor/mcp\.json|~/\.aws/credentials|/etc/(passwd|shadow)\b"
            r"|claude_desktop_config|~/\.env\b"
        ),
    }.items()
)


@dataclass(frozen=True)
class Suspicion:
    """What is odd in one text of a definition; `place` is its path, such as `inputSchema.properties.a.description`."""

    name: str
    place: str
    what: str
    excerpt: str

    def __str__(self) -> str:
        return f'{escaped(self.name)}: {self.what} in its {escaped(self.place)}: "{self.excerpt}"'


def suspicions(pins: Iterable[Pin]) -> Iterator[Suspicion]:
    """What is odd in definitions."""
    for pin in pins:
        yield from islice(_of_pin(pin), MAX_SAID)


def _of_pin(pin: Pin) -> Iterator[Suspicion]:
    if pin.tool is not None and is_named_as_method(pin.tool):
        yield _suspicion(pin, "name", "the name of a request for resources or prompts", pin.tool, (0, 0))
    texts = [*_texts(pin)]
    # First over all at once: most definitions have nothing to look at more closely.
    whole = "\n".join(text for _, text in texts)
    phrases = [(what, expression) for what, expression in _PHRASES if expression.search(whole)]
    for place, text in texts:
        # A byte order mark in front is what some editors write.
        if hidden := [at for at in hidden_places(text, "\n\r\t") if at or text[0] != "\ufeff"]:
            yield _suspicion(pin, place, "hidden characters", text, (hidden[0], hidden[0] + 1))
        for what, expression in phrases:
            if found := expression.search(text):
                yield _suspicion(pin, place, what, text, found.span())


def _texts(pin: Pin) -> Iterator[tuple[str, str]]:
    """The texts of a definition by their paths, names of properties, too."""
    if pin.tool is not None:
        yield "name", pin.tool
    yield "instructions" if pin.tool is None else "description", pin.description
    todo: list[tuple[str, Json]] = [("", dict(pin.definition))]
    while todo:
        path, value = todo.pop()
        path = path[-_LONGEST_PLACE:]  # what nests without end would have paths without end
        if isinstance(value, str):
            yield path, value
        elif isinstance(value, dict):
            yield from ((f"{path}.(key)".lstrip("."), key) for key in value if not key.isidentifier())
            todo += [(f"{path}.{key}".lstrip("."), value[key]) for key in reversed(value)]
        elif isinstance(value, list):
            todo += [(f"{path}[{n}]", value[n]) for n in range(len(value) - 1, -1, -1)]


def _suspicion(pin: Pin, place: str, what: str, text: str, span: tuple[int, int]) -> Suspicion:
    first = max(0, span[0] - _EXCERPT // 2)
    excerpt = text[first : min(span[1], span[0] + _EXCERPT) + _EXCERPT // 2]
    return Suspicion(pin.name, place, what, escaped(excerpt))
