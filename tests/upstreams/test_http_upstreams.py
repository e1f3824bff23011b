"""Upstreams by URL: both eras and both transports, and what servers and gateways do to them."""

import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import anyio
import pytest
from mcp.server.mcpserver import MCPServer
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from manifests.json_value import Json
from manifests.portal_manifest import HttpUpstream
from tests.upstreams.oauth_peer import replayed
from tests.upstreams.peers import DEADLINE_SECONDS, Clock, fleet_at, fleet_of, http_peer
from tests.upstreams.raw_http_server import RawHttpServer
from upstreams import connector
from upstreams.errors import UpstreamError, UpstreamForgottenError, UpstreamSessionError, UpstreamTimeoutError
from upstreams.health import FAILURES_IN_A_ROW
from upstreams.session import REFUSAL_GRACE_SECONDS
from upstreams.tools import ToolResult
from upstreams.transports import http


def real_server() -> MCPServer:
    server = MCPServer("real", version="3")

    @server.tool()
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool()
    async def wait() -> None:
        await anyio.sleep_forever()

    return server


ONES: Json = {"a": 1, "b": 1}
AT_ONCE_SECONDS = 3.0
"""Less than the SDK has a cancelled caller wait for its notice."""


def app_of(server: MCPServer, transport: str) -> tuple[ASGIApp, str]:
    """And the path of its URL."""
    return (server.sse_app(), "sse") if transport == "sse" else (server.streamable_http_app(), "mcp")


BOTH = pytest.mark.parametrize("transport", ["streamable-http", "sse"])


@BOTH
async def test_upstream_rides_over_a_restart_of_its_server(transport: str) -> None:
    app, path = app_of(real_server(), transport)
    async with http_peer(app) as peer:
        spec = HttpUpstream.model_validate(
            {"url": f"http://127.0.0.1:{peer.port}/{path}", "transport": transport}
        )
        async with fleet_of(one=spec) as fleet:
            await fleet.call("add", ONES)
            peer.should_exit = peer.force_exit = True
            await peer.has_ended.wait()
            with pytest.raises(UpstreamError) as caught:
                await fleet.call("add", ONES)
            # On SSE nothing says whether a message arrived before the stream ended.
            assert transport == "sse" or caught.value.outcome == "not_started"
            async with http_peer(app_of(real_server(), transport)[0], peer.port):
                await fleet.until(lambda: fleet.one.state.status == "ready")
                assert (await fleet.call("add", ONES)).structured == {"result": 2}


async def test_connection_is_not_used_when_the_server_is_about_to_end_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server on gunicorn ends an idle one after two seconds, one on uvicorn or Node after five."""
    server, ports = RawHttpServer(), list[int]()

    async def gate(scope: Scope, receive: Receive, send: Send) -> None:
        ports.append(scope["client"][1])
        await server.app(scope, receive, send)

    async with fleet_at(gate, handshake=True) as fleet:
        for _ in range(5):  # the machine may be busy for a second between two of them
            await fleet.call("echo", {})
        assert len({*ports[-5:]}) < 5
        now = time.monotonic
        monkeypatch.setattr(time, "monotonic", lambda: now() + 1.8)
        await fleet.call("echo", {})
        assert ports[-1] != ports[-2]


class Mute(RawHttpServer):
    """Takes no notice that a call was cancelled."""

    async def _handle(self, request: Request) -> Response:
        message = await request.json() if request.method == "POST" else {}
        if message.get("method") == "notifications/cancelled":
            while (await request.receive())["type"] != "http.disconnect":
                pass
        return await super()._handle(request)

    async def _call(self, message: dict[str, Json]) -> Response:
        if message["params"]["name"] == "wait":
            await anyio.sleep_forever()
        return await super()._call(message)


async def test_nobody_waits_for_a_server_that_takes_no_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "NOTICE_SECONDS", 1_000.0)
    async with fleet_at(Mute().app) as fleet:

        async def wait_in_vain() -> None:
            with pytest.raises(UpstreamTimeoutError):
                await fleet.call("wait", seconds=0.2)

        with anyio.fail_after(AT_ONCE_SECONDS):
            async with anyio.create_task_group() as tasks:
                for _ in range(FAILURES_IN_A_ROW - 1):
                    tasks.start_soon(wait_in_vain)
            await fleet.call("echo")


class Pinged(RawHttpServer):
    """Refuses to be pinged, and holds every call."""

    def __init__(self, refusal: Response) -> None:
        super().__init__()
        self._refusal = refusal
        self.hangs_on_calls = True
        self._ping, self.pings = anyio.create_memory_object_stream[None](10)

    async def _handle(self, request: Request) -> Response:
        message = await request.json() if request.method == "POST" else {}
        if message.get("method") != "ping":
            return await super()._handle(request)
        await self._ping.send(None)
        return self._refusal


@pytest.mark.parametrize(("status", "sessions"), [(503, 1), (405, 1), (404, 2)])
async def test_refused_ping_is_an_answer(status: int, sessions: int) -> None:
    server = Pinged(Response(status_code=status))
    async with fleet_at(server.app) as fleet, anyio.create_task_group() as tasks:
        results = list[ToolResult]()

        async def call() -> None:
            results.append(await fleet.call("echo"))

        tasks.start_soon(call)
        await server.is_hanging.wait()
        for _ in range(2):  # the second ping comes after the answer to the first has been read
            with pytest.raises(UpstreamTimeoutError):
                await fleet.call("wait", seconds=0.2)
            await server.pings.receive()
            await fleet.until(lambda: fleet.history.count(("one", "ready")) == sessions)
        server.may_go_on.set()
    assert (len(results), server.sessions_opened) == (1, sessions)


async def test_server_that_hangs_is_pinged_although_the_script_ended_before_the_call_timed_out() -> None:
    """By default both get 60 seconds, and the script begins first."""
    server = Pinged(Response(status_code=405))
    async with fleet_at(server.app) as fleet, anyio.create_task_group() as script:
        script.start_soon(partial(fleet.call, "echo", seconds=100))
        await server.is_hanging.wait()
        Clock().advance(60)
        script.cancel_scope.cancel()
        with anyio.CancelScope(shield=True), anyio.fail_after(DEADLINE_SECONDS):
            await server.pings.receive()


async def test_server_is_not_pinged_for_a_call_that_was_given_up_early() -> None:
    """Scripts do that on purpose, and a healthy server may be too busy for a ping."""
    server = Pinged(Response(status_code=405))
    async with fleet_at(server.app) as fleet:
        async with anyio.create_task_group() as script:
            script.start_soon(partial(fleet.call, "echo", seconds=100))
            await server.is_hanging.wait()
            Clock().advance(40)
            script.cancel_scope.cancel()
        with pytest.raises(UpstreamError):
            await fleet.one.ask("ping", {}, seconds=100, on_sent=lambda _: None)
    assert server.pings.statistics().current_buffer_used == 1, "that of the test"


class Gate:
    """Stands before an HTTP server, and refuses one call with a status."""

    def __init__(self, app: ASGIApp) -> None:
        self.refuses = 0
        self.arrivals = 0
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http" and scope["method"] == "POST":
            body = await Request(scope, receive).body()
            receive = replayed(body)
            self.arrivals += b"tools/call" in body
            if self.refuses and b"tools/call" in body:
                app, self.refuses = Response("no", self.refuses), 0
        await app(scope, receive, send)


@pytest.mark.parametrize(
    ("status", "outcome", "arrivals"), [(401, None, 2), (403, "failed", 1), (502, "unknown", 1)]
)
async def test_message_refused_by_an_sse_server_fails_alone(
    status: int, outcome: str | None, arrivals: int
) -> None:
    server, began, may_end = real_server(), anyio.Event(), anyio.Event()

    @server.tool()
    async def hold() -> str:
        began.set()
        await may_end.wait()
        return "held"

    gate, results = Gate(server.sse_app()), list[ToolResult]()
    async with fleet_at(gate, "sse", transport="sse") as fleet, anyio.create_task_group() as tasks:

        async def call(tool: str, arguments: Json = None) -> None:
            results.append(await fleet.call(tool, arguments))

        tasks.start_soon(call, "hold")
        await began.wait()
        gate.refuses, gate.arrivals = status, 0
        if outcome is None:
            await call("add", ONES)
        else:
            with pytest.raises(UpstreamError) as caught:
                await call("add", ONES)
            assert caught.value.outcome == outcome
        assert gate.arrivals == arrivals
        may_end.set()
    assert results[-1].structured == {"result": "held"}


async def test_tool_that_answers_404_takes_no_session_after_the_other() -> None:
    server = RawHttpServer()
    async with fleet_at(server.app) as fleet:
        server.call_answer = Response('{"detail":"no such ticket"}', 404, media_type="application/json")
        for _ in range(3):
            with pytest.raises(UpstreamForgottenError):
                await fleet.call("echo")
        assert (server.sessions_opened, fleet.one.state.status) == (2, "ready")
        server.call_answer = None
        await fleet.call("echo")


async def test_grace_after_a_refusal_outlasts_a_failed_attempt_and_a_slow_listing() -> None:
    class Slow(RawHttpServer):
        clock, lists = Clock(), 0

        async def _list(self, message: dict[str, Any]) -> Response:
            self.lists += 1
            self.clock.advance(REFUSAL_GRACE_SECONDS)
            return Response(status_code=503) if self.lists == 2 else await super()._list(message)

    server = Slow()
    server.call_answer = Response(status_code=410)
    async with fleet_at(server.app, connect_seconds=60) as fleet:
        for _ in range(3):
            await fleet.until(lambda: fleet.one.state.status == "ready")
            with pytest.raises(UpstreamSessionError):
                await fleet.call("echo")
            if server.lists == 1:
                await fleet.until(lambda: server.lists == 3)
        assert (server.lists, fleet.one.state.status) == (3, "ready")


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("http://localhost:1/messages", "http://localhost:1 instead of http://127.0.0.1"),
        ("//other.example/messages", "http://other.example instead of"),
        ("/nowhere", "'/nowhere', the path that its endpoint event names"),
        (" /query?session=1 ", "asked for 'session=1', at"),
        ("http://localhost:x/", "Invalid port"),
    ],
)
async def test_endpoint_of_an_sse_server_that_cannot_be_used_is_named(named: str, told: str) -> None:
    async def events(request: Request) -> Response:
        async def endpoint() -> AsyncIterator[str]:
            yield f"event: endpoint\ndata: {named}\n\n"
            await anyio.sleep_forever()

        return StreamingResponse(endpoint(), media_type="text/event-stream")

    async def query(request: Request) -> Response:
        return Response(f"asked for {request.url.query!r}", 404, media_type="text/plain")

    routes = [Route("/sse", events), Route("/query", query, methods=["POST"])]
    async with fleet_at(Starlette(routes=routes), "sse", transport="sse") as fleet:
        assert fleet.one.state.status == "down"
        assert told in fleet.one.state.detail


@BOTH
async def test_server_that_accepts_and_says_nothing_is_down_in_time(transport: str) -> None:
    async def silent(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await anyio.sleep_forever()

    async with fleet_at(silent, transport=transport, connect_seconds=0.3) as fleet:
        assert fleet.one.state.status == "down"
        assert "0.3 s" in fleet.one.state.detail


class Inquisitive(RawHttpServer):
    """Asks while it starts, and answers initialize only after it has been answered itself."""

    def __init__(self) -> None:
        super().__init__()
        self.is_answered = anyio.Event()

    async def _handle(self, request: Request) -> Response:
        message = await request.json() if request.method == "POST" else {}
        if message.get("id") != "asked":
            return await super()._handle(request)
        self.is_answered.set()
        return Response(status_code=202)

    def _initialize(self, message: dict[str, Json]) -> Response:
        answer = super()._initialize(message)

        async def events() -> AsyncIterator[str]:
            yield 'data: {"jsonrpc":"2.0","id":"asked","method":"ping"}\n\n'
            await self.is_answered.wait()
            yield f"data: {bytes(answer.body).decode()}\n\n"

        session = {"mcp-session-id": answer.headers["mcp-session-id"]}
        return StreamingResponse(events(), media_type="text/event-stream", headers=session)


@pytest.mark.parametrize("kind", [RawHttpServer, Inquisitive])
async def test_start_is_limited_by_connect_seconds_alone(
    kind: type[RawHttpServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "NOTICE_SECONDS", 0.0)
    server = kind()
    async with fleet_at(server.app) as fleet:
        assert fleet.one.state.status == "ready"
    assert server.notified == ["notifications/initialized"]


async def test_probe_that_a_server_answers_late_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK would consider it lost, and the handshake is sent in between."""
    monkeypatch.setattr("mcp.client.session.DISCOVER_TIMEOUT_SECONDS", 0.0)
    monkeypatch.setattr(connector, "HTTP_PROBE_SECONDS", 0.0)
    inner, methods, may_go_on = real_server().streamable_http_app(), list[bytes](), anyio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        method = dict(scope.get("headers", ())).get(b"mcp-method", b"")
        methods.append(method)
        if scope["type"] == "http" and scope["method"] == "POST" and method == b"":  # the handshake
            may_go_on.set()
            await anyio.sleep_forever()
        if method == b"server/discover":
            await may_go_on.wait()
        await inner(scope, receive, send)

    async with fleet_at(slow) as fleet:
        await fleet.call("add", ONES)
    assert b"tools/call" in methods


@pytest.mark.parametrize(
    ("path", "transport", "told"),
    [
        ("secret-key/sse", "streamable-http", "needs `transport: sse`"),
        ("secret-key/mcp", "sse", "needs no `transport: sse`"),
        ("?key=secret-key", "streamable-http", "most servers are at a path: /mcp"),
    ],
)
async def test_upstream_of_the_other_transport_is_told_without_its_url(
    path: str, transport: str, told: str
) -> None:
    async with fleet_at(Response(status_code=405), path, transport=transport) as fleet:
        state = fleet.one.state
        assert state.status == "down" and "405" in state.detail
        assert "transport" not in state.detail and told in state.remedy
        assert "secret-key" not in str(state) and "HTTPStatusError" not in str(state)
