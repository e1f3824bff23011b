"""Events that the SDK does not read itself.

One that is too large for it would end the connection, or hold the event loop, and over HTTP+SSE one that is unreadable
would leave its call without an answer.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import httpx2

from upstreams.barren_lines import BarrenLines, Rests
from upstreams.errors import UpstreamError
from upstreams.pace import Pace
from upstreams.piled_text import PiledText
from upstreams.room import Held
from upstreams.steps import STEP_BYTES, in_steps
from upstreams.unasked_bytes import UnaskedBytes
from upstreams.wire_text import MAX_MESSAGE_BYTES

_COMMENT: Final = b":"
_FIELD: Final = b"data:"
_ENDS: Final = (b"\n", b"\r", b"\r\n")


class SmallEvents(httpx2.AsyncByteStream):
    """An event stream without the messages of more than `most_bytes`: `take_message` is handed what those say.

    What it answers is the message of the event instead; nothing, and there is none. An event over the cap, or more than
    can be `held`, is a `httpx2.DecodingError`. What brings no message is rested from, and messages as `UnaskedBytes`
    says.
    """

    def __init__(
        self,
        lines: httpx2.AsyncByteStream,
        take_message: Callable[[bytes], Awaitable[bytes]],
        rests: Rests,
        pace: Pace,
        held: Held,
        most_bytes: int = STEP_BYTES,
    ) -> None:
        self._lines = lines
        self._held = held
        self._take_message = take_message
        self._rests = rests
        self._pace = pace
        self._most_bytes = most_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        event, is_half_ended = _Event(self._most_bytes), False
        # An answer is the last message of its stream, unless all are handed over.
        barren, unasked = BarrenLines(self._rests), UnaskedBytes()
        async for piece in self._lines:
            if is_half_ended and piece.startswith(b"\n"):
                piece = piece[1:]
            is_half_ended = piece.endswith(b"\r")
            small = bytearray()
            for line in piece.splitlines(keepends=True):
                is_end = event.is_between_lines and line in _ENDS
                event.add(line, barren)
                if is_end:
                    event.end(barren)
                    if event.is_small:
                        small += event.lines
                        unasked.note(len(event.data))
                    elif event.is_message:
                        yield bytes(small)  # it came first
                        small.clear()
                        data = await in_steps(event.data.taken())
                        if instead := await self._take_message(data):
                            small += event.others + _FIELD + instead + b"\n\n"
                    event = _Event(self._most_bytes)
                    self._held.release()
                if barren.are_many or unasked.are_many:
                    yield bytes(small)  # it does not wait for what is to come
                    small.clear()
                    await self._rest(barren, unasked)
            self._hold(event)
            if small:
                yield bytes(small)
            await self._pace.keep(piece, len(event.data))

    async def _rest(self, barren: BarrenLines, unasked: UnaskedBytes) -> None:
        if barren.are_many:
            await barren.rest(is_awaited=self._held.is_awaited)
        await unasked.rest()

    def _hold(self, event: "_Event") -> None:
        try:
            self._held.hold(len(event.data))
        except UpstreamError as error:
            raise httpx2.DecodingError(str(error)) from error

    async def aclose(self) -> None:
        self._held.release()
        await self._lines.aclose()


class _Event:
    """One that is being read: its lines as they came while it is small, what it says, and its lines beside that."""

    def __init__(self, most_bytes: int) -> None:
        self.lines = bytearray()
        self.others = bytearray()
        self.data = PiledText()
        self.is_message = True
        self.is_between_lines = True
        self._barren_lines = 0
        self._data_lines = 0
        self._most_bytes = most_bytes
        self._is_long = False
        self._field = b""
        self._line_bytes = 0

    @property
    def is_small(self) -> bool:
        """Whether it may stay as it is."""
        if self._is_long:
            return False
        return not self.data or not self.is_message or len(self.data) <= self._most_bytes

    def add(self, part: bytes, barren: BarrenLines) -> None:
        """The next line, or the next part of one, which is noted as what it is."""
        is_first = self.is_between_lines
        data_bytes = len(self.data)
        self._add(part)
        if len(self.data) > data_bytes:
            self._data_lines += is_first
            barren.note_data()
        else:
            self._barren_lines += is_first
            barren.note(len(part))

    def end(self, barren: BarrenLines) -> None:
        """All of it has come."""
        if not self._is_long and not self.lines.strip():
            self.lines.clear()  # it has only comments
        if self.data and self.is_message:
            barren.end_message(self._barren_lines, self._data_lines)
        elif self.data:
            barren.note(len(self.data))

    def _add(self, part: bytes) -> None:
        is_first, self.is_between_lines = self.is_between_lines, part.endswith((b"\n", b"\r"))
        start, end = 0, len(part)
        while self.is_between_lines and end and part[end - 1] in b"\r\n":
            end -= 1
        if is_first:
            self._line_bytes = 0
            name, colon, value = part[: min(end, STEP_BYTES)].partition(b":")
            self._field = name or colon
            start = len(name) + len(colon) + value.startswith(b" ")
        self._line_bytes += len(part)
        if max(self._line_bytes, len(self.data) + len(part)) > MAX_MESSAGE_BYTES:
            raise httpx2.DecodingError(f"an event is longer than {MAX_MESSAGE_BYTES} bytes")
        if self._field != _COMMENT:
            self._keep(part, start, end, is_first=is_first)

    def _keep(self, part: bytes, start: int, end: int, *, is_first: bool) -> None:
        self._is_long = self._is_long or len(self.lines) + len(part) > STEP_BYTES
        if not self._is_long:
            self.lines += part
        if self._field == b"data":
            if is_first and self.data:
                self.data.add(b"\n")
            self.data.add(memoryview(part)[start:end])
        elif self._field == b"event":
            self.is_message = is_first and part[start:end] in (b"", b"message")
        elif is_first and self.is_between_lines and len(self.others) + len(part) <= STEP_BYTES:
            self.others += part if end else b""
