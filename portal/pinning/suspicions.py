"""Words in definitions of tools that speak to the model behind the back of whoever installed the upstream.

A report, not a defence: whoever knows the list writes around it. What defends is that a definition which changed is
quarantined, that hidden characters reach nobody, and that scripts can do no more than the manifest grants.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, Self

from manifests.json_value import Json
from manifests.lock import Pin
from manifests.tool_names import is_named_as_method
from portal.library.hidden_characters import is_hidden_at
from portal.library.plain_text import code_point, spelt_out

MAX_TEXTS: Final = 10_000
"""Of one definition no more texts are looked at, which is told; those for readers come first."""

MAX_SAID: Final = 5
"""Suspicions told of one tool."""

_EXCERPT: Final = 60
_MAX_OWNERS: Final = 3
_LONGEST_PLACE: Final = 500
"""Of a longer path the end is told."""
_SHORTEST: Final = 4
"""A shorter text says nothing."""

_PROSE: Final = ("description", "title", "instructions")
"""Where names of other upstreams' tools are looked for: values and examples have names of their own."""


@dataclass(frozen=True)
class Suspicion:
    """What is odd in one text of a definition; `place` is its path, such as `inputSchema.properties.a.description`.

    A note is what honest upstreams have as well.
    """

    name: str
    place: str
    what: str
    excerpt: str
    is_note: bool = False

    def __str__(self) -> str:
        return f'{spelt_out(self.name)}: {self.what} in its {spelt_out(self.place)}: "{self.excerpt}"'


@dataclass(frozen=True)
class _Phrase:
    """`words` are looked for before the expression is tried, because most definitions have none of them."""

    what: str
    words: tuple[str, ...]
    expression: re.Pattern[str]


def _phrase(what: str, words: Sequence[str], expression: str) -> _Phrase:
    return _Phrase(what, tuple(words), re.compile(expression, re.IGNORECASE))


_PHRASES: Final = (
    _phrase(
        "markup for models",
        (
            "important",
            "system",
            "instruction",
            "secret",
            "hidden",
            "im_start",
            "inst]",
            "endoftext",
            "assistant",
        ),
        r"</?\s*(important|system|instructions?|secret|hidden|assistant|admin|sys)\s*/?>"
        r"|<\|[a-z_]{1,20}\|>|\[/?INST\]|<<SYS>>",
    ),
    _phrase("a comment that pages do not show", ("<!--",), r"<!--"),
    _phrase(
        "an instruction to disregard others",
        ("instruction", "prompt", "guideline", "rules"),
        r"\b(ignore|disregard|forget|override)\b[^.\n]{0,30}\b(previous|prior|above|earlier|other|system|all)\b"
        r"[^.\n]{0,30}\b(instructions?|prompts?|guidelines?|rules)\b",
    ),
    _phrase(
        "an instruction to hide something from the user",
        ("user", "anyone", "human", "silently", "secretly"),
        r"\b(do not|don'?t|never|without)\b[^.\n]{0,20}\b(tell|telling|mention|mentioning|inform|informing|reveal|"
        r"notify|notifying|show|alert|alerting|disclose)\b[^.\n]{0,30}\b(user|anyone|human)\b",
    ),
    _phrase(
        "an order about calls of other tools",
        ("before", "instead", "always", "first"),
        r"\bbefore\b[^.\n]{0,30}\b(using|calling|invoking|running)\b[^.\n]{0,20}\b(any|every|all|other)\b[^.\n]{0,20}"
        r"\btools?\b|\binstead of\b[^.\n]{0,20}\b(any|all) other tools?\b"
        r"|\balways (call|use|run|invoke) this (tool )?(first|before)\b",
    ),
    _phrase(
        "a place of credentials",
        ("ssh", "id_rsa", ".env", "mcp.json", "credentials", "passwd", "claude_desktop_config"),
        r"~/\.ssh|\bid_(rsa|ed25519)\b|\.cursor/mcp\.json|~/\.aws/credentials|/etc/(passwd|shadow)\b"
        r"|claude_desktop_config|~/\.env\b",
    ),
)
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_PLAIN_SPACE: Final = re.compile(r"[\n\r\t]")
_UNSEEN_LETTER: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\ufe00-\ufe0f\U000e0100-\U000e01ef]"
)
_LETTERS: Final = re.compile(r"[^\W\d_]+")
_ALIKE: Final = frozenset(("ARMENIAN", "CHEROKEE", "COPTIC", "CYRILLIC", "GREEK", "LATIN"))
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[_.-][A-Za-z0-9]+)+|[a-z]+(?:[A-Z][a-z0-9]+)+")


@dataclass(frozen=True)
class Neighbours:
    """Upstreams beside each other: which of them have tools of a name that is no common word, and all with a name."""

    owners: Mapping[str, Collection[str]] = field(default_factory=dict)
    namesakes: Mapping[str | None, Sequence[Pin]] = field(default_factory=dict)
    _copies: dict[tuple[str, str | None], bool] = field(default_factory=dict)

    @classmethod
    def of(cls, pins: Iterable[Pin]) -> Self:
        owners: defaultdict[str, list[str]] = defaultdict(list)
        namesakes: defaultdict[str | None, list[Pin]] = defaultdict(list)
        for pin in pins:
            if pin.tool is not None and _WORD.fullmatch(pin.tool):
                owners[pin.tool].append(pin.upstream)
            namesakes[pin.tool].append(pin)
        return cls(owners, namesakes)

    def has_copy(self, pin: Pin) -> bool:
        """Whether another upstream has it word for word: of several accounts of one server each speaks of tools that
        all have.
        """
        key = pin.upstream, pin.tool
        if key not in self._copies:
            others = (each for each in self.namesakes.get(pin.tool, ()) if each.upstream != pin.upstream)
            self._copies[key] = any(_says_the_same(pin, each) for each in others)
        return self._copies[key]


def _says_the_same(pin: Pin, other: Pin) -> bool:
    try:
        return pin.description == other.description and pin.definition == other.definition
    except RecursionError:
        return False


def suspicions(pins: Iterable[Pin], neighbours: Neighbours = Neighbours()) -> Iterator[Suspicion]:
    """What is odd in definitions.

    Looking at a thousand tools takes some 100 ms.
    """
    told: set[tuple[str, str]] = set()
    for pin in pins:
        yield from islice(_of_pin(pin, neighbours, told), MAX_SAID)


def _texts(pin: Pin) -> list[tuple[str, str]]:
    """The texts in a definition, names of properties, too; up to one more than are looked at."""
    prose: list[tuple[str, str]] = [("instructions" if pin.tool is None else "description", pin.description)]
    others: list[tuple[str, str]] = [] if pin.tool is None else [("name", pin.tool)]
    for path, text in _nested(dict(pin.definition)):
        kept = prose if path.endswith(_PROSE) else others
        if len(kept) <= MAX_TEXTS:
            kept.append((path, text))
    return [*prose, *others][: MAX_TEXTS + 1]


def _nested(definition: Json) -> Iterator[tuple[str, str]]:
    todo = [iter([("", definition)])]
    while todo:
        for path, value in todo[-1]:
            if isinstance(value, str):
                yield path, value
            elif isinstance(value, dict | list):
                todo.append(_parts(path, value))
                break
        else:
            todo.pop()


def _parts(path: str, value: dict[str, Json] | list[Json]) -> Iterator[tuple[str, Json]]:
    path = path[-_LONGEST_PLACE:]  # what nests without end would have paths without end
    if isinstance(value, list):
        yield from ((f"{path}[{index}]", each) for index, each in enumerate(value))
        return
    for key, each in value.items():
        if not key.isidentifier() or not key.isascii():
            yield f"{path}.(key)".lstrip("."), key
        yield f"{path}.{key}".lstrip("."), each


def _of_pin(pin: Pin, neighbours: Neighbours, told: set[tuple[str, str]]) -> Iterator[Suspicion]:
    if pin.tool is not None and not pin.tool.isascii():
        what = "characters beyond ASCII, which may look like others,"
        yield Suspicion(pin.name, "name", what, _coded(pin.tool), is_note=not _is_disguised(pin.tool))
    if pin.tool is not None and is_named_as_method(pin.tool):
        yield Suspicion(pin.name, "name", "the name of a request for resources or prompts", _coded(pin.tool))
    texts = _texts(pin)
    if len(texts) > MAX_TEXTS:
        place, text = texts.pop()
        yield _suspicion(
            pin, place, f"the first text that is not looked at, after {MAX_TEXTS:,},", text, (0, 0)
        )
    whole = "\n".join(text for _, text in texts)
    # First over all at once: most definitions have nothing to look at more closely.
    has_hidden, lowered = bool(_hidden(whole)), whole.lower()
    phrases = [phrase for phrase in _PHRASES if any(word in lowered for word in phrase.words)]
    for place, text in texts:
        if has_hidden and (hidden := _hidden(text)):
            yield _suspicion(pin, place, "hidden characters", text, (hidden[0], hidden[0] + 1))
        for phrase in phrases:
            if len(text) >= _SHORTEST and (found := phrase.expression.search(text)):
                yield _suspicion(pin, place, phrase.what, text, found.span())
        if neighbours.owners and place.endswith(_PROSE):
            yield from _names(pin, place, text, neighbours, told)


def _names(
    pin: Pin, place: str, text: str, neighbours: Neighbours, told: set[tuple[str, str]]
) -> Iterator[Suspicion]:
    """The first name of another upstream's tool. One that its own upstream has as well may mean either: of these one is
    told for each other upstream, so that listing a name does not silence what is said of it.
    """
    for found in _WORD.finditer(text):
        owners = neighbours.owners.get(found[0]) or neighbours.owners.get(found[0].rpartition(".")[2], ())
        is_own = pin.upstream in owners
        if is_own and neighbours.has_copy(pin):
            continue
        others = [owner for owner in owners if owner != pin.upstream]
        what = f"the name of a tool of {', '.join(others[:_MAX_OWNERS])}"
        if others and not is_own:
            yield _suspicion(pin, place, what, text, found.span())
            return
        new = {(pin.upstream, owner) for owner in others} - told
        if new:
            told |= new
            yield replace(
                _suspicion(pin, place, f"{what}, which it has, too,", text, found.span()), is_note=True
            )
            return


def _is_disguised(name: str) -> bool:
    """Whether letters of a word are of several alphabets that look alike, or the name is a variant of a plain one."""
    alphabets = (
        {unicodedata.name(each, "").partition(" ")[0] for each in word} for word in _LETTERS.findall(name)
    )
    return unicodedata.normalize("NFKC", name).isascii() or any(len(each & _ALIKE) > 1 for each in alphabets)


def _coded(text: str) -> str:
    return "".join(spelt_out(each) if each.isascii() else code_point(each) for each in text[:_EXCERPT])


def _suspicion(pin: Pin, place: str, what: str, text: str, span: tuple[int, int]) -> Suspicion:
    first = max(0, span[0] - _EXCERPT // 2)
    excerpt = text[first : min(span[1], span[0] + _EXCERPT) + _EXCERPT // 2]
    return Suspicion(pin.name, place, what, spelt_out(excerpt))


def _hidden(text: str) -> list[int]:
    """Where the first character stands that nobody sees. What only shapes letters and emoji is seen."""
    if text.isascii():
        return [found.start()] if (found := _CONTROL.search(text)) else []
    if _PLAIN_SPACE.sub("", text).isprintable() and not _UNSEEN_LETTER.search(text):
        return []
    for index, character in enumerate(text):
        is_mark = index == 0 and character == "\ufeff"
        if character not in "\n\r\t" and not is_mark and is_hidden_at(text, index):
            return [index]
    return []
