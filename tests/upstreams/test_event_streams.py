"""Event streams that are cut: by proxies, by servers that poll, and while a server starts again."""

import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.upstreams.peers import DEADLINE_SECONDS, Clock, fleet_at
from tests.upstreams.raw_http_server import TOOLS, RawHttpServer
from tests.upstreams.test_http_upstreams import real_server
from upstreams.errors import UpstreamAnswerError, UpstreamLostError
from upstreams.transports import http

EVENTS = "text/event-stream"
CHANGED = 'id: 8\ndata: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n\n'
CUT = "id: 7\n\n"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_LEAST_RETRY_SECONDS", "_LONGEST_RETRY_SECONDS", "_LONGEST_RESUME_SECONDS"):
        monkeypatch.setattr(http, name, 0.001)


class Streaming(RawHttpServer):
    """Answers each GET with the next of `streams`: a status, or the events of a stream that then ends.

    After the last one it is the answer to the last call; without a call, a stream that stays open.
    """

    def __init__(self, *streams: int | str, first: str = CUT) -> None:
        super().__init__()
        self.streams = [*streams]
        self.seen: list[str | None] = []
        """The `Last-Event-ID` of each GET."""
        self.call: dict[str, Any] | None = None
        self.first = first

    def _end_session(self, request: Request) -> Response:
        if request.method != "GET":
            return super()._end_session(request)
        if self.call is None or "last-event-id" in request.headers:
            self.seen.append(request.headers.get("last-event-id"))
        else:
            return Response(status_code=405)
        if self.streams:
            following = self.streams.pop(0)
            return Response(status_code=following) if isinstance(following, int) else events(following)
        if self.call is None:
            return StreamingResponse(open_stream(), media_type=EVENTS)
        answer = {"jsonrpc": "2.0", "id": self.call["id"], "result": {"content": []}}
        return events(f"data: {json.dumps(answer)}\n\n")

    async def _call(self, message: dict[str, Any]) -> Response:
        self.call = message
        return events(self.first)


def events(text: str) -> Response:
    return Response(text, media_type=EVENTS)


async def open_stream() -> AsyncIterator[str]:
    yield ": open\n\n"
    await anyio.sleep_forever()


@pytest.mark.parametrize(
    ("streams", "seen"),
    [
        ([CUT, 503, 502, "", 503, CUT, ""], [None, *["7"] * 7]),
        ([503, 502, 429, 503], [None] * 5),
        ([CUT, 409, 409, CUT, 400, 401], [None, "7", "7", "7", "7", None, None]),
    ],
    ids=["down for a while", "down at first", "refused"],
)
async def test_stream_is_opened_again_while_the_server_lives(
    streams: list[int | str], seen: list[str | None]
) -> None:
    server = Streaming(*streams, CHANGED)
    async with fleet_at(server.app) as fleet:
        server.tools_text = json.dumps([*TOOLS, {**TOOLS[0], "name": "more"}])
        await fleet.until(lambda: len(fleet.one.tools) == 2)
        assert server.seen[: len(seen)] == seen
        assert {status for _, status in fleet.history} == {"ready"}


@pytest.mark.parametrize("status", [404, 405])
async def test_server_without_such_a_stream_is_asked_once(status: int) -> None:
    server = Streaming(status)
    async with fleet_at(server.app) as fleet:
        for _ in range(5):
            await fleet.one.ask("ping", {}, seconds=DEADLINE_SECONDS, on_sent=lambda was_seen: None)
        assert server.seen == [None]


@pytest.mark.parametrize("streams", [
    [], [502, 409, 503, 400, 503, 401, *[503] * 5], [500, "", "id: 9\n\n", "retry: 1\n\n"],
])  # fmt: skip
async def test_call_whose_stream_can_be_resumed_is_answered(streams: list[int | str]) -> None:
    server = Streaming(405, *streams)
    async with fleet_at(server.app) as fleet:
        assert (await fleet.call("echo")).content == []
    assert server.seen[1] == "7"


@pytest.mark.parametrize(("first", "streams"), [(CUT, [404]), (CUT, [400, 400]), (": nothing\n\n", [])])
async def test_call_whose_stream_cannot_be_resumed_is_lost(first: str, streams: list[int]) -> None:
    async with fleet_at(Streaming(405, *streams, first=first).app) as fleet:
        with pytest.raises(UpstreamLostError):
            await fleet.call("echo")


@pytest.mark.parametrize("odd", ["id: \u00fc1\n\n", f"id: 7\nretry: {'9' * 400}\n\n"])
async def test_odd_event_costs_at_most_its_call(odd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_MOST_RETRY_MS", 10)
    async with fleet_at(Streaming(405, 404, first=odd).app) as fleet:
        with pytest.raises(UpstreamLostError):
            await fleet.call("echo")
        assert fleet.one.state.status == "ready"


async def test_answer_that_nobody_thought_of_costs_its_call_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run goes on after an UpstreamError, and ends with anything else."""
    async with fleet_at(RawHttpServer().app) as fleet:
        monkeypatch.setattr(http.StreamableHttp, "_post", never_thought_of)
        with pytest.raises(UpstreamAnswerError, match="cannot be read: overflow error: too deep"):
            await fleet.call("echo")


async def never_thought_of(*_: object) -> None:
    raise OverflowError("too deep")


class Cutting:
    """Before a server of HTTP+SSE, whose stream ends when `cut` is set."""

    def __init__(self, app: ASGIApp) -> None:
        self.opened = 0
        self.cut = anyio.Event()
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        self.opened, self.cut = self.opened + 1, anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._app, scope, receive, send)
            await self.cut.wait()
            tasks.cancel_scope.cancel()
        await send({"type": "http.response.body"})


@pytest.mark.parametrize("seconds", [1.5, 60.0])
async def test_idle_sse_upstream_stays_ready_though_its_stream_is_cut(seconds: float) -> None:
    server, clock = Cutting(real_server().sse_app()), Clock()
    async with fleet_at(server, "sse", transport="sse") as fleet:
        for turn in range(2, 6):
            clock.advance(seconds)
            server.cut.set()
            await fleet.until(lambda: server.opened == turn and fleet.one.state.status == "ready")  # noqa: B023
        await fleet.call("add", {"a": 1, "b": 1})
    assert {status for _, status in fleet.history[:-1]} == {"starting", "ready"}
