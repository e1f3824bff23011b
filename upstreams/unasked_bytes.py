"""Keeps long messages that nobody asked for from taking the portal's time from the others."""

from typing import Final

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCMessage

BYTES_A_SECOND: Final = 1024 * 1024.0
BYTES_AT_ONCE: Final = 16 * 1024 * 1024.0
LONGEST_WAIT_SECONDS: Final = 5.0
"""Less than a sign of life may take: what is asked for is behind it."""


class UnaskedBytes:
    """Of one upstream: sixteen MiB may come at once, and after that one a second.

    How long a message is and whether it is an answer is known once it was read, so it is the next one that waits.
    """

    def __init__(self) -> None:
        self._left = BYTES_AT_ONCE
        self._as_of = anyio.current_time()

    def note(self, text_bytes: int) -> None:
        """So many came."""
        now = anyio.current_time()
        self._left = min(BYTES_AT_ONCE, self._left + (now - self._as_of) * BYTES_A_SECOND) - text_bytes
        self._as_of = now

    async def rest(self) -> None:
        """Until more may come."""
        self.note(0)
        if self._left < 0:
            await anyio.sleep(min(-self._left / BYTES_A_SECOND, LONGEST_WAIT_SECONDS))


class MeasuredMessage(SessionMessage):
    """One that is known to be of so many bytes."""

    def __init__(self, message: JSONRPCMessage, text_bytes: int) -> None:
        super().__init__(message)
        self.text_bytes = text_bytes
