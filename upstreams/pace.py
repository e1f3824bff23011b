"""Keeps an answer that comes as fast as the portal reads from taking its time from the others."""

from typing import Final

import anyio

BYTES_AT_ONCE: Final = 8 * 1024 * 1024
BYTES_BETWEEN_RESTS: Final = 1024 * 1024
REST_SECONDS: Final = 0.02


class Pace:
    """Of one answer, at most 50 MiB a second once it is long: few come faster but those of a server on this machine."""

    def __init__(self) -> None:
        self._next_rest = BYTES_AT_ONCE

    async def keep(self, read_bytes: int) -> None:
        """Rest, if it is time to, now that so many bytes of the answer were read."""
        if read_bytes >= self._next_rest:
            self._next_rest = read_bytes + BYTES_BETWEEN_RESTS
            await anyio.sleep(REST_SECONDS)
