"""Keeps streams of events that bring no messages from taking the portal's time from the others."""

import math
from typing import Final

import anyio

LINES_AT_ONCE: Final = 50
DATA_LINES_AT_ONCE: Final = 500
LINE_BYTES: Final = 1024
"""A line that says nothing counts once more for each."""

PAUSE_SECONDS: Final = 0.05
"""So that of somebody's calls, one after the other, fewer than one in a hundred meet what is read in between."""

AWAITED_PAUSE_SECONDS: Final = 0.004
"""After the data lines of a message that somebody waits for: reading them takes a third of that."""

SHORTEST_PAUSE_SECONDS: Final = 0.001
SAVED_SECONDS: Final = 10.0
"""Of rests that nothing needed, so that sixty-four calls, each kept alive by sixty comments, are read without."""

LINES_OF_MESSAGE: Final = 8
"""That one message may have beside what it says, which may have as many: its kind, its id, its end and so on."""


class Rests:
    """Of all streams of one upstream, one after the other: however many it sends, it does not rest less."""

    def __init__(self) -> None:
        self._end = -math.inf
        self._awaited_end = -math.inf

    async def rest(self, seconds: float) -> None:
        """Until those before this one and this one are over, or just for everybody else's turn where fewer are due."""
        self._end = anyio.current_time() + self.due_seconds + seconds
        await anyio.sleep(max(SHORTEST_PAUSE_SECONDS, self.due_seconds))

    async def rest_awaited(self, seconds: float) -> None:
        """The same for what somebody waits for, which does not wait behind what nobody does; nothing is saved."""
        now = anyio.current_time()
        self._awaited_end = max(now, self._awaited_end) + seconds
        await anyio.sleep(self._awaited_end - now)

    @property
    def due_seconds(self) -> float:
        """Until they are over; a negative number is what was not needed."""
        return max(-SAVED_SECONDS, self._end - anyio.current_time())


class BarrenLines:
    """Counts those of one stream, for it to rest after fifty.

    Comments, blank lines, events without data and those of other kinds each cost as much time as a short message, and
    nobody counts them behind this. The lines of a message that has many are read in larger portions, and with less rest
    where somebody waits for it: it ends at the cap, or when it is given up.
    """

    def __init__(self, rests: Rests) -> None:
        self._rests = rests
        self._lines = 0
        self._data_lines = 0

    def note(self, line_bytes: int) -> None:
        """One more that says nothing."""
        self._lines += 1 + line_bytes // LINE_BYTES

    def note_data(self) -> None:
        """One of an event's data."""
        self._data_lines += 1

    def end_message(self, lines: int, data_lines: int) -> None:
        """So many of those that were noted belonged to a message."""
        self._lines = max(0, self._lines - min(lines, LINES_OF_MESSAGE))
        self._data_lines = max(0, self._data_lines - min(data_lines, LINES_OF_MESSAGE))

    @property
    def are_many(self) -> bool:
        """Whether it is time to rest."""
        return self._lines >= LINES_AT_ONCE or self._data_lines >= DATA_LINES_AT_ONCE

    async def rest(self, *, is_awaited: bool) -> None:
        """For as long as is due; `is_awaited` says whether somebody waits for what the stream is to bring."""
        portions = self._lines / LINES_AT_ONCE
        data_portions = self._data_lines / DATA_LINES_AT_ONCE
        self._lines = self._data_lines = 0
        if not is_awaited:
            portions += data_portions
        elif data_portions:
            await self._rests.rest_awaited(AWAITED_PAUSE_SECONDS * data_portions)
        if portions:
            await self._rests.rest(PAUSE_SECONDS * portions)
