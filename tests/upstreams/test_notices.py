"""Nobody waits for a server that does not take what has no answer: that a call was cancelled, or a reply."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

import anyio
import pytest
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from manifests.upstream_sections import HttpUpstream
from tests.upstreams.peers import DEADLINE_SECONDS, fleet_of, http_peer
from tests.upstreams.raw_http_server import RawHttpServer
from tests.upstreams.test_http_upstreams import real_server, url_of
from upstreams import http
from upstreams.circuit import FAILURES_IN_A_ROW
from upstreams.errors import UpstreamTimeoutError
from upstreams.upstream import Upstream

pytestmark = pytest.mark.anyio

AT_ONCE_SECONDS = 3.0
"""Less than the SDK has a cancelled caller wait for its notice."""


class Held:
    """How many calls are not answered."""

    def __init__(self) -> None:
        self._count = 0
        self._changed = anyio.Event()

    def add(self) -> None:
        self._count += 1
        self._changed.set()
        self._changed = anyio.Event()

    async def until(self, count: int) -> None:
        with anyio.fail_after(DEADLINE_SECONDS):
            while self._count < count:
                await self._changed.wait()


class Mute(RawHttpServer):
    """Never answers a POST of a notification but the first one, which ends the handshake."""

    def __init__(self) -> None:
        super().__init__()
        self.held = Held()

    async def _handle(self, request: Any) -> Response:
        message = await request.json() if request.method == "POST" else {}
        if message.get("method") != "notifications/cancelled":
            return await super()._handle(request)
        while (await request.receive())["type"] != "http.disconnect":
            pass
        return Response(status_code=202)

    async def _call(self, message: dict[str, Any]) -> Response:
        if message["params"]["name"] == "wait":
            self.held.add()
            await anyio.sleep_forever()
        return await super()._call(message)


class SlowToTake:
    """An HTTP+SSE server that answers no POST of a call of `wait`, as if it did that first."""

    def __init__(self) -> None:
        self.held = Held()
        self._app: ASGIApp = real_server().sse_app()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("method") != "POST":
            await self._app(scope, receive, send)
            return
        message = await receive()
        if json.loads(message["body"]).get("params", {}).get("name") == "wait":
            self.held.add()
            while (await receive())["type"] != "http.disconnect":
                pass
            return
        rest = iter([message])

        async def again() -> Any:
            return next(rest, None) or await receive()

        await self._app(scope, again, send)


SERVERS: dict[Literal["streamable-http", "sse"], tuple[Callable[[], Any], str, str]] = {
    "streamable-http": (Mute, "mcp", "echo"),
    "sse": (SlowToTake, "sse", "add"),
}


@asynccontextmanager
async def served(transport: Literal["streamable-http", "sse"]) -> AsyncIterator[tuple[Any, Upstream, str]]:
    """A server that does not take all that it is sent, an upstream of it, and a tool that works there."""
    new_server, path, tool = SERVERS[transport]
    server = new_server()
    async with http_peer(getattr(server, "app", server)) as peer:
        spec = HttpUpstream(url=url_of(peer.port, path), transport=transport)
        async with fleet_of(real=spec) as fleet:
            yield server, fleet["real"], tool


async def wait_in_vain(upstream: Upstream, seconds: float = 60) -> None:
    with pytest.raises(UpstreamTimeoutError):
        await upstream.call("wait", {}, seconds=seconds)


@pytest.mark.parametrize("transport", ["streamable-http", "sse"])
async def test_calls_that_meet_their_deadline_end_and_others_go_on_although_no_notice_of_it_is_taken(
    transport: Literal["streamable-http", "sse"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "NOTICE_SECONDS", 1_000.0)
    async with served(transport) as (_, upstream, tool):
        with anyio.fail_after(AT_ONCE_SECONDS):
            async with anyio.create_task_group() as tasks:
                for _ in range(FAILURES_IN_A_ROW - 1):
                    tasks.start_soon(wait_in_vain, upstream, 0.2)
            await upstream.call(tool, {"a": 1, "b": 1}, seconds=DEADLINE_SECONDS)


async def test_calls_on_the_older_transport_are_sent_although_one_before_them_is_not_taken() -> None:
    async with served("sse") as (server, upstream, tool), anyio.create_task_group() as tasks:
        tasks.start_soon(wait_in_vain, upstream)
        await server.held.until(1)
        for _ in range(FAILURES_IN_A_ROW + 1):
            result = await upstream.call(tool, {"a": 1, "b": 1}, seconds=DEADLINE_SECONDS)
            assert result.structured == {"result": 2}
        tasks.cancel_scope.cancel()
