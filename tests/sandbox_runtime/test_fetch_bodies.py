"""Bodies of answers, in whatever coding a host sends them, and however large."""

import asyncio
import base64
import gzip
import zlib
from collections.abc import AsyncIterator, Awaitable
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_runtime.grants.fetch_body import ENCODED_BYTES, MAX_MEMBERS, BodyReader, in_base64
from sandbox_runtime.grants.fetch_error import FetchError
from tests.sandbox_runtime.fetching import FetchRunner, Server, bare_deflate, response

pytestmark = pytest.mark.anyio

TEXT = b"text " * 50_000
MOST = 8 << 20

_Done = TypeVar("_Done")


def in_members(body: bytes) -> bytes:
    """A gzip file of several members, as tools make that pack in parallel, or append."""
    return b"".join(gzip.compress(body[start : start + 1000]) for start in range(0, len(body), 1000))


PACKED = {
    "identity": ("identity", bytes(TEXT)),
    "gzip": ("gzip", gzip.compress(TEXT)),
    "gzip of many members": ("gzip", in_members(TEXT)),
    "gzip with an empty member": ("gzip", gzip.compress(TEXT) + gzip.compress(b"")),
    "deflate": ("deflate", zlib.compress(TEXT)),
    "deflate without a header": ("deflate", bare_deflate(TEXT)),
    "deflate that is not packed": ("deflate", zlib.compress(TEXT, 0)),
}


@pytest.mark.parametrize("name", PACKED)
async def test_body_is_unpacked(fetch: FetchRunner, server: Server, name: str) -> None:
    coding, packed = PACKED[name]
    server.answers["/"] = response(packed, Content_Encoding=coding)
    assert await fetch.value(f'(await portal.fetch("{server.base}/")).text == "text " * 50_000') is True


async def test_body_may_come_in_chunks(fetch: FetchRunner, server: Server) -> None:
    server.answers["/"] = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    )
    assert await fetch.value(f'(await portal.fetch("{server.base}/")).text') == "abcde"


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "gzip, br"])
async def test_answer_without_a_body_may_be_of_any_coding(
    fetch: FetchRunner, server: Server, coding: str
) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\n".encode()
    server.answers["/head"] = head + b"Content-Length: 12345\r\n\r\n"
    server.answers["/none"] = head + b"Content-Length: 0\r\n\r\n"
    script = (
        f'r = await portal.fetch("{server.base}/head", method="HEAD")\ns = await portal.fetch("{server.base}/none")\n'
        '[r.headers["content-encoding"], len(r.bytes), len(s.bytes)]'
    )
    assert await fetch.value(script) == [coding, 0, 0]


async def pieces(body: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("size", [7, 1000, 1 << 20])
async def test_body_is_the_same_in_whatever_pieces_it_comes(name: str, size: int) -> None:
    coding, packed = PACKED[name]
    assert await BodyReader(coding, MOST, "").read(pieces(packed, size)) == TEXT


@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 131_072, 0])
@pytest.mark.parametrize(
    ("coding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress), ("deflate", bare_deflate)]
)
async def test_body_as_long_as_what_is_unpacked_at_once_is_whole(
    coding: str, pack: object, size: int
) -> None:
    assert callable(pack)
    body = bytes(size)
    assert await BodyReader(coding, MOST, "").read(pieces(pack(body), 1 << 16)) == body


@pytest.mark.parametrize(
    ("coding", "packed"),
    [
        ("gzip", gzip.compress(TEXT) + gzip.compress(TEXT)[:-1]),
        ("gzip", gzip.compress(TEXT) + b"more"),
        ("gzip", gzip.compress(b"") * (MAX_MEMBERS + 1)),
        ("deflate", bare_deflate(TEXT)[:-1]),
        ("deflate", bare_deflate(TEXT) + b"more"),
        ("deflate", zlib.compress(TEXT) + bare_deflate(TEXT)),
    ],
)
@pytest.mark.parametrize("size", [1, 20, 1 << 16])
async def test_body_that_is_not_whole_or_has_something_behind_it_is_refused(
    coding: str, packed: bytes, size: int
) -> None:
    with pytest.raises(FetchError):
        await BodyReader(coding, MOST, "").read(pieces(packed, size))


async def turns_during(work: Awaitable[_Done]) -> tuple[_Done, int]:
    """What it gives, and how often somebody else had a turn meanwhile."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count())
    try:
        return await work, turns
    finally:
        counting.cancel()


async def test_others_have_turns_while_a_big_answer_is_unpacked_and_written() -> None:
    body = bytes(MOST)
    read, turns = await turns_during(BodyReader("gzip", MOST, "").read(pieces(gzip.compress(body), 1 << 20)))
    assert (read == body, turns >= (MOST >> 20) - 1) == (True, True)
    written, turns = await turns_during(in_base64(read))
    assert (written == base64.b64encode(body), turns >= MOST // ENCODED_BYTES) == (True, True)


async def test_pieces_that_are_there_already_leave_others_their_turns() -> None:
    count = 40_000
    _, turns = await turns_during(BodyReader("", count, "").read(pieces(bytes(count), 1)))
    assert turns >= count // 100


@pytest.mark.parametrize("size", [0, 1, 2, 3, ENCODED_BYTES - 1, ENCODED_BYTES, ENCODED_BYTES + 1])
async def test_pieces_of_base64_are_one_text(size: int) -> None:
    body = bytearray(bytes(range(256)) * (size // 256 + 1))[:size]
    assert await in_base64(body) == base64.b64encode(body)


bodies = st.one_of(
    st.binary(max_size=500),
    st.integers(0, 300_000).map(bytes),
    st.integers(0, 9_000).map(lambda n: b"abc" * n),
)


@given(st.lists(bodies, min_size=1, max_size=4), st.sampled_from([1 << 20, 1 << 16, 1000]), st.integers(0, 9))
async def test_members_of_any_size_are_one_body(members: list[bytes], size: int, level: int) -> None:
    packed = b"".join(gzip.compress(member, level) for member in members)
    assert await BodyReader("gzip", MOST, "").read(pieces(packed, size)) == b"".join(members)


@given(bodies, st.sampled_from(["gzip", "deflate"]), st.binary(min_size=1, max_size=2000), st.data())
async def test_bytes_of_any_kind_are_read_or_refused(
    body: bytes, coding: str, noise: bytes, data: st.DataObject
) -> None:
    packed = gzip.compress(body) if coding == "gzip" else zlib.compress(body)
    place = data.draw(st.integers(0, len(packed)))
    size = data.draw(st.sampled_from([1 << 16, 1000]))
    for hostile in (
        packed[:place],
        packed[:place] + noise,
        packed[:place] + noise + packed[place:],
        packed + noise,
    ):
        try:
            read = await BodyReader(coding, MOST, "").read(pieces(hostile, size))
        except FetchError:
            continue
        # What has a checksum and passes it is what was packed: all of it, or whole members.
        assert read in (b"", body)
