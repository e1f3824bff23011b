"""Event streams of upstreams, made fit to be read."""

from collections.abc import AsyncIterator
from typing import Final

import httpx2

from upstreams.drips import Drips
from upstreams.masking import Mask
from upstreams.nesting import shallow
from upstreams.wire_text import MAX_MESSAGE_BYTES, mended

_DATA: Final = b"data:"
_ENCODING: Final = "content-encoding"


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
        headers=[(name, value) for name, value in response.headers.multi_items() if name != _ENCODING],
        stream=MendedLines(_Unpacked(response), masked),
        request=response.request,
        extensions=response.extensions,
    )


class _Unpacked(httpx2.AsyncByteStream):
    """What a compressed response says."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._response.aiter_bytes()

    async def aclose(self) -> None:
        await self._response.aclose()


def _readable_line(line: bytes) -> bytes:
    """A line of an event stream, its message not nested too deep to be read."""
    if not line.startswith(_DATA):
        return line
    end = len(line.rstrip(b"\r\n"))
    return _DATA + shallow(line[len(_DATA) : end]) + line[end:]


class MendedLines(httpx2.AsyncByteStream):
    """An event stream whose lines are made fit for the SDK's parser."""

    def __init__(self, stream: httpx2.AsyncByteStream, masked: Mask) -> None:
        self._stream = stream
        self._masked = masked

    async def __aiter__(self) -> AsyncIterator[bytes]:
        partial = bytearray()
        drips = Drips()
        async for chunk in self._stream:
            await drips.rest(chunk)
            end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
            if end:
                lines = self._masked(mended(bytes(partial) + chunk[:end]))
                yield b"".join(map(_readable_line, lines.splitlines(keepends=True)))
                partial.clear()
            partial += chunk[end:]
            if len(partial) > MAX_MESSAGE_BYTES:
                raise httpx2.ReadError(f"an event is longer than {MAX_MESSAGE_BYTES} bytes")
        yield _readable_line(self._masked(mended(bytes(partial))))

    async def aclose(self) -> None:
        await self._stream.aclose()
