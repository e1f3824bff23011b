"""Names are looked up for all who ask: nobody's that hang keep those of others waiting."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import ip_address

import pytest

from manifests.hosts import Address
from sandbox_runtime.grants.lookups import OF_A_CALLER, OF_A_RUN, THREADS, Lookups, RunLookups, SystemResolver

pytestmark = pytest.mark.anyio

HERE = [ip_address("192.0.2.1")]


class Hanging:
    """Looks up names of `hangs` until it is let go; all others at once."""

    def __init__(self) -> None:
        self.under_way = 0
        self.go = asyncio.Event()

    async def __call__(self, host: str, port: int) -> Sequence[Address]:
        if host == "hangs":
            self.under_way += 1
            await self.go.wait()
            self.under_way -= 1
        if host == "unknown":
            raise OSError("not known")
        return HERE


async def left_behind(lookups: RunLookups, count: int) -> None:
    """Begin lookups that hang, as fetches do that have a short timeout."""
    tasks = [asyncio.ensure_future(lookups("hangs", 80)) for _ in range(count)]
    for _ in range(10):
        await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_run_has_its_share_of_lookups_also_of_those_it_waits_for_no_longer() -> None:
    resolver = Hanging()
    lookups = Lookups(resolver)
    run = lookups.of_run("caller")
    for _ in range(3):
        await left_behind(run, 10)
    assert resolver.under_way == OF_A_RUN
    waiting = asyncio.ensure_future(run("fine", 80))
    assert await lookups.of_run("caller")("fine", 80) == HERE
    assert not waiting.done()
    resolver.go.set()
    assert await waiting == HERE


async def test_runs_of_one_caller_leave_lookups_to_other_callers() -> None:
    resolver = Hanging()
    lookups = Lookups(resolver)
    for _ in range(OF_A_CALLER):
        await left_behind(lookups.of_run("hostile"), OF_A_RUN)
    assert resolver.under_way == OF_A_CALLER < THREADS
    assert await lookups.of_run("other")("fine", 80) == HERE
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(lookups.of_run("hostile")("fine", 80), 0.05)
    resolver.go.set()
    assert await lookups.of_run("hostile")("fine", 80) == HERE
    assert resolver.under_way == 0


async def test_lookup_that_fails_gives_its_share_back() -> None:
    run = Lookups(Hanging()).of_run("caller")
    for _ in range(2 * OF_A_CALLER):
        with suppress(OSError):
            await run("unknown", 80)
    assert await run("fine", 80) == HERE


async def test_system_knows_this_machine() -> None:
    assert ip_address("127.0.0.1") in await Lookups(SystemResolver()).of_run("")("localhost", 80)
