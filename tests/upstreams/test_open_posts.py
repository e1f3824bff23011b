"""Requests over HTTP that are given up do not take sockets for ever."""

from collections.abc import AsyncIterator
from typing import Any

import anyio
import httpx2
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import CONNECTION_CLOSED, ErrorData, JSONRPCError
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from manifests.upstream_sections import HttpUpstream
from tests.upstreams.peers import DEADLINE_SECONDS, fleet_of, http_peer
from tests.upstreams.raw_http_server import RawHttpServer
from upstreams import event_requests
from upstreams.errors import (
    UpstreamAnswerError,
    UpstreamFaultError,
    UpstreamLostError,
    UpstreamSilentError,
    UpstreamTimeoutError,
)
from upstreams.open_posts import MAX_GIVEN_UP, OpenPost, OpenPosts, WantedEvents
from upstreams.room import UPSTREAM_BYTES, Held, Room
from upstreams.wire import Failures, Wire

pytestmark = pytest.mark.anyio

CALLS = MAX_GIVEN_UP + 3


class Alive(RawHttpServer):
    """Gives signs of life beside its calls."""

    resumed: Response | None = None
    """What streams go on with that broke off."""

    async def _handle(self, request: Request) -> Response:
        if self.resumed is not None and "last-event-id" in request.headers:
            return self.resumed
        return await super()._handle(request)

    async def _call(self, message: dict[str, Any]) -> Response:
        return self._answer(message, "{}") if message["method"] == "ping" else await super()._call(message)


class Unending(Response):
    """Answers that never end, and how many of them are being read."""

    def __init__(self, *, begins: bool, status: int = 200) -> None:
        super().__init__()
        self._status = status
        self._begins = begins
        self.open = 0
        self._changed = anyio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._count(1)
        try:
            if self._begins:
                events = StreamingResponse(_pings(), self._status, media_type="text/event-stream")
                await events(scope, receive, send)
            else:
                while (await receive())["type"] != "http.disconnect":
                    pass
        finally:
            self._count(-1)

    async def until_open(self, count: int) -> None:
        with anyio.fail_after(DEADLINE_SECONDS):
            while self.open != count:
                await self._changed.wait()

    def _count(self, change: int) -> None:
        self.open += change
        self._changed.set()
        self._changed = anyio.Event()


async def _pings() -> AsyncIterator[bytes]:
    while True:
        yield b": ping\n\n"
        await anyio.sleep(0.1)


@pytest.mark.parametrize("phase", ["asked", "answered", "resumed"])
async def test_of_calls_that_were_given_up_only_so_many_are_read_on(
    phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_requests, "PAUSE_SECONDS", 0.0)
    server, unending = Alive(), Unending(begins=phase != "asked")
    async with (
        http_peer(server.app) as peer,
        fleet_of(raw=HttpUpstream(url=f"http://127.0.0.1:{peer.port}/mcp")) as fleet,
    ):
        server.call_answer = unending
        if phase == "resumed":
            server.resumed = unending
            server.call_answer = Response(b"retry: 0\nid: 1\ndata:\n\n", media_type="text/event-stream")

        async def call() -> None:
            with pytest.raises(UpstreamTimeoutError):
                await fleet["raw"].call("echo", {}, seconds=3)

        async with anyio.create_task_group() as tasks:
            for _ in range(CALLS):
                tasks.start_soon(call)
            await unending.until_open(CALLS)
        await unending.until_open(MAX_GIVEN_UP)
        assert "down" not in [status for _, status in fleet.history]


async def test_answer_that_says_it_is_none_is_not_held_open() -> None:
    server, unending = Alive(), Unending(begins=True, status=202)
    async with (
        http_peer(server.app) as peer,
        fleet_of(raw=HttpUpstream(url=f"http://127.0.0.1:{peer.port}/mcp")) as fleet,
    ):
        server.call_answer = unending
        with pytest.raises(UpstreamAnswerError):
            await fleet["raw"].call("echo", {}, seconds=DEADLINE_SECONDS)
        await unending.until_open(0)


async def test_the_one_that_was_given_up_first_is_closed_and_none_that_is_waited_for() -> None:
    posts, ended = OpenPosts(Room(UPSTREAM_BYTES)), list[int]()
    opened: dict[int, OpenPost] = {}

    async def wait(request_id: int) -> None:
        post = opened[request_id] = posts.opened(request_id)
        try:
            with post.waiting():
                await anyio.sleep_forever()
        except UpstreamLostError:
            ended.append(request_id)
            posts.close(post)

    async with anyio.create_task_group() as tasks:
        for request_id in range(MAX_GIVEN_UP + 4):
            tasks.start_soon(wait, request_id)
        await anyio.wait_all_tasks_blocked()
        for request_id in range(1, MAX_GIVEN_UP + 3):
            posts.give_up(request_id)
        await anyio.wait_all_tasks_blocked()
        assert ended == [1, 2]
        posts.close(opened[3])
        posts.give_up(3)
        posts.give_up(0)
        await anyio.wait_all_tasks_blocked()
        assert ended == [1, 2]
        tasks.cancel_scope.cancel()


class CutOff(httpx2.AsyncByteStream):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"data: whole\n\ndata: half\n"
        raise httpx2.DecodingError("garbage")


async def test_half_an_event_is_not_read_when_its_stream_is_cut_off() -> None:
    response = httpx2.Response(
        200,
        headers={"content-type": "text/event-stream"},
        stream=WantedEvents(CutOff(), OpenPost(1, Held(Room(0))), lambda error: b"last"),
        request=httpx2.Request("POST", "http://peer.test/"),
    )
    events = [event async for event in httpx2.EventSource(response)]
    assert [event.data for event in events if event.event == "message"] == ["whole", "last"]


async def test_what_is_closed_or_answered_by_a_gateway_is_not_answered() -> None:
    failures, answered = Failures(), list[object]()
    errors = [
        failures.carry(UpstreamLostError("closed")),
        failures.carry(UpstreamAnswerError("unreadable")),
        ErrorData(code=1, message="no", data="x"),
        ErrorData(code=CONNECTION_CLOSED, message="SSE stream ended without a response"),
        ErrorData(code=CONNECTION_CLOSED, message="not now"),
        failures.carry(UpstreamFaultError("HTTP 504")),
        failures.carry(UpstreamSilentError("HTTP 202")),
    ]
    arriving, read = anyio.create_memory_object_stream[SessionMessage | Exception](len(errors))
    written, _ = anyio.create_memory_object_stream[SessionMessage](1)
    wire = Wire(read, written, failures=failures)

    def on_answer(request_id: object) -> bool:
        answered.append(request_id)
        return True

    wire.on_answer = on_answer
    for request_id, error in enumerate(errors):
        arriving.send_nowait(SessionMessage(JSONRPCError(jsonrpc="2.0", id=request_id, error=error)))
    arriving.close()

    async def ignore(*_: object) -> Any:
        return {}

    await wire.run(ignore, ignore)
    assert answered == [1, 2, 4]
