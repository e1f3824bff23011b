"""Bodies are unpacked in bounded pieces, once, and no further than what was packed goes."""

import gzip
import zlib
from collections.abc import Iterable, Iterator

import httpx2
import pytest

from tests.upstreams.streams import Pieces
from upstreams.http_body import MAX_BARREN_BYTES, announced_bytes, unpacked, without_body
from upstreams.steps import STEP_BYTES

pytestmark = pytest.mark.anyio

TEXT = bytes(range(256)) * 5_000


def response(chunks: Iterable[bytes], coding: str | None) -> tuple[httpx2.Response, Pieces]:
    stream = Pieces(chunks)
    headers = {} if coding is None else {"content-encoding": coding}
    return httpx2.Response(200, headers=headers, stream=stream), stream


async def read(chunks: Iterable[bytes], coding: str | None) -> bytes:
    return b"".join([piece async for piece in unpacked(response(chunks, coding)[0])])


def cut(data: bytes, size: int) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


@pytest.mark.parametrize("size", [1, 100, 65_536, 10_000_000])
@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "GZIP", "identity, gzip"])
async def test_packed_body_is_unpacked(coding: str, size: int) -> None:
    assert await read(cut(gzip.compress(TEXT), size), coding) == TEXT


@pytest.mark.parametrize("coding", [None, "identity", "", "utf-8"])
async def test_body_that_is_not_packed_is_as_it_came(coding: str | None) -> None:
    assert await read(cut(TEXT, 1_000), coding) == TEXT


@pytest.mark.parametrize("coding", ["gzip, gzip", "gzip,deflate", "deflate", "br", "zstd", "identity, br"])
async def test_body_packed_otherwise_is_refused_unread(coding: str) -> None:
    answer, stream = response(cut(gzip.compress(gzip.compress(TEXT)), 1_000), coding)
    with pytest.raises(httpx2.DecodingError):
        await anext(unpacked(answer))
    assert stream.taken == 0


async def test_body_that_is_not_packed_as_it_says_is_refused() -> None:
    with pytest.raises(httpx2.DecodingError):
        await read([b"{}"], "gzip")


@pytest.mark.parametrize("is_with_the_end", [True, False])
async def test_what_follows_the_end_of_what_was_packed_is_not_read(is_with_the_end: bool) -> None:
    def endless() -> Iterator[bytes]:
        yield gzip.compress(b"{}") + (b"\0" * 1_000 if is_with_the_end else b"")
        while True:
            yield b"\0" * 1_000

    answer, stream = response(endless(), "gzip")
    assert b"".join([piece async for piece in unpacked(answer)]) == b"{}"
    assert stream.taken <= 2


async def test_packed_body_that_says_nothing_without_end_is_refused() -> None:
    packing = zlib.compressobj(wbits=31)
    empty_block = packing.flush(zlib.Z_FULL_FLUSH)[10:]

    def endless() -> Iterator[bytes]:
        yield gzip.compress(b"")[:10]
        while True:
            yield empty_block * 10_000

    answer, stream = response(endless(), "gzip")
    with pytest.raises(httpx2.DecodingError):
        await anext(unpacked(answer))
    assert stream.taken <= MAX_BARREN_BYTES // (len(empty_block) * 10_000) + 3


async def test_bomb_comes_in_bounded_pieces() -> None:
    answer, _ = response([gzip.compress(bytes(20_000_000))], "gzip")
    sizes = [len(piece) async for piece in unpacked(answer)]
    assert sum(sizes) == 20_000_000
    assert max(sizes) <= STEP_BYTES


@pytest.mark.parametrize(
    ("length", "most_bytes"),
    [("0", 1), ("7", 7), ("100", 100), ("101", 0), (None, 0), ("-1", 0), ("9" * 99, 0)],
)
def test_only_a_short_body_that_is_announced_is_waited_for(length: str | None, most_bytes: int) -> None:
    headers = {} if length is None else {"content-length": length}
    assert announced_bytes(httpx2.Response(202, headers=headers), 100) == most_bytes


@pytest.mark.parametrize(("most_bytes", "taken"), [(0, 0), (2_500, 3), (1_000_000, 10)])
async def test_body_that_nobody_needs_is_read_no_further_than_asked(most_bytes: int, taken: int) -> None:
    answer, stream = response([b"x" * 1_000] * 10, "gzip, gzip")
    answer.request = httpx2.Request("POST", "http://peer.test/")
    bare = await without_body(answer, most_bytes)
    assert (bare.status_code, await bare.aread(), stream.taken) == (200, b"", taken)
    assert answer.is_closed
