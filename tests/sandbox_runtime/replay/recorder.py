"""Records a run whose calls take as long as chance wants, and replays it."""

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter

from manifests.grants import Limits
from manifests.json_value import Json
from sandbox_runtime.call_port import CallError, CallPort, Outcome, ToolCall
from sandbox_runtime.grants.run_grants import NO_GRANTS, RunGrants
from sandbox_runtime.recording import Record, Recording
from sandbox_runtime.replay import replay
from sandbox_runtime.result import RunResult
from sandbox_runtime.sandbox import Sandbox, Session
from tests.sandbox_runtime.running import NAMESPACES, where

_TABLE = {"git": {name: f"async def {name}(**arguments) -> dict" for name in ("git_log", "fails", "hangs")}}

RECORD = TypeAdapter(Record)


@dataclass
class ChancePort:
    """Answers when and what chance wants; `git.fails` fails, `git.hangs` never answers."""

    longest_ms: float = 3.0
    calls: list[tuple[int, str, Json]] = field(default_factory=list)
    cancelled: list[int] = field(default_factory=list)

    async def __call__(self, call: ToolCall) -> Outcome:
        self.calls.append((call.seq, call.function, call.arguments))
        try:
            if call.function == "git.hangs":
                await asyncio.Event().wait()
            await asyncio.sleep(random.random() * self.longest_ms / 1000)
        except asyncio.CancelledError:
            self.cancelled.append(call.seq)
            raise
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
        self,
        script: str,
        *,
        port: CallPort | None = None,
        limits: Limits | None = None,
        session: Session | None = None,
        grants: RunGrants = NO_GRANTS,
        executes: bool = True,
    ) -> tuple[RunResult | None, Record]:
        recording = Recording()
        result = None
        async with self.sandbox.run(
            limits or Limits(), where, session, grants=grants, recording=recording
        ) as run:
            prepared = await run.prepare(script, NAMESPACES)
            if executes:
                table = {name: _TABLE[name] for name in prepared.names if name in _TABLE}
                result = await run.execute(table, port or ChancePort())
        assert recording.record is not None
        return result, recording.record

    async def and_replay(self, script: str, **settings: Any) -> RunResult:
        """Record it, keep the record as text, replay what was kept, and see that all is the same."""
        result, record = await self(script, **settings)
        assert result is not None
        assert facts(await replay(self.sandbox, kept(record), where)) == facts(result)
        return result


def kept(record: Record) -> Record:
    """The record as it is read after it was written as JSON."""
    read = RECORD.validate_json(RECORD.dump_json(record))
    assert read == record
    return read


def index_of(record: Record, kind: str, nth: int = 0) -> int:
    return [index for index, event in enumerate(record.events) if event.kind == kind][nth]


def facts(result: RunResult) -> tuple[object, ...]:
    """All of a result but the times it took."""
    return (
        result.value,
        result.error,
        result.stdout,
        result.stdout_bytes_dropped,
        result.emitted,
        result.notices,
    )
