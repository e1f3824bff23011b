"""Event streams of upstreams, made fit to be read."""

from collections.abc import AsyncIterator
from typing import Final

import httpx2

from upstreams.drips import Drips
from upstreams.http_body import ByteOrderMark, unpacked
from upstreams.masking import Mask
from upstreams.nesting import shallow
from upstreams.steps import STEP_BYTES, Steps, in_steps, turns_of_others
from upstreams.wire_text import mended

_DATA: Final = b"data:"
_ENCODING: Final = "content-encoding"
_PIECE_BYTES: Final = 1024
"""Of short lines that are read together: each may cost several microseconds."""


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


async def _readable_line(line: bytes) -> bytes:
    """A line of an event stream, its message not nested too deep to be read."""
    if not line.startswith(_DATA):
        return line
    end = len(line.rstrip(b"\r\n"))
    return _DATA + await in_steps(shallow(line[len(_DATA) : end])) + line[end:]


def _end_of_lines(chunk: bytes, start: int) -> int:
    """Where the last line ends that is read together with the one that begins there; 0 if that one does not end."""
    most = start + _PIECE_BYTES
    if end := max(chunk.rfind(b"\n", start, most), chunk.rfind(b"\r", start, most)) + 1:
        return end
    ends = [place + 1 for place in (chunk.find(b"\n", most), chunk.find(b"\r", most)) if place >= 0]
    return min(ends, default=0)


class MendedLines(httpx2.AsyncByteStream):
    """An event stream whose lines are made fit for the SDK's parser.

    Those that are much longer than `STEP_BYTES` come as they are, in parts, and are not for that parser. Each other
    piece but the last has whole lines.
    """

    def __init__(self, stream: httpx2.AsyncByteStream, masked: Mask) -> None:
        self._stream = stream
        self._masked = masked

    async def __aiter__(self) -> AsyncIterator[bytes]:
        partial = b""
        is_long = False
        drips, mark = Drips(), ByteOrderMark()
        async for each in self._stream:
            await drips.rest(each)
            chunk = mark.dropped_from(each)
            start = 0
            while end := _end_of_lines(chunk, start):
                if start:
                    await turns_of_others()
                lines, partial = partial + chunk[start:end], b""
                start = end
                if is_long:
                    last_part = len(lines.splitlines(keepends=True)[0])
                    yield lines[:last_part]
                    lines, is_long = lines[last_part:], False
                if lines:
                    yield await self._mended(lines)
            partial += chunk[start:]
            if is_long or len(partial) > STEP_BYTES:
                yield partial
                partial, is_long = b"", True
        yield partial if is_long else await self._mended(partial)

    async def _mended(self, lines: bytes) -> bytes:
        lines = await in_steps(self._fit(lines))
        return b"".join([await _readable_line(line) for line in lines.splitlines(keepends=True)])

    def _fit(self, lines: bytes) -> Steps[bytes]:
        return (yield from mended((yield from self._masked(lines))))

    async def aclose(self) -> None:
        await self._stream.aclose()
