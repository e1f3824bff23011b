"""Long answers are read at a pace that leaves time to others, however many of one upstream come at once."""

import anyio
import pytest

from upstreams.pace import BYTES_A_SECOND, BYTES_AT_ONCE, Pace
from upstreams.steps import STEP_BYTES

pytestmark = pytest.mark.anyio

PIECE = bytes(STEP_BYTES)


async def read(pace: Pace, size: float) -> None:
    """An answer of that size."""
    come = 0
    while come < size:
        come += len(PIECE)
        await pace.keep(PIECE, come)


async def seconds_for(*sizes: float) -> float:
    """Until all of these answers have come side by side."""
    pace, began = Pace(), anyio.current_time()
    async with anyio.create_task_group() as tasks:
        for size in sizes:
            tasks.start_soon(read, pace, size)
    return anyio.current_time() - began


@pytest.mark.parametrize("answers", [1, 16])
async def test_long_answers_take_their_time_together(answers: int) -> None:
    size = (BYTES_AT_ONCE + BYTES_A_SECOND / 5) / answers
    assert await seconds_for(*[size + STEP_BYTES] * answers) >= 0.95 / 5


async def test_what_is_not_so_long_never_rests() -> None:
    pace = Pace()
    with anyio.move_on_after(0) as never:  # whatever waited would be cancelled
        await read(pace, BYTES_AT_ONCE)
    assert not never.cancelled_caught


async def test_short_answers_are_none_of_it() -> None:
    pace = Pace()
    await read(pace, BYTES_AT_ONCE)
    with anyio.move_on_after(0) as never:
        for _ in range(1000):
            await read(pace, STEP_BYTES)
    assert not never.cancelled_caught
