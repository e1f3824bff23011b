"""What an HTTP response says, unpacked where it is compressed: one bounded piece after the other.

httpx2 unpacks what is packed several times over, in one go for each of the times; and at the end of what was packed it
goes on to keep whatever else comes.
"""

import zlib
from codecs import BOM_UTF8
from collections.abc import AsyncIterator
from typing import Final

import httpx2

from upstreams.steps import STEP_BYTES, turns_of_others

MAX_BARREN_BYTES: Final = 1024 * 1024
"""Of a compressed answer that may come without anything to be had of them."""

CODING: Final = {"accept-encoding": "gzip"}
"""The header of requests whose answers are read here."""

_BODY_HEADERS: Final = frozenset({b"content-length", b"content-encoding", b"transfer-encoding"})
_GZIP: Final = ("gzip", "x-gzip")
_COMPRESSIONS: Final = (*_GZIP, "deflate", "compress", "x-compress", "br", "zstd")


async def unpacked(response: httpx2.Response) -> AsyncIterator[bytes]:
    """The body, whose length is for the caller to bound; what follows the end of a compressed one is left out.

    Raises:
        httpx2.DecodingError: It is not compressed as it says, or otherwise than with gzip, once.
        httpx2.RequestError: As of `httpx2.Response.aiter_raw`.
    """
    codings = [each.strip().lower() for each in response.headers.get("content-encoding", "").split(",")]
    used = [each for each in codings if each in _COMPRESSIONS]
    if used and (len(used) > 1 or used[0] not in _GZIP):
        raise httpx2.DecodingError(f"an answer packed with {', '.join(used)[:100]} is not read")
    async for piece in _gunzipped(response.aiter_raw()) if used else response.aiter_raw():
        yield piece


async def _gunzipped(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    unpacking = zlib.decompressobj(zlib.MAX_WBITS | 16)
    barren_bytes = 0
    async for chunk in chunks:
        if unpacking.eof:
            return
        barren_bytes += len(chunk)
        piece = _unpack(unpacking, chunk)
        while piece:
            barren_bytes = 0
            yield piece
            await turns_of_others()
            piece = _unpack(unpacking, unpacking.unconsumed_tail)
        if unpacking.unused_data:
            return
        if barren_bytes > MAX_BARREN_BYTES:
            raise httpx2.DecodingError(f"nothing is in {barren_bytes} bytes of a compressed answer")
    if rest := unpacking.flush():
        yield rest


def _unpack(unpacking: "zlib._Decompress", packed: bytes) -> bytes:
    try:
        return unpacking.decompress(packed, STEP_BYTES)
    except zlib.error as error:
        raise httpx2.DecodingError(str(error)) from error


class ByteOrderMark:
    """The one that a text may begin with, and that does not belong to it."""

    def __init__(self) -> None:
        self._begun: bytes | None = b""

    def dropped_from(self, chunk: bytes) -> bytes:
        """What the next chunk says of the text; of its first bytes nothing while they may be the mark."""
        if self._begun is None:
            return chunk
        begun = self._begun + chunk
        may_be_mark = len(begun) < len(BOM_UTF8) and BOM_UTF8.startswith(begun)
        self._begun = begun if may_be_mark else None
        return b"" if may_be_mark else begun.removeprefix(BOM_UTF8)


async def without_body(response: httpx2.Response, most_bytes: int = 0) -> httpx2.Response:
    """The same for somebody who would read all of it. The connection stays usable if that has `most_bytes`."""
    try:
        if most_bytes:
            await _pass_over(response, most_bytes)
    except httpx2.RequestError:
        pass  # what counts has come
    finally:
        await response.aclose()
    bare = httpx2.Response(
        response.status_code, headers=headers_without_body(response), request=response.request
    )
    bare.next_request = response.next_request
    return bare


def announced_bytes(response: httpx2.Response, most_bytes: int) -> int:
    """Of how many bytes its body is, if it says so and it is at most that many, and one at least; else none."""
    announced = response.headers.get("content-length", "")
    is_short = announced.isdecimal() and len(announced) < 10 and int(announced) <= most_bytes
    return max(1, int(announced)) if is_short else 0


async def _pass_over(response: httpx2.Response, most_bytes: int) -> None:
    async for chunk in response.aiter_raw():
        most_bytes -= len(chunk)
        if most_bytes < 0:
            return


def headers_without_body(response: httpx2.Response) -> list[tuple[bytes, bytes]]:
    """Those that do not speak of how the body came, as they came: a value need not be ASCII."""
    return [(name, value) for name, value in response.headers.raw if name.lower() not in _BODY_HEADERS]
