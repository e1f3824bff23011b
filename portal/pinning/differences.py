"""What upstreams say now, beside what was accepted, and the lockfile that accepts it."""

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path
from typing import Final, Literal

from manifests.json_value import Json
from manifests.lock import Lock, Pin, read_lock, write_lock
from portal.library.plain_text import escaped

MAX_DETAILS: Final = 60
"""Places told of one tool; more are counted."""

MAX_SHOWN: Final = 1_000
"""Characters told of a text around what differs in it; more are counted."""

HASH_DIGITS: Final = 32
"""An upstream writes both definitions that it may list in turn: with 16 it could find two of one hash."""

_CONTEXT: Final = 40
_HASHED: Final = re.compile(rf"(.*)@([0-9a-f]{{{HASH_DIGITS}}})", re.DOTALL)

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

    def places(self) -> Iterator[str]:
        """For a person, nothing hidden: each place that differs, and of a new tool all that it says of itself."""
        details = _details(self.before, self.now)
        for number, detail in enumerate(details):
            if number == MAX_DETAILS:
                yield f"and {1 + sum(1 for _ in details)} more places"
                return
            yield detail


def differences(accepted: Mapping[tuple[str, str | None], Pin], now: Iterable[Pin]) -> list[Difference]:
    """Everything that differs, by name."""
    listed = {(pin.upstream, pin.tool): pin for pin in now}
    found: list[Difference] = []
    for key, pin in listed.items():
        before = accepted.get(key)
        if before is None or not before.is_same(pin):
            found.append(Difference("changed" if before else "new", before, pin))
    found += [Difference("gone", pin, None) for key, pin in accepted.items() if key not in listed]
    return sorted(found, key=lambda each: (each.pin.upstream, each.pin.tool or ""))


def hash_of(found: Iterable[Difference]) -> str:
    """What is accepted with these, whatever was accepted before: 32 hexadecimal digits."""
    said = [[*each.key, "gone" if each.now is None else each.now.digest] for each in found]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:HASH_DIGITS]


def meant(found: Sequence[Difference], pattern: str) -> list[Difference]:
    """The differences that a pattern of `--accept` means: `files.*`, `files.read_file`, `files` for its instructions.

    One that ends in `@` and a hash means only what was shown with that hash: all that the pattern before it means, or
    one of those. That holds for a tool, too, whose own name ends like that.
    """
    hashed = _HASHED.fullmatch(pattern)
    if hashed is None:
        return [each for each in found if fnmatchcase(each.pin.name, pattern)]
    named = [each for each in found if fnmatchcase(each.pin.name, hashed[1])]
    return named if hash_of(named) == hashed[2] else [each for each in named if each.hash == hashed[2]]


def accept(path: Path, lock: Lock | None, chosen: Sequence[Difference]) -> bool:
    """Write the lockfile that accepts these beside what `lock` accepts, which is None if there was no such file.

    Nothing is written, and the answer is False, where somebody else has written the file since it was read, or is
    writing it: what they accepted would be lost.

    Raises:
        OSError, ManifestError: The file cannot be read or written.
    """
    with _locked(path.parent) as is_ours:
        if not is_ours or _digests(read_lock(path)) != _digests(lock):
            return False
        pins = {} if lock is None else dict(lock.pins)
        for difference in chosen:
            pins.pop(difference.key, None)
            if difference.now is not None:
                pins[difference.key] = difference.now
        write_lock(path, pins.values())
    return True


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Whether nobody else has the folder locked; the file itself is replaced, so a lock of it says nothing."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield _is_locked(descriptor)
    finally:
        os.close(descriptor)


def _is_locked(folder: int) -> bool:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: reading the file just before it is written has to do
        return True
    return True


def _digests(lock: Lock | None) -> dict[tuple[str, str | None], str | None] | None:
    return None if lock is None else {key: pin.digest for key, pin in lock.pins.items()}


def _details(before: Pin | None, now: Pin | None) -> Iterator[str]:
    if now is None:
        return
    if before is None:
        yield f'description: "{_cut(now.description, 0, len(now.description))}"'
        for key, value in sorted(now.definition.items()):
            if key == "inputSchema" and isinstance(value, dict) and isinstance(value.get("properties"), dict):
                for name, parameter in value["properties"].items():
                    yield f"inputSchema.properties.{escaped(name)}: {_shown(parameter)}"
                value = {name: rest for name, rest in value.items() if name != "properties"}
            yield f"{escaped(key)}: {_shown(value)}"
        return
    yield from _of_text("description", before.description, now.description)
    yield from _of_value("", dict(before.definition), dict(now.definition))
    if now.digest is None:
        yield "its definition nests too deep to be accepted"


def _of_value(path: str, before: Json, now: Json) -> Iterator[str]:
    """The places at which two values differ. Both are of pins, so they do not nest deeper than JSON is written."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted(before.keys() | now.keys()):
            under = f"{path}.{escaped(key)}".lstrip(".")
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
        yield from _of_text(path, _json(before), _json(now), quote="")


def _of_text(path: str, before: str, now: str, quote: str = '"') -> Iterator[str]:
    if before == now:
        return
    start = _same(before, now)
    end = _same(before[start:][::-1], now[start:][::-1])
    yield f"{path} was {quote}{_cut(before, start, len(before) - end)}{quote}"
    yield f"{' ' * len(path)} is  {quote}{_cut(now, start, len(now) - end)}{quote}"


def _same(one: str, other: str) -> int:
    """With how many equal characters two texts begin."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(one), len(other)))


def _shown(value: Json) -> str:
    text = _json(value)
    return _cut(text, 0, len(text))


def _cut(text: str, start: int, end: int) -> str:
    """The text from `start` to `end` with a little of what is around it."""
    first, last = max(0, start - _CONTEXT), min(len(text), end + _CONTEXT)
    shown = text[first : min(last, first + MAX_SHOWN)]
    more = last - first - len(shown)
    told = f" [{more:,} more characters]" if more > 0 else "…" if last < len(text) else ""
    return f"{'…' if first else ''}{escaped(shown)}{told}"


def _json(value: Json) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (RecursionError, ValueError):
        return "nested too deep to be shown"
