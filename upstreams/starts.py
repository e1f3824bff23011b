"""How many upstreams are being started at once."""

import os
from typing import Final

import anyio

STARTED_AT_ONCE: Final = max(16, 8 * (os.cpu_count() or 1))
"""More would leave the portal too little of the processors to answer those that are ready."""

TURN_SECONDS: Final = 2.0


class Turn:
    """Being one of those that start."""

    def __init__(self, starts: "Starts", since: float) -> None:
        self.since = since
        self._starts = starts

    def end(self) -> None:
        """Let the next one start; more than once does no harm."""
        self._starts.end(self)


class Starts:
    """Turns at starting or connecting, in the order in which they were asked for.

    Five hundred servers that start at once are ready none the sooner, and nobody is answered meanwhile. An upstream
    that is not ready after two seconds keeps its turn no longer: it waits for something, and must not hold up the rest.
    """

    def __init__(self) -> None:
        self._queue = anyio.Lock()
        self._turns: dict[Turn, None] = {}
        self._ended = anyio.Event()

    async def begin(self) -> Turn:
        """Wait for a turn."""
        async with self._queue:
            while len(self._turns) >= STARTED_AT_ONCE:
                oldest = next(iter(self._turns))
                self._ended = anyio.Event()
                with anyio.move_on_after(oldest.since + TURN_SECONDS - anyio.current_time()) as waiting:
                    await self._ended.wait()
                if waiting.cancelled_caught:
                    oldest.end()
            turn = Turn(self, anyio.current_time())
            self._turns[turn] = None
            return turn

    def end(self, turn: Turn) -> None:
        self._turns.pop(turn, None)
        self._ended.set()
