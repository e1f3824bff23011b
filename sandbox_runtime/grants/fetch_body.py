"""The body of an answer: counted while it arrives, again while it is unpacked, and written as JSON for the script."""

import binascii
import zlib
from collections.abc import AsyncIterable, Iterator
from typing import Protocol

import anyio.lowlevel

from sandbox_runtime.grants.fetch_error import FetchError

ACCEPTED = "gzip, deflate"
"""Codings that are unpacked piece by piece, with a bound on what each piece gives."""

MAX_PIECES = 50_000
"""Each piece of a body costs the portal some microseconds, however short it is."""

MAX_MEMBERS = 10_000
"""Of a gzip file; an honest one of many has 64 KiB in each."""

ENCODED_BYTES = 3 << 18
"""So much of a body is written in base64 at a time, which takes 2 ms; three of its bytes are four characters."""

_UNPACKED_BYTES = 1 << 16
_PACKED_BYTES = 1 << 14
_TURN_BYTES = 1 << 20
_TURN = 50


class BodyReader:
    """Takes a body apart. Raises FetchError where it is too long, broken, or coded in a way nobody asked for."""

    def __init__(self, coding: str, most_bytes: int, limit: str) -> None:
        """`limit` is `most_bytes` in words."""
        self._coding = coding.strip().lower()
        self._most_bytes = most_bytes
        self._limit = limit
        self._received = 0
        self._body = bytearray()

    async def read(self, stream: AsyncIterable[bytes]) -> bytearray:
        pieces = turns = 0
        unpacking: _Unpacking | None = None
        async for piece in stream:
            pieces += 1
            if pieces > MAX_PIECES:
                raise FetchError("fetch_failed", "the answer's body comes in too many pieces", state="done")
            if pieces % _TURN == 0:
                await anyio.lowlevel.checkpoint()  # pieces that are there already leave nobody else a turn
            self._received += len(piece)
            self._check(self._received)
            # Not before: what has no body may be of any coding, as the answer to HEAD is.
            unpacking = unpacking or (_unpacking(self._coding) if piece else None)
            for part in unpacking.unpacked(piece) if unpacking else ():
                self._body += part
                self._check(len(self._body))
                if len(self._body) // _TURN_BYTES > turns:
                    turns += 1
                    await anyio.lowlevel.checkpoint()
        if unpacking is not None and not unpacking.is_whole:
            raise _damaged()
        return self._body

    def _check(self, size: int) -> None:
        if size > self._most_bytes:
            raise FetchError(
                "response_limit",
                f"the answer's body is longer than {self._limit}",
                "Ask for less: filter, limit, or page.",
                state="done",
            )


async def in_base64(body: bytearray) -> bytes:
    """Base64 of a body. Everybody else has a turn after each piece of ENCODED_BYTES."""
    pieces = []
    with memoryview(body) as whole:
        for start in range(0, len(body), ENCODED_BYTES):
            pieces.append(binascii.b2a_base64(whole[start : start + ENCODED_BYTES], newline=False))
            await anyio.lowlevel.checkpoint()
    return b"".join(pieces)


class _Unpacking(Protocol):
    """A coding, taken off."""

    @property
    def is_whole(self) -> bool:
        """Whether the body may end here."""

    def unpacked(self, piece: bytes) -> Iterator[bytes]:
        """What the next piece holds, in parts of at most _UNPACKED_BYTES. Raises FetchError."""


class _Plain:
    """None at all."""

    is_whole = True

    def unpacked(self, piece: bytes) -> Iterator[bytes]:
        yield piece


class _Deflated:
    """A zlib stream, as it should be, or bare deflate, as some hosts send it; they differ in the first byte."""

    def __init__(self) -> None:
        self._stream: zlib._Decompress | None = None

    @property
    def is_whole(self) -> bool:
        return self._stream is not None and self._stream.eof

    def unpacked(self, piece: bytes) -> Iterator[bytes]:
        if self._stream is None:
            has_header = piece[0] & 0x0F == zlib.DEFLATED
            self._stream = zlib.decompressobj(zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS)
        if self._stream.eof:
            raise _damaged()
        yield from _parts(self._stream, piece)
        if self._stream.unused_data:
            raise _damaged()


class _Zipped:
    """A gzip file: one member after the other."""

    def __init__(self) -> None:
        self._member = _new_member()
        self._members = 1

    @property
    def is_whole(self) -> bool:
        return self._member.eof

    def unpacked(self, piece: bytes) -> Iterator[bytes]:
        # What follows a member's end is copied once for each that ends in it, so it is kept short.
        for start in range(0, len(piece), _PACKED_BYTES):
            yield from self._members_in(piece[start : start + _PACKED_BYTES])

    def _members_in(self, piece: bytes) -> Iterator[bytes]:
        while piece:
            if self._member.eof:
                self._members += 1
                if self._members > MAX_MEMBERS:
                    raise _damaged()
                self._member = _new_member()
            yield from _parts(self._member, piece)
            piece = self._member.unused_data


def _new_member() -> "zlib._Decompress":
    return zlib.decompressobj(zlib.MAX_WBITS | 16)


def _parts(stream: "zlib._Decompress", piece: bytes) -> Iterator[bytes]:
    part = b""
    try:
        # All may be taken in before all is given back; and at the end what follows it stays in the tail, for ever.
        while not stream.eof and (piece or len(part) == _UNPACKED_BYTES):
            part = stream.decompress(piece, _UNPACKED_BYTES)
            yield part
            piece = stream.unconsumed_tail
    except zlib.error:
        raise _damaged() from None


def _damaged() -> FetchError:
    return FetchError("fetch_failed", "the answer's body is damaged", state="done")


def _unpacking(coding: str) -> _Unpacking:
    if coding in ("", "identity"):
        return _Plain()
    if coding in ("gzip", "x-gzip"):
        return _Zipped()
    if coding == "deflate":
        return _Deflated()
    raise FetchError("fetch_failed", f"the answer is coded as {coding[:60]!r}", state="done")
