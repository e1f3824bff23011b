"""Events that the SDK does not read itself.

One that is too large for it would end the connection, or hold the event loop, and over HTTP+SSE one that is unreadable
would leave its call without an answer.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import httpx2

from upstreams.steps import STEP_BYTES
from upstreams.wire_text import MAX_MESSAGE_BYTES

_COMMENT: Final = b":"
_FIELD: Final = b"data:"


class SmallEvents(httpx2.AsyncByteStream):
    """An event stream without the messages of more than `most_bytes`: `take_message` is handed what those say.

    What it answers is the message of the event instead; nothing, and there is none. `lines` has whole lines in each of
    its pieces but the last. An event over the cap is a `httpx2.DecodingError`.
    """

    def __init__(
        self,
        lines: httpx2.AsyncByteStream,
        take_message: Callable[[bytes], Awaitable[bytes]],
        most_bytes: int = STEP_BYTES,
    ) -> None:
        self._lines = lines
        self._take_message = take_message
        self._most_bytes = most_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        event, is_half_ended = _Event(self._most_bytes), False
        async for piece in self._lines:
            if is_half_ended and piece.startswith(b"\n"):
                piece = piece[1:]
            is_half_ended = piece.endswith(b"\r")
            small = bytearray()
            for line in piece.splitlines(keepends=True):
                event.add(line)
                if line not in (b"\n", b"\r", b"\r\n"):
                    continue
                if event.is_small:
                    small += event.lines
                elif event.is_message:
                    yield bytes(small)  # it came first
                    small.clear()
                    if instead := await self._take_message(bytes(event.data)):
                        small += event.others + _FIELD + instead + b"\n\n"
                event = _Event(self._most_bytes)
            if small:
                yield bytes(small)

    async def aclose(self) -> None:
        await self._lines.aclose()


class _Event:
    """One that is being read: its lines as they came while it is small, what it says, and its lines beside that."""

    def __init__(self, most_bytes: int) -> None:
        self.lines = bytearray()
        self.others = bytearray()
        self.data = bytearray()
        self.is_message = True
        self._most_bytes = most_bytes
        self._is_long = False

    @property
    def is_small(self) -> bool:
        """Whether it may stay as it is."""
        if self._is_long:
            return False
        return not self.data or not self.is_message or len(self.data) <= self._most_bytes

    def add(self, line: bytes) -> None:
        if line.startswith(_COMMENT):
            return
        self._is_long = self._is_long or len(self.lines) + len(line) > STEP_BYTES
        if not self._is_long:
            self.lines += line
        end = len(line)
        while end and line[end - 1] in b"\r\n":
            end -= 1
        name, colon, value = line[: min(end, STEP_BYTES)].partition(b":")
        if name == b"data":
            start = len(name) + len(colon) + value.startswith(b" ")
            self.data += b"\n" if self.data else b""
            self.data += memoryview(line)[start:end]
            if len(self.data) > MAX_MESSAGE_BYTES:
                raise httpx2.DecodingError(f"an event is longer than {MAX_MESSAGE_BYTES} bytes")
        elif name == b"event":
            self.is_message = value.removeprefix(b" ") in (b"", b"message")
        elif end and len(self.others) + len(line) <= STEP_BYTES:
            self.others += line
