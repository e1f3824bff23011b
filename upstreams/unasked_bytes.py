"""Keeps long messages that nobody asked for from taking the portal's time from the others."""

from typing import Final

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCMessage

BYTES_A_SECOND: Final = 2 * 1024 * 1024.0
BYTES_AT_ONCE: Final = 4 * 1024 * 1024.0
LONGEST_WAIT_SECONDS: Final = 0.5
"""For one message: what is asked for, signs of life among it, is behind it."""


class UnaskedBytes:
    """Of one upstream, or one stream of events: four MiB may come at once, and after that two a second.

    How long a message is and whether it is an answer is known once it was read, so it is the next one that waits.
    """

    def __init__(self) -> None:
        self._left = BYTES_AT_ONCE
        self._as_of = anyio.current_time()

    def note(self, text_bytes: int) -> None:
        """So many came. Of one that is longer than may come in the longest wait, the rest is forgiven."""
        now = anyio.current_time()
        left = min(BYTES_AT_ONCE, self._left + (now - self._as_of) * BYTES_A_SECOND) - text_bytes
        self._left = max(left, -LONGEST_WAIT_SECONDS * BYTES_A_SECOND)
        self._as_of = now

    @property
    def are_many(self) -> bool:
        """Whether more than may come have come since it was rested."""
        return self._left < 0

    async def rest(self) -> None:
        """Until more may come."""
        self.note(0)
        if self.are_many:
            await anyio.sleep(-self._left / BYTES_A_SECOND)
            self.note(0)


class MeasuredMessage(SessionMessage):
    """One that is known to be of so many bytes."""

    def __init__(self, message: JSONRPCMessage, text_bytes: int) -> None:
        super().__init__(message)
        self.text_bytes = text_bytes
