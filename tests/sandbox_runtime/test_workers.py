"""Worker processes: disposable, alone with their run, replaced when they die; forked and spawned alike."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from manifests.grants import Limits
from sandbox_runtime.call_port import Outcome, ToolCall
from sandbox_runtime.sandbox import Sandbox, open_sandbox
from sandbox_runtime.worker_process import ForkLauncher, SpawnLauncher
from tests.sandbox_runtime.running import EchoPort, Runner, where

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=[ForkLauncher, SpawnLauncher])
async def sandbox(anyio_backend: str, request: pytest.FixtureRequest) -> AsyncIterator[Sandbox]:
    async with open_sandbox(workers=2, progress=print, launch=request.param) as sandbox:
        yield sandbox


@pytest.mark.parametrize("signal_name", ["SIGKILL", "SIGSEGV", "SIGABRT", "SIGTERM"])
async def test_worker_that_ends_costs_its_run_and_no_other(
    sandbox: Sandbox, run: Runner, signal_name: str
) -> None:
    port, other = EchoPort(), EchoPort()
    async with sandbox.run(Limits(), where) as doomed:
        await doomed.prepare("print('kept')\nawait git.hangs()", ("git",))
        executing = asyncio.create_task(doomed.execute({}, port))
        spared = asyncio.create_task(run("await git.hangs()", port=other))
        await port.hanging.wait()
        await other.hanging.wait()
        assert doomed.worker_pid is not None
        os.kill(doomed.worker_pid, signal.Signals[signal_name])
        with anyio.fail_after(2):  # less than a worker may be silent
            result = await executing
    assert result.error is not None
    assert (result.error.code, result.stdout, port.cancelled) == ("worker_lost", "kept\n", [1])
    assert not spared.done()
    spared.cancel()
    assert await run.value("1 + 1") == 2


async def test_worker_holds_no_environment_and_nothing_open_but_its_channel(sandbox: Sandbox) -> None:
    async with sandbox.run(Limits(), where) as one:
        process = Path(f"/proc/{one.worker_pid}")
        assert (process / "environ").read_bytes().strip(b"\0") == b""
        opened = [str(entry.readlink()) for entry in (process / "fd").iterdir()]
    assert sum(name.startswith("socket:") for name in opened) == 1
    own = {
        "/dev/null",
        f"{process}/maps",
        f"{process}/pagemap",
        "anon_inode:[eventpoll]",
        "anon_inode:[eventfd]",
    }
    others = [name for name in opened if not name.startswith("socket:") and name not in own]
    assert {Path(name).suffix for name in others} <= {".cwasm"}


async def test_cancelled_run_ends_its_worker_and_its_calls(sandbox: Sandbox, run: Runner) -> None:
    port = EchoPort()
    pid: list[int | None] = []

    async def execute() -> None:
        async with sandbox.run(Limits(), where) as one:
            pid.append(one.worker_pid)
            await one.prepare("await git.hangs()", ("git",))
            await one.execute({}, port)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(execute)
        await port.hanging.wait()
        tasks.cancel_scope.cancel()
    assert port.cancelled == [1]
    assert pid[0] is not None
    await _gone(pid[0])
    assert await run.value("1 + 1") == 2


async def test_workers_are_gone_after_the_sandbox_is_closed() -> None:
    async with open_sandbox(workers=2, progress=print) as sandbox, sandbox.run(Limits(), where) as one:
        pid = one.worker_pid
    assert pid is not None
    await _gone(pid)


async def _gone(pid: int) -> None:
    """Wait until a process is dead; a zombie counts, its parent buries it when it comes to it."""
    with anyio.fail_after(10):
        while _state(pid) not in ("", "Z"):
            await anyio.lowlevel.checkpoint()


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


async def test_scripts_that_wait_for_each_other_get_workers_beyond_one_per_core() -> None:
    most = 8 * (os.cpu_count() or 1)
    together = anyio.Event()
    arrived = 0

    async def meet(call: ToolCall) -> Outcome:
        nonlocal arrived
        arrived += 1
        if arrived == most:
            together.set()
        await together.wait()
        return Outcome(arrived)

    async def visit(sandbox: Sandbox) -> None:
        async with sandbox.run(Limits(), where) as run:
            await run.prepare("await git.git_log()", ("git",))
            assert (await run.execute({}, meet)).value == most

    async with open_sandbox(progress=print) as sandbox, anyio.create_task_group() as tasks:
        for _ in range(most):
            tasks.start_soon(visit, sandbox)


async def test_scripts_that_compute_get_at_most_two_workers_per_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox_runtime.sandbox._SLOW_SECONDS", 60)  # however busy this machine is
    most = 0

    async def compute(sandbox: Sandbox) -> None:
        nonlocal most
        for _ in range(3):
            async with sandbox.run(Limits(), where) as run:
                await run.prepare("sum(range(200_000))", ())
                assert (await run.execute({}, EchoPort())).error is None
                most = max(most, sum(sandbox.workers.values()))

    async with open_sandbox(progress=print) as sandbox:
        least = sum(sandbox.workers.values())
        async with anyio.create_task_group() as tasks:
            for _ in range(6 * least):
                tasks.start_soon(compute, sandbox)
    assert least < most <= 2 * least
