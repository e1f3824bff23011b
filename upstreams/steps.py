"""Work on what upstreams send, in steps between which everybody else has a turn.

A message may have 64 MiB. Whoever looks at all of it in one go holds the portal's event loop for so long, and a thread
would not help: what reads bytes quickly holds the interpreter's lock meanwhile.
"""

from collections.abc import Generator
from typing import Final, TypeAlias, TypeVar

import anyio
import anyio.lowlevel
from anyio.lowlevel import RunVar

T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, T]
"""Yields after each step, and returns what comes of it. What is small enough for one step is done without."""

STEP_BYTES: Final = 64 * 1024
"""What one step looks at: it takes a tenth of a millisecond to weigh them, and a few at most to build what they say."""

STEP_ITEMS: Final = 1_000
"""The same of things that each take about a microsecond."""

_TURNS: Final = 4
"""An answer that has come is read in one, then whoever reads messages goes on, and then who waits for it."""

_queue: Final = RunVar[anyio.Lock]("_queue")
"""Of each event loop."""


async def in_steps(steps: Steps[T]) -> T:
    """What comes of it; all others have a turn after each step."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value
        await turns_of_others()


async def turns_of_others() -> None:
    """Let everybody else have so many turns of the loop as it takes to answer who waits for what has come.

    All who work in steps take theirs one after the other, however many they are: never two between such turns.
    """
    try:
        queue = _queue.get()
    except LookupError:
        queue = anyio.Lock(fast_acquire=True)
        _queue.set(queue)
    async with queue:
        for _ in range(_TURNS):
            await anyio.lowlevel.checkpoint()


def last_place(text: bytes, word: bytes) -> Steps[int]:
    """Where the word stands last; -1 if it does not."""
    for end in range(len(text), 0, -STEP_BYTES):
        place = text.rfind(word, max(0, end - STEP_BYTES), end + len(word) - 1)
        if place >= 0:
            return place
        if end > STEP_BYTES:
            yield
    return -1
