"""Passages of JSON text that are all there is to look at for something, however long the text is."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from upstreams.steps import STEP_BYTES, STEP_ITEMS, Steps

Place: TypeAlias = tuple[int, int]
"""Where something begins and ends."""

BETWEEN: Final = b"\xfe"
"""Between passages that are put together. It is in no UTF-8, so nothing is found from one into the next."""

# What escapes are made of, those of a text within as well, but for the last byte: behind another no escape goes on.
_PARTS: Final = b"\\u0123456789abcdefABCDEF"
_BREAK: Final = re.compile(rb"[^\\u0-9a-fA-F]")


_MOST_PASSAGES: Final = 200_000  # with more of them there is more in them than is taken out


@dataclass(frozen=True)
class Clue:
    """What is looked for begins with it, or has it in it."""

    pattern: re.Pattern[bytes]
    bytes_before: int
    """So many bytes of what is looked for stand before it at most."""

    longest_bytes: int
    """Of what is looked for; the pattern finds nothing longer."""


def passages(text: bytes, clues: Iterable[Clue]) -> Steps[list[Place]]:
    """Those that have in them all that is told by the clues; none begins or ends within an escape."""
    near: list[Place] = []
    for each in clues:
        near += yield from _near(text, each)
    near = yield from merged(near)
    whole: list[Place] = []
    seen_to = 0
    for number, (start, end) in enumerate(near, 1):
        if number % STEP_ITEMS == 0:
            yield
        if end <= seen_to:
            continue
        start = yield from _break_before(text, start, seen_to)
        if whole and start == seen_to:
            start, _ = whole.pop()
        seen_to = yield from _break_behind(text, end)
        whole.append((start, seen_to))
    return whole


def put_together(text: bytes, places: Iterable[Place]) -> bytes:
    return BETWEEN.join(text[start:end] for start, end in places)


def taken_apart(found: Iterable[Place], places: Iterable[Place]) -> Steps[list[Place]]:
    """Where in the text stands what was found in these passages of it, put together; all are in order."""
    apart: list[Place] = []
    following = iter(places)
    ahead, end = 0, -len(BETWEEN)
    for number, (found_start, found_end) in enumerate(found, 1):
        while found_start + ahead >= end:
            start, following_end = next(following)
            ahead += start - end - len(BETWEEN)
            end = following_end
        apart.append((found_start + ahead, found_end + ahead))
        if number % STEP_ITEMS == 0:
            yield
    return apart


def merged(found: Iterable[Place]) -> Steps[list[Place]]:
    """In order, those that overlap as one."""
    all_apart: list[Place] = []
    for number, (start, end) in enumerate(sorted(found), 1):
        if all_apart and start < all_apart[-1][1]:
            before = all_apart.pop()
            start, end = before[0], max(before[1], end)
        all_apart.append((start, end))
        if number % STEP_ITEMS == 0:
            yield
    return all_apart


def _near(text: bytes, clue: Clue) -> Steps[list[Place]]:
    """With room for whatever has a clue in it that begins in the first `longest_bytes` from where one was found: the
    next is looked for behind these, so that clues side by side take no longer than others.
    """
    near: list[Place] = []
    at = stepped_at = 0
    while at < len(text):
        found = clue.pattern.search(text, at, at + STEP_BYTES + clue.longest_bytes)
        if found is None:
            at += STEP_BYTES
        else:
            start = max(0, found.start() - clue.bytes_before)
            at = found.start() + clue.longest_bytes
            if near and start <= near[-1][1]:
                start, _ = near.pop()
            near.append((start, at + clue.longest_bytes))
            if len(near) > _MOST_PASSAGES:
                raise ValueError("more passages than the portal looks at")
        if at - stepped_at >= STEP_BYTES:
            stepped_at = at
            yield
    return near


def _break_before(text: bytes, place: int, floor: int) -> Steps[int]:
    """The last that no escape goes across, at or before the place; the floor is one."""
    while place > floor:
        start = max(floor, place - STEP_BYTES)
        kept = text[start:place].rstrip(_PARTS)
        if kept:
            return start + len(kept)
        place = start
        yield
    return floor


def _break_behind(text: bytes, place: int) -> Steps[int]:
    """The first that no escape goes across, behind the place."""
    while place < len(text):
        found = _BREAK.search(text, place, place + STEP_BYTES)
        if found:
            return found.end()
        place += STEP_BYTES
        yield
    return len(text)
