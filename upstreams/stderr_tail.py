"""What a child wrote to stderr last, for those who want to know why it ended."""

from collections import deque
from contextlib import suppress
from typing import Final

import anyio
from anyio.abc import ByteReceiveStream

from upstreams.scrubber import Scrubber

LINES: Final = 50
LINE_BYTES: Final = 8192
PIECE_BYTES: Final = 1024
PIECES_AT_ONCE: Final = 50
PAUSE_SECONDS: Final = 0.01


class StderrTail:
    """The last fifty lines a child wrote to stderr, scrubbed; never passed on to ours.

    After fifty lines or KiB it rests, so that a child that writes without end does not keep everybody else waiting:
    some six megabytes a second are read. Of what comes at once only the last fifty lines are looked at, blank ones too.
    """

    def __init__(self, scrub: Scrubber) -> None:
        self._scrub = scrub
        self._lines: deque[str] = deque(maxlen=LINES)
        self._partial = b""
        self._pieces = 0
        self.finished = anyio.Event()

    async def follow(self, stderr: ByteReceiveStream) -> None:
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            async for chunk in stderr:
                self._pieces += self._add(chunk) + len(chunk) // PIECE_BYTES
                if self._pieces >= PIECES_AT_ONCE:
                    self._pieces = 0
                    await anyio.sleep(PAUSE_SECONDS)
        self.finished.set()

    def _add(self, chunk: bytes) -> int:
        """How many lines of it were looked at, the one among them that has not ended."""
        whole, newline, rest = (self._partial + chunk).rpartition(b"\n")
        # Blanks are not told, and a secret behind many of them is not to be cut.
        self._partial = rest.lstrip()[:LINE_BYTES]
        if not newline:
            return 1
        lines = whole.rstrip().rsplit(b"\n", LINES)[-LINES:]
        self._lines.extend(self._shown(line) for line in lines if line.strip())
        return len(lines) + 1

    def _shown(self, line: bytes) -> str:
        return self._scrub.excerpt(line, 200)

    def last_words(self, count: int = 5) -> str:
        """The last lines for a state's detail, joined by " | "."""
        lines = [*self._lines, *([self._shown(self._partial)] if self._partial.strip() else [])]
        return " | ".join(lines[-count:])
