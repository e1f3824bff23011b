"""Ways in which a run ends that need more than a script: cancelled, killed, never begun, in a session."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress

from benchmarks.ways_to_end import Port, PortError, Way, fault_of
from manifests.grants import Limits
from sandbox_runtime.run import Run
from sandbox_runtime.sandbox import Sandbox


async def cancelled(sandbox: Sandbox) -> str:
    """The client goes away while a call is under way."""
    port = Port()

    async def visit() -> None:
        async with sandbox.run(Limits(), str) as run:
            await run.prepare("await bench.hang()", ("bench",))
            await run.execute({}, port)

    task = asyncio.create_task(visit())
    await port.hanging.wait()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
        return "a cancelled run went on"
    return "calls were left" if port.under_way else ""


async def killed(sandbox: Sandbox) -> str:
    """The worker's process dies while a call is under way."""
    port = Port()
    async with sandbox.run(Limits(), str) as run:
        await run.prepare("print('kept')\nawait bench.hang()", ("bench",))
        executing = asyncio.create_task(run.execute({}, port))
        await port.hanging.wait()
        kill(run)
        result = await executing
    return fault_of(result, "worker_lost", None, "kept\n") or ("calls were left" if port.under_way else "")


async def killed_while_idle(sandbox: Sandbox) -> str:
    """The worker dies before anything ran: another one takes over, and nobody notices."""
    async with sandbox.run(Limits(), str) as run:
        kill(run)
        await run.prepare("6 * 7", ())
        result = await run.execute({}, Port())
    return fault_of(result, None, 42, "")


async def abandoned(sandbox: Sandbox) -> str:
    """A script that the check refuses: it was prepared, and never runs."""
    async with sandbox.run(Limits(), str) as run:
        prepared = await run.prepare("print('never')\nbench.echo()", ("bench",))
    return "" if prepared.error is None else f"not prepared: {prepared.error.code}"


async def port_fault(sandbox: Sandbox) -> str:
    """The portal's own side fails."""
    try:
        async with sandbox.run(Limits(), str) as run:
            await run.prepare("await bench.bug()", ("bench",))
            await run.execute({}, Port())
    except PortError:
        return ""
    return "the port's error was lost"


async def session(sandbox: Sandbox) -> str:
    """Three runs of one session, of which one fails, and one that ends it."""
    live = await sandbox.open_session()
    runs = (
        Way("define", "x = [1]", value=[1]),
        Way("fail", "x.append(2)\n1 / 0", "script_error"),
        Way("use", "x", value=[1, 2]),
        Way("break", "import os\nos.abort()", "script_error"),
        Way("gone", "x", "worker_lost"),
    )
    try:
        for way in runs:
            async with sandbox.run(Limits(), str, live) as run:
                await run.prepare(way.script, ())
                result = await run.execute({}, Port())
            fault = fault_of(result, way.code, way.value, way.stdout)
            if fault:
                return f"{way.name}: {fault}"
    finally:
        live.close()
    return ""


SPECIAL: dict[str, Callable[[Sandbox], Awaitable[str]]] = {
    "cancelled": cancelled,
    "killed": killed,
    "killed while idle": killed_while_idle,
    "abandoned": abandoned,
    "fault of the port": port_fault,
    "session": session,
}
"""Ways that need more than a script; each kills its worker, or has one of its own, but for `abandoned`."""


def kill(run: Run) -> None:
    assert run.worker_pid is not None
    with suppress(ProcessLookupError):
        os.kill(run.worker_pid, signal.SIGKILL)
