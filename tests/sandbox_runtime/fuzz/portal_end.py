"""The portal's end of a channel whose other end is whatever the caller feeds it: no socket, no process, no waiting."""

import asyncio
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from manifests.grants import Limits
from sandbox_runtime.calls import CallError, Outcome, ToolCall
from sandbox_runtime.frames import COUNT, ToPortal, frame
from sandbox_runtime.record import Origin
from sandbox_runtime.recording import Recording
from sandbox_runtime.result import Bounds, RunResult
from sandbox_runtime.run import Run
from sandbox_runtime.worker_process import WorkerProcess
from tests.sandbox_runtime.fuzz.noise import conversation, to_portal

DEADLINE_SECONDS = 10.0
LIMITS = Limits(
    tool_calls=20,
    parallel_calls=3,
    argument_bytes=1000,
    outcome_bytes=1000,
    result_bytes=2000,
    stdout_bytes=100,
    wall_seconds=60,
)
_PREPARED = frame(ToPortal.PREPARED, b'{"source": null, "names": ["a"], "uses": [], "notices": []}')
_BOUNDS = Bounds(LIMITS, str)
_LONGEST_TEXT = 20_000


class Wire(asyncio.Transport):
    """Takes what the portal writes, and forgets it."""

    def __init__(self) -> None:
        super().__init__()
        self.written_bytes = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written_bytes += len(data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def abort(self) -> None:
        pass


@dataclass
class Port:
    """Answers at once, later, never, too much, or with an error, by the function's name."""

    here: int = 0
    most: int = 0
    calls: int = 0

    async def __call__(self, call: ToolCall) -> Outcome:
        self.calls += 1
        self.here += 1
        self.most = max(self.most, self.here)
        try:
            if call.function == "a.hang":
                await asyncio.Event().wait()
            if call.function == "a.fail":
                return Outcome(error=CallError("failed", "it failed"))
            if call.function == "a.large":
                await asyncio.sleep(0)
                return Outcome("x" * 2000)
            return Outcome(call.arguments)
        finally:
            self.here -= 1


@dataclass(frozen=True)
class Plan:
    """What the stranger will do: when it begins, and what it says in up to three turns."""

    stage: int
    turns: list[list[list[bytes]]]
    dies_early: bool
    pauses: bool
    is_recorded: bool

    @classmethod
    def drawn(cls, chance: Random, most_messages: int) -> "Plan":
        """All chance is used up here: what follows may be cancelled at any point."""
        turns = [conversation(chance, to_portal, most_messages) for _ in range(chance.randrange(1, 4))]
        dies_early, pauses, is_recorded = (chance.random() < share for share in (0.5, 0.1, 0.5))
        return cls(chance.choice((0, 1, 2, 2, 2, 3, 4, 5)), turns, dies_early, pauses, is_recorded)


@dataclass
class Trial:
    """One worker's life in the hands of a stranger; `faults` says what the portal did wrong."""

    plan: Plan
    messages: int = 0
    faults: list[str] = field(default_factory=list)
    code: str = ""

    async def go(self) -> None:
        process = WorkerProcess(lambda _: None)
        process.connection_made(Wire())
        process.data_received(frame(ToPortal.READY, COUNT.pack(1)))
        stage = self.plan.stage
        if stage == 0:
            self._feed(process, self.plan.turns[0])
            self._lose(process)
            return
        run = Run(
            process,
            _BOUNDS,
            partial(Origin.now, "none"),
            recording=Recording() if self.plan.is_recorded else None,
            replace=None if stage == 1 else _no_other,
        )
        await self._prepare(run, process)
        port = Port()
        executing = asyncio.ensure_future(run.execute({}, port))
        await asyncio.sleep(0)
        if stage > 2:
            for turn in self.plan.turns:
                self._feed(process, turn)
                await asyncio.sleep(0)
        await self._end(executing, process)
        self._check(await executing, port)
        run.close()
        self._lose(process)

    async def _prepare(self, run: Run, process: WorkerProcess) -> None:
        preparing = asyncio.ensure_future(run.prepare("await a.b()", ("a",)))
        await asyncio.sleep(0)
        if self.plan.stage == 2:
            self._feed(process, self.plan.turns[0])
            if self.plan.dies_early:
                self._lose(process)
        else:
            process.data_received(_PREPARED)
        await self._end(preparing, process)
        if len((await preparing).source) > _LONGEST_TEXT:
            self.faults.append("a source without end")

    def _feed(self, process: WorkerProcess, turn: list[list[bytes]]) -> None:
        for message in turn:
            if not process.is_alive:
                return
            self.messages += 1
            for piece in message:
                process.data_received(piece)
            if self.plan.pauses:
                process.resume_writing() if process.is_congested else process.pause_writing()

    async def _end(self, task: "asyncio.Future[Any]", process: WorkerProcess) -> None:
        """Wait for it: it must come by itself, or when the worker ends."""
        for _ in range(3):
            if task.done():
                return
            await asyncio.sleep(0)
        self._lose(process)
        await asyncio.wait([task], timeout=DEADLINE_SECONDS)
        if not task.done():
            raise TimeoutError("the portal waits for a worker that is gone")

    def _lose(self, process: WorkerProcess) -> None:
        process.connection_lost(None)
        if process.is_alive:
            self.faults.append("a worker outlived its connection")

    def _check(self, result: RunResult, port: Port) -> None:
        self.code = result.error.code if result.error is not None else "ok"
        texts = [result.stdout, *result.notices]
        if result.error is not None:
            texts += [result.error.message, result.error.hint, result.error.traceback]
        wrong = {
            "calls under way after the end": port.here,
            "more calls at once than may be": port.most > LIMITS.parallel_calls,
            "more calls than may be": port.calls > LIMITS.tool_calls,
            "more output than may be": len(result.stdout.encode()) > 3 * LIMITS.stdout_bytes,
            "a text without end": max(map(len, texts), default=0) > _LONGEST_TEXT,
            "more blocks than may be": len(result.emitted) > LIMITS.result_bytes,
            "a code of nowhere": self.code in ("made_up", ""),
        }
        self.faults += [what for what, is_wrong in wrong.items() if is_wrong]


async def _no_other() -> WorkerProcess | None:
    return None
