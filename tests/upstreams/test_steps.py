"""Work in steps leaves others their turns, however many work so."""

from itertools import pairwise

import anyio
import anyio.lowlevel
import pytest

from tests.upstreams.streams import turns_of_others
from upstreams.steps import Steps, in_steps

pytestmark = pytest.mark.anyio

STEPS = 20


@pytest.mark.parametrize("workers", [1, 16])
async def test_others_have_several_turns_after_each_step_of_whomever(workers: int) -> None:
    steps_at: list[int] = []

    def work() -> Steps[None]:
        for _ in range(STEPS):
            yield
            steps_at.append(turns.count)

    async with turns_of_others() as turns, anyio.create_task_group() as tasks:
        for _ in range(workers):
            tasks.start_soon(in_steps, work())
    between = [after - before for before, after in pairwise(steps_at)]
    assert len(between) == workers * STEPS - 1
    assert min(between) >= 3


async def test_worker_who_is_cancelled_while_others_have_their_turns_keeps_nobody_waiting() -> None:
    def work() -> Steps[None]:
        for _ in range(STEPS):
            yield

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(in_steps, work())
        await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    with anyio.fail_after(10):
        await in_steps(work())
