"""Real peers for the tests: stdio servers, HTTP servers on a loopback port, and a fleet that watches itself."""

import asyncio
import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from mcp.server import Server
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.memory import create_client_server_memory_streams
from starlette.types import ASGIApp

from manifests.json_value import Json
from manifests.portal_manifest import HttpUpstream, StdioUpstream
from upstreams.fleet import Fleet, Opener, UpstreamSettings
from upstreams.health import Diagnostics
from upstreams.people import LoginsOf
from upstreams.redaction import Redaction
from upstreams.tools import ToolResult
from upstreams.transports.messages import InboundLimits
from upstreams.transports.wire import Wire
from upstreams.upstream import Upstream

RAW_SERVER = Path(__file__).with_name("raw_server.py")
DEADLINE_SECONDS = 30


def raw_server(
    *,
    env: dict[str, str] | None = None,
    cwd: str | None = None,
    connect_seconds: float = 20,
    **behaviour: Any,
) -> StdioUpstream:
    return StdioUpstream(
        command=sys.executable,
        args=("-S", str(RAW_SERVER), json.dumps(behaviour)),  # it imports nothing that is installed
        env=env or {},
        cwd=cwd,
        connect_seconds=connect_seconds,
    )


class Clock:
    """The clock of the running loop, which a test can put forward. It is never put back."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._of_loop, self._ahead_seconds = loop.time, 0.0
        loop.time = lambda: self._of_loop() + self._ahead_seconds  # type: ignore[method-assign]

    def advance(self, seconds: float) -> None:
        self._ahead_seconds += seconds


class Changing:
    """Something whose changes a test waits for instead of sleeping."""

    _changes: anyio.Event | None = None

    def tell(self) -> None:
        """It has changed."""
        changes, self._changes = self._changes, None
        if changes is not None:
            changes.set()

    async def until(self, is_true: Callable[[], bool]) -> None:
        """Return as soon as `is_true`."""
        with anyio.fail_after(DEADLINE_SECONDS):
            while not is_true():
                self._changes = self._changes or anyio.Event()
                await self._changes.wait()


class WatchedFleet(Changing):
    """A fleet and its changes."""

    def __init__(self) -> None:
        self.fleet: Fleet
        self.history: list[tuple[str, str]] = []

    def note(self, upstream: Upstream) -> None:
        self.history.append((upstream.name, upstream.state.status))
        self.tell()

    def __getitem__(self, name: str) -> Upstream:
        return self.fleet[name]

    @property
    def one(self) -> Upstream:
        return self.fleet["one"]

    async def call(
        self,
        tool: str,
        arguments: Json = None,
        *,
        seconds: float = DEADLINE_SECONDS,
        progress: ProgressFnT | None = None,
    ) -> ToolResult:
        """Of the upstream that is named `one`."""
        return await self.one.call(tool, arguments or {}, seconds=seconds, progress=progress)


@asynccontextmanager
async def open_fleet(
    specs: Mapping[str, StdioUpstream | HttpUpstream],
    folder: Path,
    on_change: Callable[[Upstream], None],
    listings: Path | None = None,
    portal_logins: LoginsOf | None = None,
) -> AsyncIterator[Fleet]:
    """Supervise these upstreams, each in its own task. Returns before any is ready.

    On exit all connections close at once, and no child process is left.
    """
    async with anyio.create_task_group() as tasks:
        fleet = Fleet(Opener(tasks, folder, on_change, listings=listings, portal_logins=portal_logins))
        fleet.replace({name: UpstreamSettings(spec) for name, spec in specs.items()}, ())
        try:
            yield fleet
        finally:
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def fleet_of(
    folder: Path | None = None,
    *,
    settled: bool = True,
    listings: Path | None = None,
    **specs: StdioUpstream | HttpUpstream,
) -> AsyncIterator[WatchedFleet]:
    watched = WatchedFleet()
    async with open_fleet(specs, folder or Path.cwd(), watched.note, listings) as fleet:
        watched.fleet = fleet
        if settled:
            assert not await fleet.settled(DEADLINE_SECONDS)
        yield watched


@asynccontextmanager
async def fleet_at(app: ASGIApp, path: str = "mcp", **spec: Json) -> AsyncIterator[WatchedFleet]:
    """The app on a loopback port, as the only upstream, `one`."""
    async with http_peer(app) as peer:
        url = f"http://127.0.0.1:{peer.port}/{path}"
        async with fleet_of(one=HttpUpstream.model_validate({"url": url, **spec})) as fleet:
            yield fleet


@asynccontextmanager
async def in_memory(server: Server[Any]) -> AsyncIterator[Upstream]:
    """A server of the SDK in this process, as an upstream."""

    @asynccontextmanager
    async def open_wire(diagnostics: Diagnostics) -> AsyncIterator[Wire]:
        async with (
            create_client_server_memory_streams() as (client, (server_reads, server_writes)),
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(server.run, server_reads, server_writes, server.create_initialization_options())
            yield Wire(*client, InboundLimits(1_000_000))
            tasks.cancel_scope.cancel()

    watched = WatchedFleet()
    upstream = Upstream("sdk", HttpUpstream(url="http://sdk"), open_wire, Redaction(()), watched.note)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(upstream.supervisor.run)
        await watched.until(lambda: upstream.state.status != "starting")
        yield upstream
        tasks.cancel_scope.cancel()


def text_of(result: ToolResult) -> Any:
    """The JSON in the one text block of a result."""
    (block,) = result.content
    return json.loads(block["text"])


class HttpPeer(uvicorn.Server):
    """An ASGI app on a real loopback socket; `port` 0 takes a free one."""

    def __init__(self, app: ASGIApp, port: int = 0) -> None:
        super().__init__(
            uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1, lifespan="auto")
        )
        self.is_up = anyio.Event()
        self.has_ended = anyio.Event()
        self._socket = socket.socket(proto=socket.IPPROTO_TCP)  # else asyncio leaves Nagle's algorithm on
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", port))
        self.port = self._socket.getsockname()[1]

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_up.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        # Work that uvicorn leaves pending in a fast shutdown would be collected in the middle of a later test.
        for task in self.server_state.tasks:
            task.cancel()
        await self.lifespan.shutdown()

    async def run_to_end(self) -> None:
        await self._serve([self._socket])
        self._socket.close()
        self.has_ended.set()


@asynccontextmanager
async def http_peer(app: ASGIApp, port: int = 0) -> AsyncIterator[HttpPeer]:
    peer = HttpPeer(app, port)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(peer.run_to_end)
        await peer.is_up.wait()
        try:
            yield peer
        finally:
            peer.should_exit = peer.force_exit = True


async def process_end(pid: int) -> None:
    """Return when the process has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        await anyio.wait_readable(descriptor)
    finally:
        os.close(descriptor)
