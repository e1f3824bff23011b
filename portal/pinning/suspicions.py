"""Words in definitions of tools that speak to the model behind the back of whoever installed the upstream.

A hint for reviewers, no defence: whoever knows the list writes around it. What defends is the quarantine of changed
definitions, that hidden characters reach nobody, and that scripts can do no more than the manifest grants.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

import anyio
import anyio.to_thread
import structlog

from manifests.json_value import Json
from manifests.lock import Pin
from manifests.names import is_named_as_method
from portal.library.plain_text import escaped, hidden_places
from portal.pinning.pins import pins_of
from upstreams.recorded_tool import RecordedTool
from upstreams.upstream import Upstream

log = structlog.get_logger()

MAX_SAID: Final = 5
"""Suspicions told of one tool."""

MAX_LOGGED: Final = 20
"""Suspicions logged of one listing of an upstream; more are counted, and `check` tells all of them."""

_EXCERPT: Final = 60
_LONGEST_PLACE: Final = 500
_PROSE: Final = ("description", "title", "instructions")
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
_TOOL_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[_.-][A-Za-z0-9]+)+|[a-z]+(?:[A-Z][a-z0-9]+)+")
"""A name that is no common word."""


@dataclass(frozen=True)
class Suspicion:
    """What is odd in one text of a definition; `place` is its path, such as `inputSchema.properties.a.description`."""

    name: str
    place: str
    what: str
    excerpt: str

    def __str__(self) -> str:
        return f'{escaped(self.name)}: {self.what} in its {escaped(self.place)}: "{self.excerpt}"'


def suspicions(pins: Iterable[Pin], others: Iterable[Pin] = ()) -> Iterator[Suspicion]:
    """What is odd in definitions; names of tools are looked for in `others`, those of all upstreams."""
    owners: defaultdict[str, set[str]] = defaultdict(set)
    for pin in others:
        if pin.tool is not None and _TOOL_NAME.fullmatch(pin.tool):
            owners[pin.tool].add(pin.upstream)
    for pin in pins:
        yield from islice(_of_pin(pin, owners), MAX_SAID)


class SuspicionLog:
    """Logs what is odd in each listing, one after the other and in a thread: nobody waits for it."""

    def __init__(self) -> None:
        self._noted: dict[str, Upstream] = {}
        self._seen: dict[str, tuple[tuple[RecordedTool, ...], str | None]] = {}
        self._changed = anyio.Event()

    def note(self, upstream: Upstream) -> None:
        """The upstream may list something else than before."""
        listed = upstream.tools, upstream.instructions
        known = self._seen.get(upstream.name, ((), None))
        if known[0] is not listed[0] or known[1] != listed[1]:
            self._seen[upstream.name] = listed
            self._noted[upstream.name] = upstream
            self._changed.set()

    async def keep(self) -> None:
        """Look at what is noted until cancelled."""
        while True:
            while self._noted:
                _, upstream = self._noted.popitem()
                pins = pins_of(upstream)
                found = await anyio.to_thread.run_sync(lambda pins: [*suspicions(pins)], pins)
                for each in found[:MAX_LOGGED]:
                    log.warning("definition_suspicious", upstream=upstream.name, told=str(each))
                if more := len(found[MAX_LOGGED:]):
                    log.warning("definitions_suspicious", upstream=upstream.name, more=more)
            self._changed = anyio.Event()
            await self._changed.wait()


def _of_pin(pin: Pin, owners: Mapping[str, Collection[str]]) -> Iterator[Suspicion]:
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
        if owners and place.endswith(_PROSE):
            yield from islice(_names(pin, place, text, owners), 1)


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


def _names(pin: Pin, place: str, text: str, owners: Mapping[str, Collection[str]]) -> Iterator[Suspicion]:
    """Names of tools that other upstreams have, and this one has not."""
    for found in _TOOL_NAME.finditer(text):
        owned = owners.get(found[0]) or owners.get(found[0].rpartition(".")[2], ())
        if owned and pin.upstream not in owned:
            told = f"the name of a tool of {', '.join(sorted(owned)[:3])}"
            yield _suspicion(pin, place, told, text, found.span())


def _suspicion(pin: Pin, place: str, what: str, text: str, span: tuple[int, int]) -> Suspicion:
    first = max(0, span[0] - _EXCERPT // 2)
    excerpt = text[first : min(span[1], span[0] + _EXCERPT) + _EXCERPT // 2]
    return Suspicion(pin.name, place, what, escaped(excerpt))
