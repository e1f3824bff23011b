"""The body of an answer: counted while it arrives, and again while it is unpacked."""

import zlib
from collections.abc import AsyncIterable

import anyio.lowlevel

from sandbox_runtime.grants.fetch_error import FetchError

ACCEPTED = "gzip, deflate"
"""Codings that are unpacked piece by piece, with a bound on what each piece gives."""

MAX_PIECES = 50_000
"""Each piece of a body costs the portal some microseconds, however short it is."""

_PIECE_BYTES = 1 << 16
_TURN = 500


class BodyReader:
    """Takes a body apart. Raises FetchError where it is too long, broken, or coded in a way nobody asked for."""

    def __init__(self, coding: str, most_bytes: int, limit: str) -> None:
        """`limit` is `most_bytes` in words."""
        self._most_bytes = most_bytes
        self._limit = limit
        self._received = 0
        self._body = bytearray()
        self._unpacking = _unpacking(coding.strip().lower())

    async def read(self, stream: AsyncIterable[bytes]) -> bytes:
        pieces = 0
        async for piece in stream:
            pieces += 1
            if pieces > MAX_PIECES:
                raise FetchError("fetch_failed", "the answer's body comes in too many pieces", state="done")
            if pieces % _TURN == 0:
                await anyio.lowlevel.checkpoint()  # pieces that are there already leave nobody else a turn
            self._received += len(piece)
            self._check(self._received)
            self._add(piece)
        if self._received and self._unpacking is not None and not self._unpacking.eof:
            raise _damaged()
        return bytes(self._body)

    def _add(self, piece: bytes) -> None:
        if self._unpacking is None:
            self._body += piece
            return
        try:
            while piece:
                self._body += self._unpacking.decompress(piece, _PIECE_BYTES)
                self._check(len(self._body))
                piece = self._unpacking.unconsumed_tail
        except zlib.error:
            raise _damaged() from None
        if self._unpacking.unused_data:
            raise _damaged()  # what follows the end would be copied again with each piece

    def _check(self, size: int) -> None:
        if size > self._most_bytes:
            raise FetchError(
                "response_limit",
                f"the answer's body is longer than {self._limit}",
                "Ask for less: filter, limit, or page.",
                state="done",
            )


def _damaged() -> FetchError:
    return FetchError("fetch_failed", "the answer's body is damaged", state="done")


def _unpacking(coding: str) -> "zlib._Decompress | None":
    if coding in ("", "identity"):
        return None
    if coding in ("gzip", "x-gzip"):
        return zlib.decompressobj(zlib.MAX_WBITS | 16)
    if coding == "deflate":
        return zlib.decompressobj()
    raise FetchError("fetch_failed", f"the answer is coded as {coding[:60]!r}", state="done")
