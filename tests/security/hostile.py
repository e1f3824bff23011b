"""What hostile scripts begin with, and a measure of what they do to everybody else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

RAW_HOST = "from wit_world.imports import host\n"
"""Past all that the guest checks: the host function itself."""

MOST_SECONDS = 2.0
"""The attacks below held the event loop for 3 to 40 s; the tests' machine may be slow."""

_TICK_SECONDS = 0.01

INTERPRETER = """
import sys
def interpreter():
    frame = sys._getframe()
    while frame:
        for value in list(frame.f_locals.values()):
            if type(value).__name__ == "Interpreter":
                return type(value)
        frame = frame.f_back
"""
"""Finds the class that the host calls into, to put other methods in the place of its own."""


@dataclass
class Delay:
    """The longest time for which the event loop, and so every other client, had to wait."""

    seconds: float = 0.0


@asynccontextmanager
async def watched() -> AsyncIterator[Delay]:
    delay = Delay()
    watching = asyncio.create_task(_watch(delay))
    try:
        yield delay
    finally:
        watching.cancel()


async def _watch(delay: Delay) -> None:
    loop = asyncio.get_running_loop()
    while True:
        began = loop.time()
        await asyncio.sleep(_TICK_SECONDS)
        delay.seconds = max(delay.seconds, loop.time() - began - _TICK_SECONDS)
