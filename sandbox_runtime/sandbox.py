"""The sandbox: open it once, and run any number of scripts, each in a worker of its own."""

import asyncio
import os
import secrets
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from functools import partial
from pathlib import Path

from manifests.grants import Limits
from sandbox_runtime.aot import AotCache, component_sha256, default_cache, guest_component
from sandbox_runtime.errors import PlatformError
from sandbox_runtime.grants.run_grants import NO_GRANTS, RunGrants
from sandbox_runtime.lockdown import MEASURES
from sandbox_runtime.recording import Origin, Recording
from sandbox_runtime.result import Bounds, RunError, worker_lost
from sandbox_runtime.run import MAX_SCRIPT_BYTES, Run, too_long
from sandbox_runtime.worker_process import Launcher, WorkerProcess, default_launcher
from sandbox_runtime.workers import BusyError, QueueLimits, Workers

_LEAST_WORKERS = 2
_WORKERS_PER_CORE = 8


@asynccontextmanager
async def open_sandbox(
    *,
    workers: int | None = None,
    component: Path | None = None,
    cache: Path | None = None,
    progress: Callable[[str], None],
    launch: Callable[[Path], Launcher] = default_launcher,
    queue: QueueLimits | None = None,
) -> AsyncIterator["Sandbox"]:
    """Start the workers, and end them at the end: one per core and at least two, more while scripts wait for slow
    calls, up to eight per core. `workers` fixes the number instead; `queue` bounds how many scripts wait for one.

    The first time on a machine this compiles the guest component for 5 s, which `progress` is told. Must be
    entered on a thread that lasts as long as the sandbox: workers end with the thread that started them.

    Raises:
        SandboxError: The sandbox cannot work here; the message says why.
    """
    if sys.platform == "win32":
        raise PlatformError("the sandbox needs Unix sockets and signals")
    aot = AotCache(cache or default_cache(os.environ), progress)
    wasm = component or guest_component()
    least = workers or max(_LEAST_WORKERS, os.cpu_count() or 1)
    most = workers or max(least, _WORKERS_PER_CORE * (os.cpu_count() or 1))
    try:
        sha256 = await asyncio.to_thread(component_sha256, wasm)
        compiled = await asyncio.to_thread(aot.compiled, wasm, sha256)
        pool = Workers(launch(compiled), least, most, progress, queue)
        try:
            await pool.open()
            yield Sandbox(pool, sha256)
        finally:
            await pool.close()
    finally:
        aot.close()


class Sandbox:
    """Runs scripts."""

    def __init__(self, workers: Workers, component: str = "unknown") -> None:
        self._workers = workers
        self.component = component
        """The sha256 of the guest component, in hex: records of other ones cannot be replayed here."""

    @property
    def protections(self) -> tuple[str, ...]:
        """What the system adds to the engine's isolation here, as the workers report it, for example "seccomp"."""
        return self._workers.protections

    @property
    def missing_protections(self) -> tuple[str, ...]:
        """What this system does not offer of what could be there, for example "seccomp"."""
        there = {name.partition("-")[0] for name in self.protections}
        return tuple(name for name in MEASURES if name not in there)

    @property
    def waiting(self) -> int:
        """How many scripts wait for a worker."""
        return self._workers.waiting

    @asynccontextmanager
    async def run(
        self,
        limits: Limits,
        where: Callable[[str], str],
        session: "Session | None" = None,
        caller: str = "",
        grants: RunGrants = NO_GRANTS,
        recording: Recording | None = None,
        script_bytes: int = 0,
    ) -> AsyncIterator[Run]:
        """Take a worker for one script; `where` tells where a limit is set.

        Waits for a free one, in turns with other callers: `caller` is whatever tells them apart, and `script_bytes`
        how much is kept meanwhile; it may be less than the script has. If none comes, or too many wait
        (`sandbox_busy`), or the session is gone (`worker_lost`), the run refuses everything with that error.
        `recording` takes the run down, so that it can be replayed.
        """
        make = partial(Run, bounds=Bounds(limits, where), recording=recording, grants=grants)
        if session is not None:
            async with session.turn:
                lost = None if session.alive else worker_lost("the session has ended")
                with closing(make(session.worker, origin=session.next_origin(), refusal=lost)) as run:
                    yield run
            return

        async def replace() -> WorkerProcess | None:
            with suppress(BusyError):
                return await self._workers.take(caller, script_bytes)
            return None

        worker, refusal = None, too_long(script_bytes) if script_bytes > MAX_SCRIPT_BYTES else None
        try:
            if refusal is None:
                worker = await self._workers.take(caller, script_bytes)
        except BusyError as error:
            refusal = RunError("sandbox_busy", str(error), hint="Try again in a moment.")
        run = make(worker, origin=Origin.now(self.component), refusal=refusal, replace=replace)
        try:
            with closing(run):
                yield run
        finally:
            if run.worker is not None:
                self._workers.give_back(run.worker)

    async def open_session(self) -> "Session":
        """Start a session, with a worker besides those of the pool; the caller closes it.

        Raises:
            WorkerStartError: Its worker did not start.
        """
        return Session(await self._workers.start(lambda _: None), self.component)


class Session:
    """Holds one worker: variables, imports and definitions of a run are there in the next.

    Its id cannot be guessed. It dies with its worker: by a limit that kills, a broken interpreter, or `close`.
    Runs of one session take turns.
    """

    def __init__(self, worker: WorkerProcess, component: str) -> None:
        self.id = secrets.token_urlsafe(18)
        self.turn = asyncio.Lock()
        self._worker = worker
        self._component = component
        self._began = time.monotonic_ns()
        self._runs = 0

    @property
    def alive(self) -> bool:
        return self._worker.is_alive

    @property
    def worker(self) -> WorkerProcess | None:
        """The worker while it lives."""
        return self._worker if self.alive else None

    def next_origin(self) -> Origin:
        """What the clocks and random numbers of the next run begin with; its monotonic clock goes on."""
        self._runs += 1
        # Whole milliseconds on both sides: two more for each run keep the clock from ever going back.
        elapsed_ms = (time.monotonic_ns() - self._began) // 1_000_000 + 2 * self._runs
        return Origin.now(self._component, elapsed_ms=elapsed_ms, position=self._runs)

    def close(self) -> None:
        """End it; a run that is going on is lost."""
        self._worker.kill("the session was closed")
