"""Event streams of upstreams, made fit to be read."""

import re
from collections.abc import AsyncIterator
from typing import Final

import httpx2

from upstreams.drips import Drips
from upstreams.http_body import unpacked
from upstreams.json_size import MAX_VALUES, values_in
from upstreams.masking import Mask
from upstreams.nesting import shallow
from upstreams.wire_text import MAX_MESSAGE_BYTES, mended

_DATA: Final = b"data:"
_END_BYTES: Final = 4096
_FIRST_LINE: Final = re.compile(rb"[^\r\n]++")  # of those that say something
_ENDS_BEFORE: Final = re.compile(rb"(?:\r\n?+|\n)[\r\n]")
_EVENT_ENDS: Final = (b"\n\n", b"\n\r", b"\r\r")
_ENCODING: Final = "content-encoding"

UNREADABLE: Final = b"\0"
"""Stands in what is not to be read: JSON has none of it, inside of texts neither."""


def with_mended_events(response: httpx2.Response, masked: Mask) -> httpx2.Response:
    """The same response, its events made fit for the SDK's parser; those of a compressed one are unpacked before."""
    if not isinstance(response.stream, httpx2.AsyncByteStream):
        return response
    if _ENCODING not in response.headers:
        response.stream = MendedLines(response.stream, masked)
        return response
    if not response.is_success:
        return response  # nobody reads it
    return httpx2.Response(
        response.status_code,
        headers=[(name, value) for name, value in response.headers.raw if name.lower() != _ENCODING.encode()],
        stream=MendedLines(_Unpacked(response), masked),
        request=response.request,
        extensions=response.extensions,
    )


class _Unpacked(httpx2.AsyncByteStream):
    """What a compressed response says."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response

    def __aiter__(self) -> AsyncIterator[bytes]:
        return unpacked(self._response)

    async def aclose(self) -> None:
        await self._response.aclose()


def _readable_line(line: bytes) -> bytes:
    """A line of an event stream, its message not nested too deep to be read."""
    if not line.startswith(_DATA):
        return line
    end = len(line.rstrip(b"\r\n"))
    return _DATA + shallow(line[len(_DATA) : end]) + line[end:]


def _unreadable_line(line: re.Match[bytes]) -> bytes:
    """The ends of a line, which say what it answers, as what is no JSON."""
    data = line[0].removeprefix(_DATA)
    return _DATA + data[:_END_BYTES] + UNREADABLE + b"more values than the portal reads" + data[-_END_BYTES:]


class _EventValues:
    """How many values the event has that is being read; its message may be in many lines."""

    def __init__(self) -> None:
        self._values = 0
        self._last = b""

    def are_too_many(self, lines: bytes) -> bool:
        """Take in the next lines: whether there are too many, of which all but a few are in the first of these."""
        joined = self._last + lines
        if _ENDS_BEFORE.match(joined):
            self._values = 0
        self._values += values_in(lines)
        is_excess = self._values > MAX_VALUES
        if (end := max(map(joined.rfind, _EVENT_ENDS))) >= 0:
            self._values = values_in(joined[end + 2 :])
        self._last = joined[-1:]
        return is_excess


class MendedLines(httpx2.AsyncByteStream):
    """An event stream whose lines are made fit for the SDK's parser; `httpx2.DecodingError` if one is too long."""

    def __init__(self, stream: httpx2.AsyncByteStream, masked: Mask) -> None:
        self._stream = stream
        self._masked = masked
        self._values = _EventValues()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        partial = bytearray()
        drips = Drips()
        async for chunk in self._stream:
            await drips.rest(chunk)
            end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
            if end:
                yield self._readable(bytes(partial) + chunk[:end])
                partial.clear()
            partial += chunk[end:]
            if len(partial) > MAX_MESSAGE_BYTES:
                raise httpx2.DecodingError(f"an event is longer than {MAX_MESSAGE_BYTES} bytes")
        yield self._readable(bytes(partial))

    def _readable(self, lines: bytes) -> bytes:
        if self._values.are_too_many(lines):
            lines = _FIRST_LINE.sub(_unreadable_line, lines, count=1)
        lines = self._masked(mended(lines))
        return b"".join(map(_readable_line, lines.splitlines(keepends=True)))

    async def aclose(self) -> None:
        await self._stream.aclose()
