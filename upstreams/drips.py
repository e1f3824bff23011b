"""Keeps an answer that comes drop by drop from taking the portal's time from the others."""

from typing import Final

import anyio

DROPS_AT_ONCE: Final = 16
DROP_BYTES: Final = 256
PAUSE_SECONDS: Final = 0.01


class Drips:
    """Rests after sixteen small pieces of one answer, so that the next ones come together.

    Each piece costs as much time as one of 64 KiB. Sixteen in 10 ms are more than people and models can read.
    """

    def __init__(self) -> None:
        self._pieces = 0
        self._bytes = 0

    async def rest(self, piece: bytes) -> None:
        """Note a piece that came."""
        self._pieces += 1
        self._bytes += len(piece)
        if self._pieces < DROPS_AT_ONCE:
            return
        are_drops = self._bytes < DROPS_AT_ONCE * DROP_BYTES
        self._pieces = self._bytes = 0
        if are_drops:
            await anyio.sleep(PAUSE_SECONDS)
