"""A worker that does not answer is killed; its run says so, no other notices, and the pool heals."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import pytest

from manifests.grants import Limits
from sandbox_runtime.result import RunResult
from sandbox_runtime.sandbox import Sandbox, Session, open_sandbox
from tests.sandbox_runtime.running import EchoPort, Runner, where

pytestmark = pytest.mark.anyio

WORKERS = 5


@pytest.fixture(scope="module")
async def sandbox(anyio_backend: str) -> AsyncIterator[Sandbox]:
    async with open_sandbox(workers=WORKERS, progress=print) as sandbox:
        yield sandbox


async def test_stopped_workers_cost_their_own_runs_and_the_pool_heals(sandbox: Sandbox, run: Runner) -> None:
    """All in one test, because each takes the four seconds that a worker may be silent."""
    quiet = "import asyncio\nawait asyncio.sleep(5)\n'done'"
    busy = "import time\nend = time.monotonic() + 5\nwhile time.monotonic() < end: sum(range(10**6))\n'done'"
    session = await sandbox.open_session()
    refused, *lost, slept, computed, of_idle = await asyncio.gather(
        run_in_stopped_session(sandbox, session),
        stopped(sandbox, "print('kept')\nawait git.hangs()"),
        stopped(
            sandbox,
            "import asyncio\nprint('kept')\nasyncio.create_task(git.hangs())\n"
            "await git.git_log()\nwhile True: pass",
        ),
        run(quiet),
        run(busy),
        run_in_worker_stopped_while_idle(sandbox),
    )
    for result, port in lost:
        assert result.error is not None
        assert (result.error.code, result.stdout) == ("worker_lost", "kept\n")
        assert port.cancelled
    assert refused == ["worker_lost", "worker_lost", ""]
    assert not session.alive
    assert [slept.value, computed.value, of_idle.value] == ["done", "done", 2]
    assert await asyncio.gather(*(run.value("1 + 1") for _ in range(2 * WORKERS))) == [2] * 2 * WORKERS


async def stopped(sandbox: Sandbox, script: str) -> tuple[RunResult, EchoPort]:
    """Run a script that calls git.hangs, and stop its worker there."""
    port = EchoPort()
    async with sandbox.run(Limits(), where) as run:
        await run.prepare(script, ("git",))
        executing = asyncio.create_task(run.execute({}, port))
        hanging = asyncio.create_task(port.hanging.wait())
        await asyncio.wait({hanging, executing}, return_when=asyncio.FIRST_COMPLETED)
        assert not executing.done(), executing.result()  # where the machine has no time for a worker, say so
        stop(run.worker_pid)
        return await executing, port


async def run_in_worker_stopped_while_idle(sandbox: Sandbox) -> RunResult:
    async with sandbox.run(Limits(), where) as run:
        stop(run.worker_pid)
        await run.prepare("1 + 1", ())
        return await run.execute({}, EchoPort())


async def run_in_stopped_session(sandbox: Sandbox, session: Session) -> list[str]:
    """The codes of prepare and execute, and what was printed."""
    async with sandbox.run(Limits(), where, session) as run:
        stop(run.worker_pid)
        prepared = await run.prepare("print('never')", ())
        result = await run.execute({}, EchoPort())
    assert prepared.error is not None
    assert result.error is not None
    return [prepared.error.code, result.error.code, result.stdout]


def stop(pid: int | None) -> None:
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
