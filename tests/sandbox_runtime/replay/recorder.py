"""Records a run whose calls take as long as chance wants, and replays it."""

import asyncio
import random
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import TypeAdapter

from sandbox_runtime.call_port import CallError, CallPort, Outcome, ToolCall
from sandbox_runtime.recording import Record, Recording
from sandbox_runtime.replay import replay
from sandbox_runtime.result import RunResult
from sandbox_runtime.sandbox import Sandbox
from tests.sandbox_runtime.running import Runner, where

RECORD = TypeAdapter(Record)


@dataclass
class ChancePort:
    """Answers when and what chance wants; `git.fails` fails, `git.hangs` never answers."""

    calls: list[ToolCall] = field(default_factory=list)

    async def __call__(self, call: ToolCall) -> Outcome:
        self.calls.append(call)
        if call.function == "git.hangs":
            await asyncio.Event().wait()
        await asyncio.sleep(random.random() * 0.003)
        if call.function == "git.fails":
            return Outcome(
                error=CallError("upstream_down", f"git is down: {random.random()}", "Try again later.")
            )
        return Outcome({"given": call.arguments, "chance": random.random()})


@dataclass(frozen=True)
class Recorder:
    """Runs one script with a recording."""

    sandbox: Sandbox

    async def __call__(
        self, script: str, port: CallPort | None = None, **more: Any
    ) -> tuple[RunResult, Record]:
        recording = Recording()
        run = Runner(self.sandbox)
        result = await run(script, port=port or ChancePort(), recording=recording, **more)
        assert recording.record is not None
        return result, recording.record

    async def and_replay(self, script: str, **settings: Any) -> RunResult:
        """Record it, keep the record as text, replay what was kept, and see that all is the same."""
        result, record = await self(script, **settings)
        assert facts(await replay(self.sandbox, kept(record), where)) == facts(result)
        return result


def kept(record: Record) -> Record:
    """The record as it is read after it was written as JSON."""
    read = RECORD.validate_json(RECORD.dump_json(record))
    assert read == record
    return read


def index_of(record: Record, kind: str, nth: int = 0) -> int:
    return [index for index, event in enumerate(record.events) if event.kind == kind][nth]


def facts(result: RunResult) -> RunResult:
    """All of a result but the times it took, and what calls gave it that were made."""
    return replace(result, wall_ms=0, cpu_ms=0, answers_bytes=0)
