"""The queue for workers: bounded, fair between callers, and clear when it is full."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from manifests.grants import Limits
from sandbox_runtime.result import Prepared
from sandbox_runtime.sandbox import Sandbox, open_sandbox
from sandbox_runtime.workers import PLACE_BYTES, BusyError, QueueLimits, Turn, Turns
from tests.sandbox_runtime.running import where

pytestmark = pytest.mark.anyio


def order(turns: Turns, places: dict[Turn, str]) -> str:
    """The callers in the order of their turns."""
    served = []
    while (turn := turns.next()) is not None:
        served.append(places[turn])
    return "".join(served)


def joined(turns: Turns, callers: str) -> dict[Turn, str]:
    return {turns.join(caller): caller for caller in callers}


async def test_callers_take_turns_however_many_scripts_each_has_waiting() -> None:
    turns = Turns(QueueLimits(most=1000))
    places = joined(turns, "a" * 500 + "bc" + "b")
    assert order(turns, places)[:8] == "abcabaaa"
    assert len(turns) == 0


async def test_scripts_of_one_caller_keep_their_order() -> None:
    turns = Turns(QueueLimits())
    places = [turns.join("a") for _ in range(5)]
    assert [turns.next() for _ in places] == places


async def test_a_caller_who_comes_back_after_each_turn_does_not_overtake() -> None:
    turns = Turns(QueueLimits())
    places = joined(turns, "abc")
    served = []
    for _ in range(9):
        turn = turns.next()
        assert turn is not None
        served.append(places[turn])
        places |= joined(turns, places[turn])
    assert "".join(served) == "abcabcabc"


async def test_script_that_was_cancelled_as_it_is_displaced_costs_nobody_anything() -> None:
    turns = Turns(QueueLimits(most=2))
    _, last = joined(turns, "aa")
    last.cancel()
    turns.join("b")
    assert len(turns) == 2


async def test_full_queue_refuses_at_once_and_says_the_limit() -> None:
    turns = Turns(QueueLimits(most=2, where=lambda key: f"portal.yaml:3:{len(key)}"))
    joined(turns, "aa")
    with pytest.raises(BusyError, match=r"queue of 2 \(portal\.yaml:3:5\)"):
        turns.join("a")
    assert len(turns) == 2


async def test_caller_with_fewer_waiting_takes_the_last_place_of_the_one_with_most() -> None:
    turns = Turns(QueueLimits(most=4))
    first, second, third, last = (turns.join("a") for _ in range(4))
    other = turns.join("b")
    assert isinstance(last.exception(), BusyError)
    assert [turns.next() for _ in range(4)] == [first, other, second, third]
    assert len(turns) == 0


async def test_long_script_takes_several_places() -> None:
    turns = Turns(QueueLimits(most=20))
    long = [turns.join("a", 10 * PLACE_BYTES), turns.join("a", 10 * PLACE_BYTES - 1)]
    with pytest.raises(BusyError):
        turns.join("a")
    assert len(turns) == 2
    for _ in range(10):
        turns.join("b")
    assert not long[0].done()
    assert isinstance(long[1].exception(), BusyError)
    with pytest.raises(BusyError):
        turns.join("c", 10 * PLACE_BYTES)
    assert (turns.next(), len(turns)) == (long[0], 10)


async def test_script_longer_than_the_queue_may_wait_alone() -> None:
    turns = Turns(QueueLimits(most=2))
    assert turns.join("a", 1 << 20) is turns.next()
    with pytest.raises(BusyError):
        Turns(QueueLimits(most=0)).join("a", 1 << 20)


async def test_callers_with_as_many_waiting_do_not_displace_each_other() -> None:
    turns = Turns(QueueLimits(most=4))
    places = joined(turns, "aabb")
    for caller in "ab":
        with pytest.raises(BusyError):
            turns.join(caller)
    assert not any(turn.done() for turn in places)
    turns.join("c")  # has none yet, so one of the others gives way
    assert [isinstance(turn.exception(), BusyError) for turn in places if turn.done()] == [True]


async def test_place_that_was_given_up_is_nobodys() -> None:
    turns = Turns(QueueLimits())
    first, second = turns.join("a"), turns.join("a")
    turns.leave("a", first)
    turns.leave("a", first)
    assert (len(turns), turns.next()) == (1, second)
    turns.leave("a", second)
    assert (len(turns), turns.next()) == (0, None)


@asynccontextmanager
async def one_worker(queue: QueueLimits) -> AsyncIterator[Sandbox]:
    async with open_sandbox(workers=1, progress=print, queue=queue) as sandbox:
        yield sandbox


async def prepared(sandbox: Sandbox, caller: str = "") -> Prepared:
    async with sandbox.run(Limits(), where, caller=caller) as run:
        return await run.prepare("1", ())


async def test_one_callers_many_scripts_delay_anothers_first_by_one_run() -> None:
    order: list[str] = []

    async def visit(sandbox: Sandbox, caller: str) -> None:
        await prepared(sandbox, caller)
        order.append(caller)

    async with (
        one_worker(QueueLimits()) as sandbox,
        anyio.create_task_group() as tasks,
        sandbox.run(Limits(), where),
    ):
        for _ in range(200):
            tasks.start_soon(visit, sandbox, "many")
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(visit, sandbox, "one")
        await anyio.wait_all_tasks_blocked()
    assert len(order) == 201
    assert order.index("one") <= 1


async def test_script_beyond_the_queue_is_refused_and_nothing_of_it_runs() -> None:
    queue = QueueLimits(most=1, where=lambda key: f"portal.yaml:5:3 {key}")
    async with one_worker(queue) as sandbox, anyio.create_task_group() as tasks:
        async with sandbox.run(Limits(), where):
            tasks.start_soon(prepared, sandbox)
            await anyio.wait_all_tasks_blocked()
            refused = await prepared(sandbox)
        assert refused.error is not None
        assert (refused.error.code, "portal.yaml:5:3 queue)" in refused.error.message) == (
            "sandbox_busy",
            True,
        )


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
