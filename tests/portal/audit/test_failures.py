"""A portal that is killed, or whose log has no room any more, leaves a log that is true: what was done is in it, and
what could not be written down and may change anything was not done.
"""

import json
import os
import resource
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from mcp_types import CallToolResult

from manifests.json_value import Json
from portal.audit.chain import linked, verify
from portal.audit.sinks import StderrSink
from tests.portal.commands import COMMAND_SECONDS, PortalCommand, portal_command, started
from tests.portal.peers import Peer, raw, raw_tools, structured, tool, write_manifest
from tests.portal.test_endings import wait_for_writer
from tests.upstreams.peers import http_peer

READS = {"annotations": {"readOnlyHint": True}}
LINE_BYTES = 400
WRITES = 100


def events(path: Path, event: str) -> list[dict[str, Json]]:
    lines = [line for line in path.read_text().splitlines() if line.startswith('{"audit"')]
    return [each for each in map(json.loads, lines) if each["event"] == event]


@pytest.fixture
def portal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> PortalCommand:
    return portal_command(monkeypatch, capsys)


@pytest.mark.parametrize("torn_bytes", [0, 50])
def test_log_of_a_portal_that_was_killed_is_whole_and_goes_on(
    portal: PortalCommand, tmp_path: Path, torn_bytes: int
) -> None:
    os.mkfifo(fifo := tmp_path / "fifo")
    write_manifest(tmp_path, {"up": raw(tools=raw_tools("echo", "hang"))}, audit={"to": "audit.jsonl"})
    (tmp_path / "script.py").write_text(f"await up.echo()\nawait up.hang(acts_on={str(fifo)!r})")
    process = started("run", "script.py", cwd=tmp_path)
    try:
        wait_for_writer(fifo)
    finally:
        process.kill()
        process.communicate()
    log = tmp_path / "audit.jsonl"
    report = verify([log])
    assert (report.problems, len(events(log, "call_decided")), len(events(log, "call_ended"))) == ([], 2, 1)
    assert events(log, "run_ended") == []
    with log.open("ab") as file:
        file.write(linked(report.head, {"event": "e"})[0][:torn_bytes])
    assert portal("audit", "verify", "audit.jsonl", cwd=tmp_path).returncode == bool(torn_bytes)
    (tmp_path / "script.py").write_text("await up.echo()")
    assert portal("run", "script.py", cwd=tmp_path).returncode == 0
    assert portal("audit", "verify", "audit.jsonl", cwd=tmp_path).returncode == 0
    after = verify([log], known=report.head)
    assert (after.head.seq, after.problems) == (report.head.seq + 6, [])


SCRIPT = f"""
import asyncio
await up.closing()
answers = await asyncio.gather(*(up.write(n=n) for n in range({WRITES})), return_exceptions=True)
assert {{answer.code for answer in answers if isinstance(answer, Exception)}} == {{'audit_failed'}}
await up.opening()
await up.write(n=-1)
"""


class Trouble:
    """A portal as a process of its own that runs SCRIPT, and what happens to its log meanwhile."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None
        self.reached = {name: anyio.Event() for name in ("closing", "opening")}
        self.may_go_on = {name: anyio.Event() for name in ("closing", "opening")}
        acts = {name: self._act(name) for name in self.reached}
        self.up = Peer(tool("closing", **READS), tool("opening", **READS), tool("write"), **acts)

    def _act(self, name: str):  # type: ignore[no-untyped-def]  # an Act of the peer
        async def act(arguments: dict[str, Json]) -> CallToolResult:
            self.reached[name].set()
            await self.may_go_on[name].wait()
            return structured(arguments)

        return act

    @property
    def written(self) -> list[int]:
        return [arguments["n"] for name, arguments in self.up.calls if name == "write"]

    async def until(self, name: str) -> int:
        """Return when the script is there; the process's id."""
        with anyio.fail_after(COMMAND_SECONDS):
            await self.reached[name].wait()
        assert self.process is not None
        return self.process.pid


@asynccontextmanager
async def trouble(folder: Path, to: str, stderr: int = subprocess.PIPE) -> AsyncIterator[Trouble]:
    trouble = Trouble()
    async with http_peer(trouble.up.server.streamable_http_app()) as peer:
        write_manifest(folder, {"up": {"url": f"http://127.0.0.1:{peer.port}/mcp"}}, audit={"to": to})
        (folder / "script.py").write_text(SCRIPT)
        trouble.process = started("run", "script.py", cwd=folder, stderr=stderr)
        try:
            yield trouble
        finally:
            trouble.process.kill()
            await anyio.to_thread.run_sync(trouble.process.communicate)


async def ended(process: subprocess.Popen[str] | None) -> int:
    assert process is not None
    await anyio.to_thread.run_sync(process.communicate)
    return int(process.returncode)


@pytest.mark.anyio
@pytest.mark.parametrize("room", [20 * LINE_BYTES])
async def test_log_without_room_under_many_calls_at_once_tells_what_was_done_and_what_is_missing(
    tmp_path: Path, room: int
) -> None:
    log = tmp_path / "audit.jsonl"
    async with trouble(tmp_path, "audit.jsonl") as at:
        pid = await at.until("closing")
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (log.stat().st_size + room, resource.RLIM_INFINITY))
        at.may_go_on["closing"].set()
        await at.until("opening")
        assert verify([log]).problems == []
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        at.may_go_on["opening"].set()
        assert await ended(at.process) == 0
    assert verify([log]).problems == []
    decided = [each for each in events(log, "call_decided") if each["function"] == "up.write"]
    assert len(decided) == len(at.written) and at.written[-1] == -1
    assert len(at.written) - 1 < WRITES / 2
    [resumed] = events(log, "audit_resumed")
    assert resumed["lost"] >= WRITES - len(at.written)


def test_stderr_that_nobody_reads_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    sink, (reading, writing) = StderrSink(), os.pipe()
    with os.fdopen(reading, "rb") as reader, os.fdopen(writing, "w") as writer:
        monkeypatch.setattr(sys, "stderr", writer)
        with pytest.raises(OSError):
            for _ in range(1_000):
                sink.append({"event": "x" * 5_000})
        os.set_blocking(reading, False)
        assert len(reader.read()) > 5_000
        sink.append({"event": "read again"})
        assert b"read again" in reader.read()
        monkeypatch.undo()
