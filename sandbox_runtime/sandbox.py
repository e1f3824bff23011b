"""The sandbox, which runs scripts in workers, and the pool of workers."""

import asyncio
import os
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import InitVar, dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path

from manifests.grants import Limits
from manifests.kernels import PYTHON
from sandbox_runtime.aot import AotCache, component_sha256, default_cache, guest_component
from sandbox_runtime.errors import WorkerStartError
from sandbox_runtime.fair_queue import BusyError, FairQueue, QueueLimits
from sandbox_runtime.grants.run_grants import NO_GRANTS, RunGrants
from sandbox_runtime.kernels import KERNELS, Kernel
from sandbox_runtime.recording import Origin, Recording
from sandbox_runtime.result import Bounds, RunError, worker_lost
from sandbox_runtime.run import MAX_SCRIPT_BYTES, Run, too_long
from sandbox_runtime.worker.lockdown import MEASURES
from sandbox_runtime.worker_process import Launcher, WorkerProcess, default_launcher

_LEAST_WORKERS = 2
_WORKERS_PER_CORE = 8


@asynccontextmanager
async def open_sandbox(
    *,
    workers: int | None = None,
    component: Path | None = None,
    kernel: Kernel = KERNELS[PYTHON],
    progress: Callable[[str], None],
    launch: Callable[[Path, Kernel], Launcher] = default_launcher,
    queue: QueueLimits | None = None,
) -> AsyncIterator["Sandbox"]:
    """Start a worker, more as scripts need them, and end them on exit.

    There are up to two per core, or eight if scripts wait for slow calls, at least two; after a minute without a script
    there is none. `workers` fixes the most. `component` is another one of the same kernel. `queue` limits the scripts
    that wait for a worker. The first start on a machine compiles the component (1 to 5 s); `progress` gets a message.
    Enter it on a thread that lives as long as the sandbox: workers end with the thread that started them. Raises
    SandboxError: the sandbox cannot run here; the message says why.
    """
    wasm = component or guest_component(kernel)
    least = workers or max(_LEAST_WORKERS, os.cpu_count() or 1)
    most = workers or max(least, _WORKERS_PER_CORE * (os.cpu_count() or 1))
    with closing(AotCache(default_cache(os.environ), progress)) as aot:
        sha256 = await asyncio.to_thread(component_sha256, wasm)
        compiled = await asyncio.to_thread(aot.compiled, wasm, sha256)
        pool = Workers(launch(compiled, kernel), least, most, progress, queue)
        try:
            await pool.open()
            yield Sandbox(pool, sha256, kernel)
        finally:
            await pool.close()


class Sandbox:
    """Runs scripts."""

    def __init__(
        self, workers: "Workers", component: str = "unknown", kernel: Kernel = KERNELS[PYTHON]
    ) -> None:
        self._workers = workers
        self.kernel = kernel
        self.component = component
        """The sha256 of the guest component, in hex. Records of other components cannot be replayed here."""

    @property
    def protections(self) -> tuple[str, ...]:
        """The system's protections besides the engine's isolation, as the workers report them, such as "seccomp"."""
        # A worker that starts has not reported them yet.
        return next((worker.protections for worker in self._workers.all if worker.protections), ())

    @property
    def missing_protections(self) -> tuple[str, ...]:
        """The protections that this system does not support, such as "seccomp"."""
        there = {name.partition("-")[0] for name in self.protections}
        return tuple(name for name in MEASURES if name not in there)

    @property
    def waiting(self) -> int:
        """How many scripts wait for a worker."""
        return len(self._workers.waiting)

    @property
    def workers(self) -> dict[str, int]:
        """The number of idle and of busy worker processes, including those of sessions."""
        idle = len(self._workers.free)
        return {"idle": idle, "busy": max(len(self._workers.all) - idle, 0)}

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
        """Take a worker for one script; `where` gives the place of a limit.

        Waits for a free worker in a fair queue: `caller` identifies the caller, and `script_bytes` is the memory held
        while waiting, which may be less than the whole script. If no worker becomes free, or too many wait
        (`sandbox_busy`), or the session is gone (`worker_lost`), the run returns that error. `recording` records the
        run for a replay.
        """
        make = partial(Run, bounds=Bounds(limits, where, self.kernel), recording=recording, grants=grants)
        if session is not None:
            async with session.lock:
                lost = None if session.alive else worker_lost("the session has ended")
                with closing(make(session.worker, origin=session.next_origin(), error=lost)) as run:
                    yield run
            return

        async def replace() -> WorkerProcess | None:
            with suppress(BusyError):
                return await self._workers.take(caller, script_bytes)
            return None

        worker, refused = None, too_long(script_bytes) if script_bytes > MAX_SCRIPT_BYTES else None
        try:
            if refused is None:
                worker = await self._workers.take(caller, script_bytes)
        except BusyError as error:
            refused = RunError("sandbox_busy", str(error), hint="Try again in a moment.")
        run = make(worker, origin=Origin.now(self.component), error=refused, replace=replace)
        try:
            yield run
        finally:
            run.close()
            if run.worker is not None:
                self._workers.give_back(run.worker)

    async def open_session(self) -> "Session":
        """Start a session with its own worker outside the pool. The caller closes it. Raises WorkerStartError."""
        return Session(await self._workers.start(), self.component)


class Session:
    """A session with its own worker, which keeps variables, imports and definitions between runs.

    Its id cannot be guessed. It ends with its worker: by a limit, a crashed interpreter, or `close`. Runs of one
    session are serialized.
    """

    def __init__(self, worker: WorkerProcess, component: str) -> None:
        self.id = secrets.token_hex(16)
        self.lock = asyncio.Lock()
        self.worker = worker
        self._component = component
        self._began = time.monotonic_ns()
        self._runs = 0

    @property
    def alive(self) -> bool:
        return self.worker.is_alive

    def next_origin(self) -> Origin:
        """The origin of the next run. Its monotonic clock continues that of the session."""
        self._runs += 1
        # Both are rounded to milliseconds; two extra per run keep the clock from going back.
        elapsed_ms = (time.monotonic_ns() - self._began) // 1_000_000 + 2 * self._runs
        return Origin.now(self._component, elapsed_ms=elapsed_ms, position=self._runs)

    def close(self) -> None:
        """End the session and a run in progress."""
        self.worker.kill("the session was closed")


_GROW_EVERY_SECONDS = 0.02
_SLOW_SECONDS = 0.1
_BUSY_FACTOR = 2
_LINGER_SECONDS = 60.0
_RETRY_SECONDS = 1.0
_QUICK_RETRIES = 3


@dataclass(eq=False)
class Workers:
    """The pool of workers, with a fair queue of waiting callers.

    It begins with one worker. While callers wait it gets more, every 20 ms, and below `size` at once: up to twice
    `size` that compute; more would only slow each other down (`python -m benchmarks.throughput`). Scripts keep their
    worker while they wait for slow calls. So those with a call in flight, or held for more than 100 ms, do not count,
    up to `most` altogether. If `most` are held, a caller with less than an equal share gets a further one, up to twice
    `most`; not if `most` is 1. A worker ends after a minute without use. The fork server stays, and forks the next in
    milliseconds, so one that ends is not replaced until a script needs it.
    """

    launcher: Launcher
    size: int
    most: int
    report: Callable[[str], None]
    queue: InitVar[QueueLimits | None] = None
    all: set[WorkerProcess] = field(default_factory=set)
    free: dict[WorkerProcess, asyncio.TimerHandle] = field(default_factory=dict)
    """The free workers, longest free first, each with the timer that ends it."""
    _held: dict[WorkerProcess, tuple[str, float]] = field(default_factory=dict)
    """The caller that took each of the other workers, and when, in the loop's time."""
    _growth: asyncio.TimerHandle | None = None
    _starting: set[asyncio.Task[None]] = field(default_factory=set)
    _is_open: bool = True

    def __post_init__(self, queue: QueueLimits | None) -> None:
        limit = 2 * self.most if self.most > 1 else 1
        self.waiting: FairQueue[WorkerProcess] = FairQueue(queue or QueueLimits(), self.most, limit)

    async def open(self) -> None:
        """Start the first worker. Raises WorkerStartError: workers do not start here."""
        self._add_free(await self.start())

    async def start(self) -> WorkerProcess:
        """Start one more worker, for the pool or for a session. Raises WorkerStartError."""
        worker = await WorkerProcess.start(self.launcher, self._forget)
        if not (worker.is_alive and self._is_open):
            worker.kill("the sandbox was closed")
            raise WorkerStartError("the sandbox was closed while a worker started")
        self.all.add(worker)
        return worker

    async def take(self, caller: str = "", script_bytes: int = 0) -> WorkerProcess:
        """Take a free worker, or wait for one. Raises BusyError."""
        # Rotate, so that the worker has renewed its instance; but among few, so that the others can retire.
        turns = islice(self.free, max(len(self.free) - _BUSY_FACTOR * self.size, 0), None)
        if self.waiting.has_room(caller) and (worker := next(turns, None)) is not None:
            self.free.pop(worker).cancel()
            self.waiting.held[caller] += 1
            self._held[worker] = caller, asyncio.get_running_loop().time()
            return worker
        waiter = self.waiting.join(caller, script_bytes)
        if self._growth is None:
            delay = 0 if self._pooled < self.size else _GROW_EVERY_SECONDS
            self._growth = asyncio.get_running_loop().call_later(delay, self._grow)
        return await self.waiting.served(waiter, self.give_back)

    def give_back(self, worker: WorkerProcess) -> None:
        """Give a worker to the next caller, or make it free. A dead one is forgotten already."""
        if not worker.is_alive:
            return
        self._let_go(worker)
        self._add_free(worker)
        self._hand_out()

    async def close(self) -> None:
        self._is_open = False
        for worker in list(self.all):
            worker.kill("the sandbox was closed")
        for start in self._starting:
            start.cancel()
        if self._starting:
            await asyncio.wait(self._starting)
        await self.launcher.close()

    def _add_free(self, worker: WorkerProcess) -> None:
        end = partial(worker.kill, "it was no longer needed")
        self.free[worker] = asyncio.get_running_loop().call_later(_LINGER_SECONDS, end)

    def _hand_out(self) -> None:
        """Give free workers to callers who wait. When one ends, the share of several others may grow."""
        while self.free and (waiter := self.waiting.next()) is not None:
            worker, end = self.free.popitem()
            end.cancel()
            self._held[worker] = waiter.caller, asyncio.get_running_loop().time()
            waiter.set_result(worker)

    def _let_go(self, worker: WorkerProcess) -> None:
        if (held := self._held.pop(worker, None)) is not None:
            self.waiting.drop(held[0])

    def _grow(self) -> None:
        self._growth = None
        if not self.waiting or not self._is_open:
            return
        self._hand_out()
        loop = asyncio.get_running_loop()
        long_ago = loop.time() - _SLOW_SECONDS
        slow = sum(since < long_ago or worker.waits_for_calls for worker, (_, since) in self._held.items())
        most = min(self.most, _BUSY_FACTOR * self.size + slow)
        if self._pooled >= self.most:
            most = min(self.waiting.most, self._pooled + self.waiting.newcomers - len(self._starting))
        for _ in range(min(most - self._pooled, len(self.waiting) - len(self._starting))):
            start = loop.create_task(self._add())
            self._starting.add(start)
            start.add_done_callback(self._starting.discard)
        self._growth = loop.call_later(_GROW_EVERY_SECONDS, self._grow)

    @property
    def _pooled(self) -> int:
        """The number of workers, without those of sessions, and with those that start."""
        return len(self.free) + len(self._held) + len(self._starting)

    def _forget(self, dead: WorkerProcess) -> None:
        self.all.discard(dead)
        self._let_go(dead)
        if (end := self.free.pop(dead, None)) is not None:
            end.cancel()

    async def _add(self) -> None:
        failures = 0
        while self._is_open:
            try:
                self.give_back(await self.start())
                return
            except WorkerStartError as error:
                failures += 1
                if failures == _QUICK_RETRIES:
                    self.report(f"workers do not start; retrying: {error}")
                if failures >= _QUICK_RETRIES:
                    await asyncio.sleep(_RETRY_SECONDS)
