"""Many runs at once: they wait their turn, one too many is refused at once and clearly, and the others go on."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from manifests.grants import Limits
from sandbox_runtime.fair_queue import QueueLimits
from sandbox_runtime.result import RunResult
from sandbox_runtime.sandbox import Sandbox, open_sandbox
from tests.acceptance.hostile import REACHED
from tests.sandbox_runtime.running import EchoPort, where

pytestmark = pytest.mark.anyio

QUEUE = 10
BOMBS = {
    "computes": "while True: pass",
    "waits": "await git.hangs()",
    "sleeps": "import time\ntime.sleep(600)",
    "blocks": "import select\nselect.select([], [], [], 600)",
    "fills": "a = []\nwhile True: a.append('x' * 10 ** 5)",
    "crashes": "import os\nos.abort()",
    "cheats": "from wit_world.imports import host\nhost.exchange('x', 0)",
}


@pytest.fixture(scope="module")
async def sandbox(anyio_backend: str) -> AsyncIterator[Sandbox]:
    """Two workers and a short queue, so that a bomb in each worker is seen by everybody."""
    queue = QueueLimits(most=QUEUE, where=where)
    async with open_sandbox(workers=2, progress=print, queue=queue) as sandbox:
        yield sandbox


async def run(sandbox: Sandbox, script: str, caller: str, limits: Limits | None = None) -> RunResult:
    running = sandbox.run(limits or Limits(), where, caller=caller, script_bytes=len(script))
    async with asyncio.timeout(60), running as one:
        await one.prepare(script, ("git",))
        return await one.execute({}, EchoPort())


@pytest.mark.parametrize("bomb", BOMBS)
async def test_bombs_of_one_caller_do_not_keep_another_from_running(sandbox: Sandbox, bomb: str) -> None:
    limits = Limits(wall_seconds=0.5, cpu_seconds=0.1, memory_mib=64)
    script = f"print({REACHED!r})\n{BOMBS[bomb]}"
    bombs = [asyncio.create_task(run(sandbox, script, "bomber", limits)) for _ in range(6)]
    await asyncio.sleep(0)
    assert (await run(sandbox, "40 + 2", "neighbour")).value == 42
    for result in await asyncio.gather(*bombs):
        assert result.error is not None
        assert REACHED in result.stdout


async def test_flood_of_one_caller_does_not_shut_another_out(sandbox: Sandbox) -> None:
    limits = Limits(wall_seconds=0.3)
    flood = [asyncio.create_task(run(sandbox, "await git.hangs()", "bomber", limits)) for _ in range(50)]
    await asyncio.sleep(0)
    assert (await run(sandbox, "40 + 2", "neighbour")).value == 42
    await asyncio.gather(*flood)


async def test_long_scripts_do_not_pile_up(sandbox: Sandbox) -> None:
    """However many are sent, no more than a few are kept, and those of another caller are not among the lost."""
    long = "await git.hangs()" + " " * 1_000_000
    limits = Limits(wall_seconds=0.3)
    flood = [asyncio.create_task(run(sandbox, long, "bomber", limits)) for _ in range(50)]
    await asyncio.sleep(0)
    assert sandbox.waiting <= 1
    assert (await run(sandbox, "40 + 2", "neighbour")).value == 42
    codes = [result.error.code for result in await asyncio.gather(*flood) if result.error is not None]
    assert codes.count("sandbox_busy") >= 47


async def test_script_that_is_too_long_does_not_even_wait(sandbox: Sandbox) -> None:
    limits = Limits(wall_seconds=0.3)
    busy = [asyncio.create_task(run(sandbox, "await git.hangs()", "bomber", limits)) for _ in range(QUEUE)]
    await asyncio.sleep(0)
    waiting = sandbox.waiting
    refused = asyncio.create_task(run(sandbox, "1" + " " * 1_100_000, "neighbour"))
    await asyncio.sleep(0)
    assert sandbox.waiting == waiting
    error = (await refused).error
    assert error.code == "syntax_error"
    await asyncio.gather(*busy)


async def test_runs_that_are_given_up_leave_the_queue(sandbox: Sandbox) -> None:
    bombs = [asyncio.create_task(run(sandbox, "await git.hangs()", "bomber")) for _ in range(QUEUE)]
    await asyncio.sleep(0)
    for task in bombs:
        task.cancel()
    await asyncio.gather(*bombs, return_exceptions=True)
    scripts = (run(sandbox, f"{number}", "neighbour") for number in range(QUEUE))
    assert [result.value for result in await asyncio.gather(*scripts)] == list(range(QUEUE))
