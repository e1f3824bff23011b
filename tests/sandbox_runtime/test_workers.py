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


async def test_killed_worker_costs_its_own_run_only(sandbox: Sandbox, run: Runner) -> None:
    port, other = EchoPort(), EchoPort()
    async with sandbox.run(Limits(), where) as doomed, anyio.create_task_group() as tasks:
        await doomed.prepare("print('kept')\nawait git.hangs()", ("git",))
        tasks.start_soon(_kill_when_calling, port, doomed.worker_pid)
        spared: list[object] = []
        tasks.start_soon(_collect, run, other, spared)
        result = await doomed.execute({}, port)
        await other.hanging.wait()
        tasks.cancel_scope.cancel()
    assert result.error is not None
    assert (result.error.code, result.stdout) == ("worker_lost", "kept\n")
    assert port.cancelled == [1]
    assert spared == []


@pytest.mark.parametrize(
    "signal_number", [signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGABRT, signal.SIGTERM]
)
async def test_fault_in_the_engine_ends_its_worker_at_once(
    sandbox: Sandbox, run: Runner, signal_number: signal.Signals
) -> None:
    port = EchoPort()
    async with sandbox.run(Limits(), where) as one:
        await one.prepare("print('kept')\nawait git.hangs()", ("git",))
        executing = asyncio.create_task(one.execute({}, port))
        await port.hanging.wait()
        assert one.worker_pid is not None
        os.kill(one.worker_pid, signal_number)
        with anyio.fail_after(2):  # less than a worker may be silent
            result = await executing
    assert result.error is not None
    assert (result.error.code, result.stdout, port.cancelled) == ("worker_lost", "kept\n", [1])
    assert await run.value("1 + 1") == 2


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


async def test_worker_holds_no_environment_no_folder_and_no_foreign_descriptor(sandbox: Sandbox) -> None:
    async with sandbox.run(Limits(), where) as one:
        process = Path(f"/proc/{one.worker_pid}")
        assert (process / "environ").read_bytes().strip(b"\0") == b""
        opened = [os.readlink(entry) for entry in (process / "fd").iterdir()]
    sockets = [name for name in opened if name.startswith("socket:")]
    assert len(sockets) == 1
    others = [name for name in opened if not name.startswith(("socket:", "anon_inode:"))]
    own = {"/dev/null", f"{process}/maps", f"{process}/pagemap"}
    assert all(name in own or name.endswith(".cwasm") for name in others)


async def test_workers_are_gone_after_the_sandbox_is_closed() -> None:
    async with open_sandbox(workers=2, progress=print) as sandbox, sandbox.run(Limits(), where) as one:
        pid = one.worker_pid
    assert pid is not None
    await _gone(pid)


async def _kill_when_calling(port: EchoPort, pid: int | None) -> None:
    await port.hanging.wait()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


async def _collect(run: Runner, port: EchoPort, results: list[object]) -> None:
    results.append(await run("await git.hangs()", port=port))


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
        for _ in range(5):
            async with sandbox.run(Limits(), where) as run:
                await run.prepare("sum(range(400_000))", ())
                assert (await run.execute({}, EchoPort())).error is None
                most = max(most, sum(sandbox.workers.values()))

    async with open_sandbox(progress=print) as sandbox:
        least = sum(sandbox.workers.values())
        async with anyio.create_task_group() as tasks:
            for _ in range(6 * least):
                tasks.start_soon(compute, sandbox)
    assert least < most <= 2 * least
