"""A stopping portal over HTTP first answers the requests in flight, then ends its workers and upstreams."""

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import anyio.lowlevel
import httpx2
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send
from structlog.testing import capture_logs

from manifests.json_value import Json
from manifests.loader import load_manifest
from manifests.portal_manifest import ServerSettings
from portal.app import hang_ups, reload, serving
from portal.app.http_connections import CUT_OFF, http_server, listening
from tests.portal.app.test_manifest_changes import TEXT, hang_up, kept, write
from tests.portal.peers import DEADLINE_SECONDS, write_manifest
from tests.upstreams.peers import Clock, http_peer
from tests.upstreams.raw_http_server import RawHttpServer


@asynccontextmanager
async def told_to_end_while_a_call_is_under_way(
    folder: Path, up: RawHttpServer, mode: str = "legacy", **server: Json
) -> AsyncIterator[list[CallToolResult | MCPError]]:
    """What its client is answered comes until the block is left; the portal ends within it."""
    answers: list[CallToolResult | MCPError] = []
    urls: list[str] = []
    is_told = anyio.Event()
    up.hangs_on_calls = True

    def hear(line: str) -> None:
        if line.startswith("listening on "):
            urls.append(line.removeprefix("listening on "))
            is_told.set()

    async def ask() -> None:
        async with Client(urls[0], mode=mode) as client:
            await client.list_tools()  # what it would look up later
            try:
                answers.append(await client.call_tool("execute_code", {"code": "await up.echo()\n'done'"}))
            except MCPError as error:  # it is cut off
                answers.append(error)
            await anyio.sleep_forever()

    async def serve(scope: anyio.CancelScope) -> None:
        with scope:
            await serving.serve_http(manifest, "127.0.0.1", 0, hear)
        has_ended.set()

    scope, has_ended = anyio.CancelScope(), anyio.Event()
    with anyio.fail_after(DEADLINE_SECONDS):
        async with http_peer(up.app) as peer, anyio.create_task_group() as tasks:
            entry = {"url": f"http://127.0.0.1:{peer.port}/mcp"}
            manifest = load_manifest(write_manifest(folder, {"up": entry}, server=server), {})
            tasks.start_soon(serve, scope)
            await is_told.wait()
            tasks.start_soon(ask)
            await up.is_hanging.wait()
            scope.cancel()
            with suppress(OSError):  # refused: it ends
                while True:
                    async with await anyio.connect_tcp("127.0.0.1", urlsplit(urls[0]).port or 0):
                        await anyio.sleep(0.01)
            yield answers
            await has_ended.wait()
            tasks.cancel_scope.cancel()


async def test_script_that_ends_soon_is_answered_also_after_a_signal_to_reload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hang_ups, "has_terminal", lambda: False)
    former = signal.getsignal(signal.SIGHUP)
    try:
        hang_ups.handle_hang_ups()
        handler = signal.getsignal(signal.SIGHUP)
        up = RawHttpServer()
        # The stream that the client keeps open is not waited for.
        async with told_to_end_while_a_call_is_under_way(tmp_path, up, drain_seconds=3600) as answers:
            hang_up()
            up.may_go_on.set()
        assert signal.getsignal(signal.SIGHUP) == handler
    finally:
        signal.signal(signal.SIGHUP, former)
    (answer,) = answers
    assert isinstance(answer, CallToolResult) and answer.structured_content is not None
    assert (answer.structured_content["status"], answer.structured_content["result"]) == ("ok", "done")
    assert up.sessions_ended == ["session-1"]


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_call_that_does_not_is_cancelled_at_its_upstream_and_its_client_is_told(
    tmp_path: Path, mode: str
) -> None:
    up = RawHttpServer()
    with capture_logs() as events:
        async with told_to_end_while_a_call_is_under_way(tmp_path, up, mode, drain_seconds=0.5) as answers:
            pass
    (answer,) = answers
    assert isinstance(answer, MCPError) and answer.error.message == CUT_OFF
    assert [each["requests"] for each in events if each["event"] == "requests_cancelled"] == [1]
    assert "notifications/cancelled" in up.notified
    assert up.sessions_ended == ["session-1"]


async def test_change_is_not_taken_while_the_portal_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though another portal of the manifest takes one, and then a second one."""
    monkeypatch.setattr(reload, "POLL_SECONDS", 0.02)
    path = tmp_path / "portal.yaml"
    server = {"reload": "watch", "drain_seconds": 1}
    with capture_logs() as events:
        async with (
            told_to_end_while_a_call_is_under_way(tmp_path, RawHttpServer(), "legacy", **server),
            kept(path) as other,
        ):
            for name in ("second", "third"):
                write(path, TEXT % name)
                await other.until(name)
    assert not [each for each in (*events, *other.events) if each["event"].startswith("manifest_")]


async def test_answer_to_a_request_that_is_cut_off_may_take_a_moment() -> None:
    """As those of a dozen runs do, which are written to a store that is busy."""
    is_asked, is_cut_off, may_answer = anyio.Event(), anyio.Event(), anyio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            is_asked.set()
            await may_answer.wait()
            await PlainTextResponse("cut off")(scope, receive, send)

    async def ask() -> None:
        async with httpx2.AsyncClient() as http:
            answers.append((await http.get(f"http://127.0.0.1:{listener.getsockname()[1]}/")).text)

    listener, answers = listening("127.0.0.1", 0), list[str]()
    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as tasks:
            server = http_server(app, ServerSettings(drain_seconds=0.1), is_cut_off.set)
            tasks.start_soon(lambda: server.serve(sockets=[listener]))
            tasks.start_soon(ask)
            await is_asked.wait()
            server.should_exit = True
            await is_cut_off.wait()
            Clock().advance(2)
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            may_answer.set()
    assert answers == ["cut off"]


@pytest.mark.parametrize("is_fault", [True, False])
async def test_fault_after_an_answer_is_logged_and_a_second_answer_is_no_fault(
    caplog: pytest.LogCaptureFixture, is_fault: bool
) -> None:
    """The SDK answers a notification twice if its client ends the session meanwhile, as one does that leaves."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await PlainTextResponse("answered")(scope, receive, send)
            if is_fault:
                raise RuntimeError("a fault of the portal")
            await PlainTextResponse("again")(scope, receive, send)

    listener = listening("127.0.0.1", 0)
    async with anyio.create_task_group() as tasks, httpx2.AsyncClient() as http:
        server = http_server(app, ServerSettings())
        tasks.start_soon(lambda: server.serve(sockets=[listener]))
        answer = await http.get(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        server.should_exit = True
    assert answer.text == "answered"
    assert ("uvicorn.error" in {each.name for each in caplog.records}) is is_fault
