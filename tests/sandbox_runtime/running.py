"""Runs scripts the way the portal does, with a port that the test supplies."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from manifests.grants import Limits
from manifests.json_value import Json
from sandbox_runtime.call_port import CallError, CallObserver, CallPort, Outcome, ToolCall
from sandbox_runtime.grants.run_grants import NO_GRANTS, RunGrants
from sandbox_runtime.recording import Recording
from sandbox_runtime.result import Prepared, RunError, RunResult
from sandbox_runtime.sandbox import Sandbox, Session

NAMESPACES = ("files", "git")
TABLE = {
    "git": {
        "git_log": "async def git_log(*, count: int = 10) -> list[dict]",
        "git_diff": "async def git_diff(*, target: str) -> str",
        "git_show": "async def git_show(*, revision: str) -> str",
        "fails": "async def fails() -> None",
        "hangs": "async def hangs() -> None",
    }
}


def where(key: str) -> str:
    return f"portal.yaml:7:{len(key)}"


@dataclass
class EchoPort:
    """Answers with the arguments, and keeps the calls; `git.fails` fails, `git.hangs` never answers."""

    calls: list[ToolCall] = field(default_factory=list)
    cancelled: list[int] = field(default_factory=list)
    hanging: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, call: ToolCall) -> Outcome:
        self.calls.append(call)
        if call.function == "git.fails":
            return Outcome(error=CallError("upstream_down", "git is down", "Try again later."))
        if call.function == "git.hangs":
            self.hanging.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled.append(call.seq)
                raise
        return Outcome(call.arguments)


class Heard(EchoPort):
    """A port that is also an observer, and remembers what it heard of."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[tuple[int, str]] = []
        self.withheld: list[tuple[int, str]] = []

    def open(self, seq: int, function: str) -> None:
        self.opened.append((seq, function))

    def withhold(self, seq: int, error: CallError) -> None:
        self.withheld.append((seq, error.code))


def answering(value: Json) -> CallPort:
    """A port that answers everything with one value."""

    async def answer(_: ToolCall) -> Outcome:
        return Outcome(value)

    return answer


@dataclass(frozen=True)
class Runner:
    """Runs one script from its text to its result."""

    sandbox: Sandbox

    async def __call__(
        self,
        script: str,
        *,
        port: CallPort | None = None,
        limits: Limits | None = None,
        session: Session | None = None,
        grants: RunGrants = NO_GRANTS,
        then: Callable[[Prepared], Awaitable[None]] | None = None,
        observer: CallObserver | None = None,
        recording: Recording | None = None,
    ) -> RunResult:
        async with self.sandbox.run(
            limits or Limits(), where, session, grants=grants, recording=recording
        ) as run:
            prepared = await run.prepare(script, NAMESPACES)
            if then is not None:
                await then(prepared)
            table = {name: TABLE[name] for name in prepared.names if name in TABLE}
            return await run.execute(table, port or EchoPort(), observer)

    async def value(self, script: str, *, port: CallPort | None = None) -> Json:
        result = await self(script, port=port)
        assert result.error is None, result.error
        return result.value

    async def error(self, script: str, **more: Any) -> RunError:
        """The error of a script that must fail."""
        result = await self(script, **more)
        assert result.error is not None, result.value
        return result.error

    async def code(self, script: str, *, limits: Limits | None = None) -> str:
        return (await self.error(script, limits=limits)).code
