"""Who stops waiting for work that hangs leaves its thread behind, and that thread still counts."""

import asyncio
import threading

import pytest

from sandbox_runtime.grants.threads import Threads

pytestmark = pytest.mark.anyio


async def test_thread_that_hangs_is_free_again_only_when_its_work_ends() -> None:
    threads, begun, go_on = Threads(1), asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    order: list[str] = []

    def hang() -> None:
        loop.call_soon_threadsafe(begun.set)
        go_on.wait(30)
        order.append("hung")

    hanging = asyncio.create_task(threads.run(hang))
    await asyncio.wait_for(begun.wait(), 30)
    hanging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hanging
    waiting = asyncio.create_task(threads.run(lambda: order.append("next")))
    given_up = asyncio.create_task(threads.run(lambda: order.append("never")))
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.wait([given_up])
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.wait_for(waiting, 30)
    assert order == ["hung", "next"]
