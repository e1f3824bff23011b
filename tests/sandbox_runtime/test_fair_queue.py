"""The queue for workers: bounded, fair between callers, and clear when it is full."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from manifests.grants import Limits
from sandbox_runtime.fair_queue import FairQueue, QueueLimits, Turns, Waiter, has_room
from sandbox_runtime.result import Prepared
from sandbox_runtime.sandbox import Sandbox, open_sandbox
from tests.sandbox_runtime.running import where

pytestmark = pytest.mark.anyio


def order(queue: FairQueue[None], places: dict[Waiter[None], str]) -> str:
    """The callers in the order of their turns."""
    served = []
    while (waiter := queue.next()) is not None:
        served.append(places[waiter])
    return "".join(served)


def joined(queue: FairQueue[None], callers: str) -> dict[Waiter[None], str]:
    return {queue.join(caller): caller for caller in callers}


async def test_callers_take_turns_however_many_scripts_each_has_waiting() -> None:
    queue: FairQueue[None] = FairQueue(QueueLimits(most=1000))
    places = joined(queue, "a" * 500 + "bc" + "b")
    assert order(queue, places)[:8] == "abcabaaa"
    assert len(queue) == 0


@asynccontextmanager
async def one_worker(queue: QueueLimits) -> AsyncIterator[Sandbox]:
    async with open_sandbox(workers=1, progress=print, queue=queue) as sandbox:
        yield sandbox


async def prepared(sandbox: Sandbox, caller: str = "") -> Prepared:
    async with sandbox.run(Limits(), where, caller=caller) as run:
        return await run.prepare("1", ())


async def test_waiting_has_an_end() -> None:
    async with one_worker(QueueLimits(seconds=0.05)) as sandbox:
        async with sandbox.run(Limits(), where):
            refused = await prepared(sandbox)
        assert refused.error is not None
        assert (refused.error.code, "queue_seconds" in refused.error.message) == ("sandbox_busy", True)
        assert (await prepared(sandbox)).error is None


async def test_caller_that_goes_away_while_it_waits_leaves_the_worker_to_the_next() -> None:
    async with one_worker(QueueLimits()) as sandbox:
        async with sandbox.run(Limits(), where):
            gone = [asyncio.create_task(prepared(sandbox)) for _ in range(50)]
            await anyio.wait_all_tasks_blocked()
            patient = asyncio.create_task(prepared(sandbox))
            for task in gone:
                task.cancel()
        assert (await patient).error is None
        assert {result.__class__ for result in await asyncio.gather(*gone, return_exceptions=True)} == {
            asyncio.CancelledError
        }


async def test_who_holds_the_fewest_is_served_first() -> None:
    queue: FairQueue[None] = FairQueue(QueueLimits())
    queue.held.update("aaab")
    places = joined(queue, "aabbcc")
    assert order(queue, places) == "cbcbaa"


@pytest.mark.parametrize(
    ("held", "has_more"),
    [
        ("", "abc"),
        ("aaa", "abc"),
        ("aaaa", "bc"),
        ("aaaabb", "c"),
        ("aaaabbc", "d"),
        ("aaaabbcd", ""),  # twice as many
    ],
)
async def test_who_holds_less_than_an_equal_share_gets_more_though_all_are_taken(
    held: str, has_more: str
) -> None:
    assert "".join(each for each in "abcd" if has_room(Counter(held), each, 4, 8)) >= has_more
    assert not any(has_room(Counter(held), each, 4, 8) for each in set(held) - set(has_more))


async def test_a_turn_is_given_to_another_caller_at_once_and_passed_on_if_it_comes_too_late() -> None:
    turns, had, done = Turns(1, 2), list[str](), anyio.Event()

    async def have(caller: str) -> None:
        async with turns.turn(caller):
            had.append(caller)
            await done.wait()

    async with anyio.create_task_group() as tasks:
        for caller in "aaabc":
            tasks.start_soon(have, caller)
        await anyio.wait_all_tasks_blocked()
        assert had == ["a", "b"]
        with anyio.move_on_after(0):  # gives its turn up as it comes
            await have("d")
        done.set()
    assert had == ["a", "b", "a", "c", "a"]
