"""Whatever a worker says, the portal neither hangs nor breaks, and believes nothing over a limit."""

import asyncio
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_runtime.frames import END_HEADER, ToPortal, frame
from tests.depth import depth
from tests.sandbox_runtime.fuzz.portal_end import Plan, Trial

pytestmark = pytest.mark.anyio


PLANS = st.randoms(use_true_random=False).map(partial(Plan.drawn, most_messages=8))


@depth(1)
@given(plan=PLANS)
async def test_no_message_of_a_worker_harms_the_portal(plan: Plan) -> None:
    others = asyncio.all_tasks()
    unheard: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    trial = Trial(plan)
    await trial.go()
    await asyncio.sleep(0)
    assert (trial.faults, unheard) == ([], [])
    assert asyncio.all_tasks() == others


async def test_worker_that_keeps_the_rules_is_understood_in_the_same_way() -> None:
    answer = frame(ToPortal.FINISHED, END_HEADER.pack(1.0, 0), b"{}\n1")
    said = [[frame(ToPortal.OUTPUT, b"hi")], [frame(ToPortal.TRACE, b"7 +12 =0")], [answer]]
    for is_recorded in (False, True):
        said_here = said if is_recorded else said[::2]
        trial = Trial(Plan(3, [said_here], dies_early=False, pauses=True, is_recorded=is_recorded))
        await trial.go()
        assert (trial.code, trial.faults, trial.messages) == ("ok", [], len(said_here))
