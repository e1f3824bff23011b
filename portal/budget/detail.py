"""How much of an answer is shown: a ladder of caps. Each rung shows all that the one below shows, and more."""

from dataclasses import dataclass

MAX_DEPTH = 64
"""Levels of nesting ever shown; JSON readers, MCP's own among them, give up somewhere between 100 and 1,000."""


@dataclass(frozen=True)
class Detail:
    """The caps of one rung: characters of a text, items of a list, keys of an object, levels of nesting."""

    characters: int
    items: int
    keys: int
    depth: int
    notices: int
    """How many cuts are told one by one."""


def _rung(characters: int) -> Detail:
    # A text is worth its characters, a list's item sixteen of them, a key one: texts are cut before items are left
    # out, and keys are left out last. The lowest rung shows no more of a value than how large it is.
    return Detail(
        characters=characters,
        items=characters // 16,
        keys=max(8, characters),
        depth=min(MAX_DEPTH, characters // 4),
        notices=min(6, characters // 32),
    )


def _rungs() -> tuple[Detail, ...]:
    characters = [0, 4, 8]
    while characters[-1] < 1 << 24:
        characters.append(characters[-1] + max(1, characters[-1] // 20))
    return tuple(map(_rung, characters))


EVERYTHING = Detail(1 << 62, 1 << 62, 1 << 62, MAX_DEPTH, notices=6)

LADDER = (*_rungs(), EVERYTHING)
"""From next to nothing up, in steps of a twentieth."""
