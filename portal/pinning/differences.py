"""What upstreams say now, beside what was accepted: for a person who decides whether to accept it."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import chain
from typing import Final, Literal

from manifests.json_value import Json
from manifests.lock import Pin
from portal.library.plain_text import spelt_out

MAX_DETAILS: Final = 60
"""Places told of one tool; more are counted."""

MAX_SHOWN: Final = 1_000
"""Characters told of a text around what differs in it; more are counted."""

HASH_DIGITS: Final = 32
"""Of what a person copies. An upstream writes both definitions that it may list in turn, and with half as many digits
it could find two of one hash.
"""

_CONTEXT: Final = 40

Kind = Literal["new", "changed", "gone"]


@dataclass(frozen=True)
class Difference:
    """One tool, or an upstream's instructions, that are not as they were accepted."""

    kind: Kind
    before: Pin | None
    now: Pin | None

    @property
    def pin(self) -> Pin:
        pin = self.now or self.before
        assert pin is not None, "it is of something"
        return pin

    @property
    def key(self) -> tuple[str, str | None]:
        return self.pin.upstream, self.pin.tool

    @property
    def hash(self) -> str:
        return hash_of([self])

    def is_meant(self, pattern: str) -> bool:
        """Whether a pattern of `--accept` means it: `files.*`, `files.read_file`, or `files` for the instructions."""
        return fnmatchcase(self.pin.name, pattern)

    def lines(self) -> Iterator[str]:
        """For a person, nothing hidden: what it is, as `--accept` takes it, and then each place that differs."""
        what = "instructions of " if self.pin.tool is None else ""
        yield f"{self.kind:<8}{what}{spelt_out(self.pin.name)}@{self.hash}"
        yield from (f"    {place}" for place in self.places())

    def places(self) -> Iterator[str]:
        details = _details(self.before, self.now)
        for number, detail in enumerate(details):
            if number == MAX_DETAILS:
                yield f"and {1 + sum(1 for _ in details)} more places"
                return
            yield detail


def hash_of(found: Iterable[Difference]) -> str:
    """What is accepted with these, whatever was accepted before: 32 hexadecimal digits."""
    said = [[*each.key, "gone" if each.now is None else each.now.digest] for each in found]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:HASH_DIGITS]


def differences(accepted: Mapping[tuple[str, str | None], Pin], now: Iterable[Pin]) -> list[Difference]:
    """Everything that differs, by name. What was accepted of upstreams that are not to be compared is not given."""
    listed = {(pin.upstream, pin.tool): pin for pin in now}
    found: list[Difference] = []
    for key, pin in listed.items():
        before = accepted.get(key)
        if before is None or not before.is_same(pin):
            found.append(Difference("changed" if before else "new", before, pin))
    found += [Difference("gone", pin, None) for key, pin in accepted.items() if key not in listed]
    return sorted(found, key=lambda each: (each.pin.upstream, each.pin.tool or ""))


def _details(before: Pin | None, now: Pin | None) -> Iterator[str]:
    if now is None:
        return
    if before is None:
        yield from _of_new(now)
        return
    yield from _of_text("description", before.description, now.description)
    yield from _of_value("", dict(before.definition), dict(now.definition))
    if now.digest is None:
        yield "its definition nests too deep to be accepted"


def _of_new(now: Pin) -> Iterator[str]:
    """Everything that a tool says of itself, each parameter on a line of its own."""
    yield f'description: "{_cut(now.description, 0, len(now.description))}"'
    yield f"annotations: {spelt_out(_json(now.definition.get('annotations') or {}))}"
    for key, value in sorted(now.definition.items()):
        if key == "inputSchema" and isinstance(value, dict) and isinstance(value.get("properties"), dict):
            for name, parameter in value["properties"].items():
                yield f"inputSchema.properties.{spelt_out(name)}: {_shown(parameter)}"
            value = {name: rest for name, rest in value.items() if name != "properties"}
        if key != "annotations":
            yield f"{spelt_out(key)}: {_shown(value)}"


def _of_text(path: str, before: str, now: str, quote: str = '"') -> Iterator[str]:
    if before == now:
        return
    start = next(
        (index for index, (a, b) in enumerate(zip(before, now, strict=False)) if a != b),
        min(len(before), len(now)),
    )
    room = min(len(before), len(now)) - start
    end = next((n for n in range(room) if before[-1 - n] != now[-1 - n]), room)
    yield f"{path} was {quote}{_cut(before, start, len(before) - end, is_exact=True)}{quote}"
    yield f"{' ' * len(path)} is  {quote}{_cut(now, start, len(now) - end, is_exact=True)}{quote}"


def _cut(text: str, start: int, end: int, *, is_exact: bool = False) -> str:
    """The text from `start` to `end` with a little of what is around it; if it is to be exact, so that no two look the
    same because they differ in what is not seen by itself.
    """
    first, last = max(0, start - _CONTEXT), min(len(text), end + _CONTEXT)
    shown = text[first : min(last, first + MAX_SHOWN)]
    more = last - first - len(shown)
    told = f" [{more:,} more characters]" if more > 0 else "…" if last < len(text) else ""
    exactly = range(start - first, end - first) if is_exact else range(0)
    return f"{'…' if first else ''}{spelt_out(shown, exactly)}{told}"


def _of_value(path: str, before: Json, now: Json) -> Iterator[str]:
    """The places at which two values differ. Both are of pins, so they do not nest deeper than JSON is written."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted(before.keys() | now.keys()):
            name = spelt_out(key, range(len(key)))  # others may differ in what is not seen by itself
            under = f"{path}.{name}" if path else name
            if key not in before:
                yield f"{under} is new: {_shown(now[key])}"
            elif key not in now:
                yield f"{under} is gone: {_shown(before[key])}"
            else:
                yield from _of_value(under, before[key], now[key])
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        pairs = zip(before, now, strict=True)
        yield from chain.from_iterable(_of_value(f"{path}[{n}]", *pair) for n, pair in enumerate(pairs))
    elif isinstance(before, str) and isinstance(now, str):
        yield from _of_text(path, before, now)
    elif before != now or type(before) is not type(now):
        # As texts, of which what differs is shown: of two long lists that differ at their end, the ends.
        yield from _of_text(path, _json(before), _json(now), quote="")


def _shown(value: Json) -> str:
    text = _json(value)
    return _cut(text, 0, len(text))


def _json(value: Json) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (RecursionError, ValueError):
        return "nested too deep to be shown"
