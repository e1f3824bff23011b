"""Compares tool definitions with those that the operator accepted: quarantine, differences, lockfile, suspicions.

The upstream's current listing counts. If a tool changes while a script runs, its next call is refused, even if that
call is waiting for a connection. Suspicions are hints for reviewers, not a defence.
"""

import difflib
import hashlib
import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice, takewhile
from pathlib import Path
from typing import Final, Literal

import structlog

from manifests.decision import Decision
from manifests.json_value import Json
from manifests.names import is_named_as_method
from manifests.own_files import Lock, Pin, read_lock, write_lock
from portal.base.plain_text import MARK, escaped, hidden_places
from upstreams.tools import ListedUpstream, RecordedTool, UpstreamListing, read_tool

log = structlog.get_logger()

QUARANTINED: Final = "quarantined"
_MAX_LOGGED: Final = 20
_NEW: Final = "the tool is new: {} does not list it, so no one has accepted it"
_GRANT: Final = (
    "The operator can review it with `mcp-code-portal lock --diff --verbose`, accept it with the `lock --accept` that "
    "this prints, and then run `mcp-code-portal reload`."
)


def pin_of(upstream: str, tool: RecordedTool) -> Pin:
    definition = {
        "title": tool.title,
        "inputSchema": tool.input_schema,
        "outputSchema": tool.output_schema,
        "annotations": tool.annotations,
        "inputExamples": list(tool.examples) or None,
    }
    present = {key: value for key, value in definition.items() if value is not None and value != {}}
    return Pin(upstream, tool.name, tool.description, present)


def pins_of(upstream: ListedUpstream) -> list[Pin]:
    """The pins of an upstream's tools and instructions, as it lists them now."""
    pins = [pin_of(upstream.name, tool) for tool in upstream.tools]
    if upstream.instructions:
        pins.insert(0, Pin(upstream.name, None, upstream.instructions))
    return pins


def accepted_listing(lock: Lock, upstream: str) -> UpstreamListing | None:
    """The part of an upstream that the lock accepts, in the form of a listing; None if it accepts nothing."""
    pins = [pin for pin in lock.pins.values() if pin.upstream == upstream]
    rows = [  # a pin leaves out an empty schema; without one, `read_tool` would assume another
        {"name": pin.tool, "description": pin.description, "inputSchema": {}, **pin.definition}
        for pin in pins
    ]
    tools = tuple(tool for row in rows if (tool := read_tool(row, lambda text: None)))
    instructions = next((pin.description for pin in pins if pin.tool is None), None)
    return UpstreamListing(tools, "", instructions) if pins else None


class Pins:
    """Decides which tools are quarantined. Without a lock none is."""

    def __init__(self, lock: Lock | None) -> None:
        self._lock = lock
        self._known: dict[str, tuple[tuple[RecordedTool, ...], Mapping[str, Decision]]] = {}

    def quarantined(self, upstream: str, tools: tuple[RecordedTool, ...]) -> Mapping[str, Decision]:
        """The decisions against quarantined tools, by name. `tools` are those that the upstream lists now.

        Hashing takes about 10 µs per tool. The result for the same listing is cached.
        """
        if self._lock is None:
            return {}
        known = self._known.get(upstream)
        if known is None or known[0] is not tools:
            found = {tool.name: why for tool in tools if (why := self._why(self._lock, upstream, tool))}
            known = self._known[upstream] = tools, found
            if found:
                names = [name[:200] for name in found][:_MAX_LOGGED]
                log.warning("tools_quarantined", upstream=upstream, count=len(found), tools=names)
        return known[1]

    def summary(self, upstream: ListedUpstream) -> str:
        """The upstream's instructions, if they were accepted. Without a lock also the server's name."""
        if self._lock is None:
            return upstream.instructions or upstream.server or ""
        accepted = self._lock.pins.get((upstream.name, None))
        now = Pin(upstream.name, None, upstream.instructions or "")
        return now.description if accepted is not None and accepted.is_same(now) else ""

    def _why(self, lock: Lock, upstream: str, tool: RecordedTool) -> Decision | None:
        accepted, now = lock.pins.get((upstream, tool.name)), pin_of(upstream, tool)
        if accepted is not None and accepted.is_same(now):
            return None
        if accepted is None:
            rule = _NEW.format(lock.file)
        elif now.digest is None:
            rule = "its definition is nested too deep to be accepted"
        else:
            rule = f"its definition changed since {lock.file} accepted it"
        where = lock.where(upstream, tool.name)
        return Decision("deny", rule, where, _GRANT, is_shown=False, code=QUARANTINED)


MAX_LINES: Final = 60
"""Lines shown per tool; a last line says that there are more."""

HASH_DIGITS: Final = 32
"""With 16 digits, an upstream could find two definitions with one hash, and swap them."""

_CONTEXT: Final = 2
_COLUMNS: Final = 100
_MAX_COMPARED: Final = 2_000
"""Lines from the first difference on: the time of difflib grows with their square."""
_HASHED: Final = re.compile(rf"(.*)@([0-9a-f]{{{HASH_DIGITS}}})", re.DOTALL)


@dataclass(frozen=True)
class Difference:
    """A tool, or an upstream's instructions, that differ from what was accepted."""

    kind: Literal["new", "changed", "gone"]
    before: Pin | None
    now: Pin | None

    @property
    def pin(self) -> Pin:
        pin = self.now or self.before
        assert pin is not None, "at least one side exists"
        return pin

    @property
    def key(self) -> tuple[str, str | None]:
        return self.pin.upstream, self.pin.tool

    @property
    def hash(self) -> str:
        return hash_of([self])

    def changes(self) -> Iterator[str]:
        """A unified diff of its JSON with two lines of context; at most MAX_LINES lines."""
        before, now = _lines(self.before), self.definition()
        pairs = zip(before, now, strict=False)
        same = max(0, sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs)) - _CONTEXT)
        end = same + _MAX_COMPARED
        found = difflib.unified_diff(before[same:end], now[same:end], n=_CONTEXT, lineterm="")
        shown = [line for line in islice(found, 2, None) if not line.startswith("@@")]
        yield from shown[:MAX_LINES]
        if len(shown) > MAX_LINES or before[end:] != now[end:]:
            yield "and more; `lock --diff --verbose` shows the whole definition"

    def definition(self) -> list[str]:
        """The whole current definition as lines for a person, hidden characters escaped. Empty if it is gone."""
        return _lines(self.now)


def differences(accepted: Mapping[tuple[str, str | None], Pin], now: Iterable[Pin]) -> list[Difference]:
    """All differences, ordered by name."""
    listed = {(pin.upstream, pin.tool): pin for pin in now}
    found: list[Difference] = []
    for key, pin in listed.items():
        before = accepted.get(key)
        if before is None or not before.is_same(pin):
            found.append(Difference("changed" if before else "new", before, pin))
    found += [Difference("gone", pin, None) for key, pin in accepted.items() if key not in listed]
    return sorted(found, key=lambda each: (each.pin.upstream, each.pin.tool or ""))


def hash_of(found: Iterable[Difference]) -> str:
    """Hash of the new state of these differences, whatever was accepted before: 32 hexadecimal digits."""
    state = [[*each.key, "gone" if each.now is None else each.now.digest] for each in found]
    return hashlib.sha256(json.dumps(state).encode()).hexdigest()[:HASH_DIGITS]


def matching(found: Sequence[Difference], pattern: str) -> list[Difference]:
    """The differences that match a pattern of `--accept`: `files.*`, `files.read_file`, `files` for its instructions.

    A pattern that ends in `@HASH` matches only what was shown with that hash: everything that the rest of the pattern
    matches, or one of those. A tool whose own name ends like that is not an exception.
    """
    hashed = _HASHED.fullmatch(pattern)
    if hashed is None:
        return [each for each in found if fnmatchcase(each.pin.name, pattern)]
    named = [each for each in found if fnmatchcase(each.pin.name, hashed[1])]
    return named if hash_of(named) == hashed[2] else [each for each in named if each.hash == hashed[2]]


def accept(path: Path, lock: Lock | None, chosen: Sequence[Difference]) -> bool:
    """Write a lockfile that accepts `chosen` in addition to `lock`, which is None if there was no file.

    If the file was changed since it was read, nothing is written and the result is False.

    Raises:
        OSError, ManifestError: The file cannot be read or written.
    """
    if _digests(read_lock(path)) != _digests(lock):
        return False
    pins = {} if lock is None else dict(lock.pins)
    for difference in chosen:
        pins.pop(difference.key, None)
        if difference.now is not None:
            pins[difference.key] = difference.now
    write_lock(path, pins.values())
    return True


def _digests(lock: Lock | None) -> dict[tuple[str, str | None], str | None] | None:
    return None if lock is None else {key: pin.digest for key, pin in lock.pins.items()}


def _lines(pin: Pin | None) -> list[str]:
    """The definition as lines of JSON. Long strings are wrapped."""
    if pin is None:
        return []
    try:
        text = json.dumps(
            {"description": pin.description, **pin.definition}, ensure_ascii=False, indent=1, sort_keys=True
        )
    except (RecursionError, ValueError):
        return ["nested too deep to be shown or accepted"]
    wrapped = textwrap.TextWrapper(
        _COLUMNS,
        subsequent_indent=MARK,
        expand_tabs=False,
        replace_whitespace=False,
        drop_whitespace=False,
        break_on_hyphens=False,
    )
    return [part for line in text.split("\n") for part in wrapped.wrap(escaped(line))]


MAX_SUSPICIONS: Final = 5
"""Suspicions reported per tool."""

_EXCERPT: Final = 60
_LONGEST_PLACE: Final = 500
_ZERO_WIDTH: Final = "\u200b\u200c\u200d\u2060\ufeff"
_MOST_ZERO_WIDTH: Final = 4
_PHRASES: Final = tuple(
    (what, re.compile(expression, re.IGNORECASE))
    for what, expression in {
        "markup for models": (
            r"</?\s*(important|system|instructions?|secret|hidden|assistant|admin|sys)\s*/?>"
            r"|<\|[a-z_]{1,20}\|>|\[/?INST\]|<<SYS>>"
        ),
        "an HTML comment": r"<!--\s*+(?!-->)",  # an empty one hides nothing
        "an instruction to ignore other instructions": (
            r"\b(ignore|disregard|forget|override)\b[^.\n]{0,30}\b(previous|prior|above|earlier|other|system|all)\b"
            r"[^.\n]{0,30}\b(instructions?|prompts?|guidelines?|rules)\b"
        ),
        "an instruction to hide something from the user": (
            r"\b(do not|don'?t|never|without)\b[^.\n]{0,20}\b(tell|telling|mention|mentioning|inform|informing|reveal|"
            r"notify|notifying|show|alert|alerting|disclose)\b[^.\n]{0,30}\b(user|anyone|human)\b"
        ),
        "an instruction about other tools": (
            r"\bbefore\b[^.\n]{0,30}\b(using|calling|invoking|running)\b[^.\n]{0,20}\b(any|every|all|other)\b"
            r"[^.\n]{0,20}\btools?\b|\binstead of\b[^.\n]{0,20}\b(any|all) other tools?\b"
            r"|\balways (call|use|run|invoke) this (tool )?(first|before)\b"
        ),
        # A path without a verb may be one that the tool refuses.
        "a path of credentials to read": (
            r"\b(read|open|load|cat|cop(y|ies)|send|pass|attach|upload|include|put|add|use|provide|contents?)\b[^\n]{0,60}"
            r"(~/\.ssh|\bid_(rsa|ed25519)\b|\.cursor/mcp\.json|~/\.aws/credentials|/etc/(passwd|shadow)\b"
            r"|claude_desktop_config|~/\.env\b)"
        ),
    }.items()
)


@dataclass(frozen=True)
class Suspicion:
    """A suspicious text in a definition. `place` is its path, such as `inputSchema.properties.a.description`."""

    name: str
    place: str
    what: str
    excerpt: str

    def __str__(self) -> str:
        return f'{escaped(self.name)}: {self.what} in its {escaped(self.place)}: "{self.excerpt}"'


def suspicions(pins: Iterable[Pin]) -> Iterator[Suspicion]:
    for pin in pins:
        yield from islice(_of_pin(pin), MAX_SUSPICIONS)


def _of_pin(pin: Pin) -> Iterator[Suspicion]:
    if pin.tool is not None and is_named_as_method(pin.tool):
        yield _suspicion(pin, "name", "the name of a request for resources or prompts", pin.tool, (0, 0))
    for place, text in _texts(pin):
        # Zero-width spaces come along with pasted text, and a byte order mark from some editors.
        hidden = hidden_places(text, "\n\r\t")
        if len(hidden) > min(_MOST_ZERO_WIDTH, len(text) // 40) or any(
            text[at] not in _ZERO_WIDTH for at in hidden
        ):
            yield _suspicion(pin, place, "hidden characters", text, (hidden[0], hidden[0] + 1))
        for what, expression in _PHRASES:
            if found := expression.search(text):
                yield _suspicion(pin, place, what, text, found.span())


def _texts(pin: Pin) -> Iterator[tuple[str, str]]:
    """The texts of a definition with their paths, including names of properties."""
    if pin.tool is not None:
        yield "name", pin.tool
    yield "instructions" if pin.tool is None else "description", pin.description
    todo: list[tuple[str, Json]] = [("", dict(pin.definition))]
    while todo:
        path, value = todo.pop()
        path = path[-_LONGEST_PLACE:]  # deep nesting makes long paths
        if isinstance(value, str):
            yield path, value
        elif isinstance(value, dict):
            # Identifiers of other scripts may have characters that no one sees.
            odd = (key for key in value if not (key.isascii() and key.isidentifier()))
            yield from ((f"{path}.(key)".lstrip("."), key) for key in odd)
            todo += [(f"{path}.{key}".lstrip("."), value[key]) for key in reversed(value)]
        elif isinstance(value, list):
            todo += [(f"{path}[{n}]", value[n]) for n in range(len(value) - 1, -1, -1)]


def _suspicion(pin: Pin, place: str, what: str, text: str, span: tuple[int, int]) -> Suspicion:
    first = max(0, span[0] - _EXCERPT // 2)
    excerpt = text[first : min(span[1], span[0] + _EXCERPT) + _EXCERPT // 2]
    return Suspicion(pin.name, place, what, escaped(excerpt))
