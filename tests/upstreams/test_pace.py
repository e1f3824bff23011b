"""Long answers are read at a pace that leaves time to others."""

import anyio
import pytest

from upstreams.pace import BYTES_AT_ONCE, BYTES_BETWEEN_RESTS, REST_SECONDS, Pace

pytestmark = pytest.mark.anyio

PIECE = 64 * 1024


async def seconds_for(size: int) -> float:
    pace, started = Pace(), anyio.current_time()
    for read in range(PIECE, size + 1, PIECE):
        await pace.keep(read)
    return anyio.current_time() - started


async def test_what_is_long_rests_after_each_piece() -> None:
    assert await seconds_for(BYTES_AT_ONCE + 4 * BYTES_BETWEEN_RESTS) >= 5 * REST_SECONDS


async def test_what_is_not_so_long_never_rests() -> None:
    with anyio.move_on_after(0) as never:  # whatever waited would be cancelled
        await seconds_for(BYTES_AT_ONCE - PIECE)
    assert not never.cancelled_caught
