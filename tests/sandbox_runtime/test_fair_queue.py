"""The queue for workers: bounded, fair between callers, and clear when it is full."""

from collections import Counter

import anyio
import pytest

from manifests.grants import Limits
from sandbox_runtime.fair_queue import FairQueue, QueueLimits, Turns, has_room
from sandbox_runtime.sandbox import open_sandbox
from tests.sandbox_runtime.running import Runner, where

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("held", "callers", "begins"),
    [
        ("", "a" * 500 + "bc" + "b", "abcabaaa"),  # they take turns
        ("aaab", "aabbcc", "cbcbaa"),  # whoever holds the fewest is served first
    ],
)
async def test_order_of_callers_is_fair(held: str, callers: str, begins: str) -> None:
    queue: FairQueue[None] = FairQueue(QueueLimits(most=1000))
    queue.held.update(held)
    places = {queue.join(caller): caller for caller in callers}
    served = ""
    while (waiter := queue.next()) is not None:
        served += places[waiter]
    assert (served[:8].startswith(begins), len(served), len(queue)) == (True, len(callers), 0)


async def test_waiting_has_an_end() -> None:
    async with open_sandbox(workers=1, progress=print, queue=QueueLimits(seconds=0.05)) as sandbox:
        async with sandbox.run(Limits(), where), sandbox.run(Limits(), where) as late:
            error = (await late.prepare("1", ())).error
        assert error is not None
        assert (error.code, "queue_seconds" in error.message) == ("sandbox_busy", True)
        assert await Runner(sandbox).value("1") == 1


@pytest.mark.parametrize(
    ("held", "has_more"),
    [("", "abc"), ("aaa", "abc"), ("aaaa", "bc"), ("aaaabb", "c"), ("aaaabbc", "d"), ("aaaabbcd", "")],
)
async def test_who_holds_less_than_a_share_gets_more_though_all_are_taken(held: str, has_more: str) -> None:
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
