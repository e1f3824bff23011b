"""Keeps streams of events that bring no messages from taking the portal's time from the others."""

from typing import Final

import anyio

LINES_AT_ONCE: Final = 50
DATA_LINES_AT_ONCE: Final = 500
LINE_BYTES: Final = 1024
"""A line that says nothing counts once more for each."""

PAUSE_SECONDS: Final = 0.05
"""So that of somebody's calls, one after the other, fewer than one in a hundred meet what is read in between."""

LINES_OF_MESSAGE: Final = 8
"""That one message may have beside what it says, which may have as many: its kind, its id, its end and so on."""

_DATA_LINES_OF_LINE: Final = DATA_LINES_AT_ONCE // LINES_AT_ONCE


class Rests:
    """Of all streams of one upstream, one after the other: however many it sends, it does not rest less."""

    def __init__(self) -> None:
        self._end = 0.0

    async def rest(self, seconds: float) -> None:
        now = anyio.current_time()
        self._end = max(now, self._end) + seconds
        await anyio.sleep(self._end - now)


class BarrenLines:
    """Counts those of one stream, for it to rest after fifty.

    Comments, blank lines, events without data and those of other kinds each cost as much time as a short message, and
    nobody counts them behind this. The lines of a message that has many are read in larger portions.
    """

    def __init__(self, rests: Rests) -> None:
        self._rests = rests
        self._count = 0

    def note(self, line_bytes: int) -> None:
        """One more that says nothing."""
        self._count += _DATA_LINES_OF_LINE * (1 + line_bytes // LINE_BYTES)

    def note_data(self) -> None:
        """One of an event's data."""
        self._count += 1

    def end_message(self, lines: int, data_lines: int) -> None:
        """So many of those that were noted belonged to a message."""
        forgiven = _DATA_LINES_OF_LINE * min(lines, LINES_OF_MESSAGE) + min(data_lines, LINES_OF_MESSAGE)
        self._count = max(0, self._count - forgiven)

    @property
    def are_many(self) -> bool:
        """Whether it is time to rest."""
        return self._count >= DATA_LINES_AT_ONCE

    async def rest(self) -> None:
        times, self._count = self._count // DATA_LINES_AT_ONCE, 0
        await self._rests.rest(PAUSE_SECONDS * times)
