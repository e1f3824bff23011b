"""Streams of events are mended line by line, however they are cut into pieces."""

from collections.abc import AsyncIterator

import httpx2
import pytest

from upstreams.json_size import MAX_VALUES
from upstreams.mended_events import UNREADABLE, MendedLines

pytestmark = pytest.mark.anyio

MANY = b"data: [" + b"[]," * (MAX_VALUES // 9 // 3 * 2) + b"1]"  # of which two are too many


class Pieces(httpx2.AsyncByteStream):
    def __init__(self, *pieces: bytes) -> None:
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece


async def read(*pieces: bytes) -> bytes:
    return b"".join([piece async for piece in MendedLines(Pieces(*pieces), lambda text: text)])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"\n", b"\n"),
        (b"\n\n", b""),
        (b"\r\n", b"\r\n"),
        (b"\r", b"\n\r\n"),
        (b"\r\n\r", b"\n"),
        (b"\r", b"\r"),
    ],
)
async def test_event_that_ends_with_the_next_piece_takes_nothing_from_the_next_event(
    before: bytes, after: bytes
) -> None:
    pieces = MANY + before, after + MANY + b"\n\n"
    assert await read(*pieces) == b"".join(pieces)


@pytest.mark.parametrize("cut", [(b"\n", b""), (b"\r", b"\n"), (b"\r\n", b"")])
async def test_event_with_too_many_values_is_unreadable_in_its_own_lines(cut: tuple[bytes, bytes]) -> None:
    before, after = cut
    seen = await read(b"data: 1" + before * 2, after + MANY + before, after + MANY + b"\n\n")
    first, second, *_ = (line for line in seen.splitlines()[1:] if line)
    assert first == MANY
    assert UNREADABLE in second and len(second) < len(MANY)
