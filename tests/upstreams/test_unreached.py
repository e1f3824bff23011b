"""Once an upstream could not be reached, its calls are answered at once, however long each new attempt takes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from starlette.types import Receive, Scope, Send

from manifests.portal_manifest import HttpUpstream
from tests.upstreams.peers import DEADLINE_SECONDS, WatchedFleet, fleet_of, http_peer
from tests.upstreams.raw_http_server import RawHttpServer
from upstreams import supervisor
from upstreams.errors import UpstreamDownError

pytestmark = pytest.mark.anyio

FOREVER_SECONDS = 3600.0


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls wait for no attempt that follows a failed one."""
    monkeypatch.setattr(supervisor, "RECONNECT_WAIT_SECONDS", 0.0)


class HangingServer:
    """Refuses attempts to connect while it `refuses`; the later ones get no answer until it `may_answer`."""

    def __init__(self) -> None:
        self.inner = RawHttpServer()
        self.refuses = True
        self.is_asked = anyio.Event()
        self.may_answer = anyio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self.refuses:
            await send({"type": "http.response.start", "status": 503, "headers": []})
            await send({"type": "http.response.body", "body": b"not yet"})
            return
        if scope["type"] == "http":
            self.is_asked.set()
            await self.may_answer.wait()
        await self.inner.app(scope, receive, send)


@asynccontextmanager
async def hanging_fleet(server: HangingServer, listings: Path | None = None) -> AsyncIterator[WatchedFleet]:
    """`one` is down, and the attempt that is under way lasts until the server may answer."""
    async with http_peer(server) as peer:
        spec = HttpUpstream(url=f"http://127.0.0.1:{peer.port}/mcp", connect_seconds=FOREVER_SECONDS)
        async with fleet_of(one=spec, listings=listings) as fleet:
            server.refuses = False
            await server.is_asked.wait()
            assert fleet["one"].state.status == "down"
            yield fleet
            server.may_answer.set()


@pytest.mark.usefixtures("impatient")
async def test_calls_do_not_wait_for_an_attempt_that_hangs() -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        async with hanging_fleet(HangingServer()) as fleet:
            for _ in range(5):
                with pytest.raises(UpstreamDownError, match=r"503.*an attempt has been running") as caught:
                    await fleet["one"].call("echo", {}, seconds=FOREVER_SECONDS)
                assert (caught.value.code, caught.value.outcome) == ("upstream_unavailable", "not_started")
            assert fleet["one"].state.status == "down", "nobody waits for it as for one that starts"
            assert await fleet.fleet.settled(0) == []


async def test_call_that_comes_with_an_attempt_that_succeeds_is_served_by_it() -> None:
    server = HangingServer()
    results = []
    with anyio.fail_after(DEADLINE_SECONDS):
        async with hanging_fleet(server) as fleet, anyio.create_task_group() as tasks:

            async def call() -> None:
                results.append(await fleet["one"].call("echo", {}, seconds=FOREVER_SECONDS))

            for _ in range(3):
                tasks.start_soon(call)
            await anyio.lowlevel.checkpoint()  # they go first
            server.may_answer.set()
    assert (len(results), server.inner.executed) == (3, 3)
