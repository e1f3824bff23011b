"""Keeps long answers that come as fast as the portal reads from taking its time from the others."""

import math
from typing import Final

import anyio

from upstreams.steps import STEP_BYTES

BYTES_AT_ONCE: Final = 4 * 1024 * 1024.0
BYTES_A_SECOND: Final = 60 * 1024 * 1024.0
"""That is a piece of `STEP_BYTES` in a clock's tick of a millisecond: somebody else's call meets one or two of them.
Few answers come faster but those of servers on this machine."""


class Pace:
    """Of all long answers of one upstream together, four MiB may come at once, and after that sixty a second."""

    def __init__(self) -> None:
        self._left = 0.0
        self._as_of = -math.inf

    def rest_seconds(self, piece: bytes, answer_bytes: int) -> float:
        """How long to rest behind a piece of an answer of which so many bytes have come by now."""
        if answer_bytes <= STEP_BYTES:
            return 0.0
        now = anyio.current_time()
        regained = (now - self._as_of) * BYTES_A_SECOND
        self._left = min(BYTES_AT_ONCE, self._left + regained) - len(piece)
        self._as_of = now
        return max(0.0, -self._left / BYTES_A_SECOND)

    async def keep(self, piece: bytes, answer_bytes: int) -> None:
        """The same, and rest."""
        if rest_seconds := self.rest_seconds(piece, answer_bytes):
            await anyio.sleep(rest_seconds)
