"""Events of HTTP+SSE that the SDK does not read there: one that is too large for it would end the connection, and one
that is unreadable leave its call without an answer."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import httpx2

from upstreams.mended_events import UNREADABLE
from upstreams.wire_text import MAX_MESSAGE_BYTES

SMALL_EVENT_BYTES: Final = 512 * 1024
"""The SDK reads events of up to 1 MiB, as it counts them."""

_COMMENT: Final = b":"


class SmallEvents(httpx2.AsyncByteStream):
    """An event stream without large and unreadable events: `take_message` is handed what those say, in between.

    `lines` has whole lines in each of its pieces but the last. An event over the cap ends the stream.
    """

    def __init__(
        self, lines: httpx2.AsyncByteStream, take_message: Callable[[bytes], Awaitable[None]]
    ) -> None:
        self._lines = lines
        self._take_message = take_message

    async def __aiter__(self) -> AsyncIterator[bytes]:
        event, is_half_ended = _Event(), False
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
                    await self._take_message(bytes(event.data))
                event = _Event()
            if small:
                yield bytes(small)

    async def aclose(self) -> None:
        await self._lines.aclose()


class _Event:
    """One that is being read: its lines as they came while it is small, and what it says."""

    def __init__(self) -> None:
        self.lines = bytearray()
        self.data = bytearray()
        self.is_small = True
        self.is_message = True

    def add(self, line: bytes) -> None:
        if line.startswith(_COMMENT):
            return
        if len(self.lines) + len(line) > SMALL_EVENT_BYTES or UNREADABLE in line:
            self.is_small = False
        if self.is_small:
            self.lines += line
        name, _, value = line.rstrip(b"\r\n").partition(b":")
        if name == b"data":
            self.data += (b"\n" if self.data else b"") + value.removeprefix(b" ")
            if len(self.data) > MAX_MESSAGE_BYTES:
                raise httpx2.ReadError(f"an event is longer than {MAX_MESSAGE_BYTES} bytes")
        elif name == b"event":
            self.is_message = value.removeprefix(b" ") in (b"", b"message")
