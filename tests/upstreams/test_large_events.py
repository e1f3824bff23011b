"""Answers over HTTP+SSE that are larger than the SDK reads there."""

import json
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio
import httpx2
import pytest
from mcp.server.mcpserver import MCPServer
from mcp.shared.message import SessionMessage
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from manifests.upstream_sections import HttpUpstream
from tests.upstreams.peers import DEADLINE_SECONDS, fleet_of, http_peer
from tests.upstreams.streams import Pieces
from upstreams.barren_lines import Rests
from upstreams.diagnostics import Diagnostics
from upstreams.errors import UpstreamAnswerError
from upstreams.http_client import SseHttpClient
from upstreams.http_credentials import Admission, ConfiguredHeaders
from upstreams.large_events import SmallEvents
from upstreams.pace import Pace
from upstreams.room import UPSTREAM_BYTES, Held, Room
from upstreams.scrubber import Scrubber
from upstreams.steps import STEP_BYTES
from upstreams.tool_result import ToolResult
from upstreams.unasked_bytes import MeasuredMessage
from upstreams.wire import Failures
from upstreams.wire_text import MAX_MESSAGE_BYTES

pytestmark = pytest.mark.anyio

CHARACTERS = 3_000_000
URL = "http://upstream.example/sse"


class Rewritten:
    """An app whose answers of that many characters are rewritten, as by a server that sends events otherwise."""

    def __init__(self, app: ASGIApp, rewrite: Callable[[bytes], bytes], characters: int) -> None:
        self._app = app
        self._rewrite = rewrite
        self._text = b"x" * characters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            if self._text in message.get("body", b""):
                message = {**message, "body": self._rewrite(message["body"])}
            await send(message)

        await self._app(scope, receive, sent)


def as_it_is(event: bytes) -> bytes:
    return event


def in_several_lines(event: bytes) -> bytes:
    """The data indented, as JSON allows, and each line a field of its own."""
    head, _, data = event.partition(b"data: ")
    lines = json.dumps(json.loads(data), indent=1).encode().splitlines()
    return head + b": a comment\r\n" + b"".join(b"data:%b\r\n" % line for line in lines) + b"\r\n"


def unreadable(event: bytes) -> bytes:
    return event.replace(b'"result":', b'"result"')


def of_too_many_values(event: bytes) -> bytes:
    """In a line that would be JSON without them."""
    return event.replace(b"x" * CHARACTERS, b"x" * 10_000 + b'",' + b"[]," * 1_000_000 + b'"' + b"x" * 10_000)


async def large_call(
    rewrite: Callable[[bytes], bytes], characters: int = CHARACTERS
) -> tuple[ToolResult | None, list[ToolResult], list[str]]:
    """The result of a large call, those of a call under way beside it, and the states of the upstream."""
    server, began, may_end = MCPServer("large"), anyio.Event(), anyio.Event()

    @server.tool()
    async def large() -> str:
        return "x" * characters

    @server.tool()
    async def hold() -> str:
        began.set()
        await may_end.wait()
        return "held"

    held: list[ToolResult] = []
    result = None
    async with http_peer(Rewritten(server.sse_app(), rewrite, characters)) as peer:
        spec = HttpUpstream(url=f"http://127.0.0.1:{peer.port}/sse", transport="sse")
        async with fleet_of(real=spec) as fleet, anyio.create_task_group() as tasks:

            async def hold_on() -> None:
                held.append(await fleet["real"].call("hold", {}, seconds=DEADLINE_SECONDS))

            tasks.start_soon(hold_on)
            await began.wait()
            with suppress(UpstreamAnswerError):
                result = await fleet["real"].call("large", {}, seconds=DEADLINE_SECONDS)
            may_end.set()
    return result, held, [status for _, status in fleet.history]


@pytest.mark.parametrize("rewrite", [as_it_is, in_several_lines])
async def test_answer_of_several_mebibytes_arrives_beside_other_calls(
    rewrite: Callable[[bytes], bytes],
) -> None:
    result, held, states = await large_call(rewrite)
    assert result is not None and result.structured == {"result": "x" * CHARACTERS}
    assert [each.structured for each in held] == [{"result": "held"}]
    assert states == ["ready", "stopped"]


@pytest.mark.parametrize(
    ("rewrite", "characters"), [(unreadable, CHARACTERS), (of_too_many_values, CHARACTERS), (unreadable, 50)]
)
async def test_answer_that_cannot_be_read_fails_its_call_alone(
    rewrite: Callable[[bytes], bytes], characters: int
) -> None:
    result, held, states = await large_call(rewrite, characters)
    assert result is None
    assert [each.structured for each in held] == [{"result": "held"}]
    assert states == ["ready", "stopped"]


def plenty() -> Held:
    return Held(Room(UPSTREAM_BYTES))


def noted(messages: list[bytes], instead: bytes = b"") -> Callable[[bytes], Awaitable[bytes]]:
    async def note(message: bytes) -> bytes:
        messages.append(message)
        return instead

    return note


LARGE = b"x" * (STEP_BYTES + 1)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
async def test_large_events_are_handed_over_and_small_ones_stay_in_their_order(end: bytes) -> None:
    lines = [
        b"data: 1",
        b"",
        b"data:",
        b": no",
        b"data: " + LARGE,
        b"event: message",
        b"",
        b"id: 2",
        b"data: 3",
        b"",
    ]
    wanted = b"data: 1" + end * 2 + LARGE + b"id: 2" + end + b"data: 3" + end * 2
    whole = b"".join(line + end for line in lines)
    begin = whole.index(LARGE)
    parts = [whole[: begin + 10], whole[begin + 10 : begin + 20], whole[begin + 20 : begin + len(LARGE)]]
    for pieces in (
        [whole],
        whole.splitlines(keepends=True),
        re.findall(rb"\n?[^\r\n]*[\r\n]", whole),
        [*parts, whole[begin + len(LARGE) :]],
    ):
        seen: list[bytes] = []
        async for piece in SmallEvents(Pieces(pieces), noted(seen), Rests(), Pace(), plenty()):
            seen.append(piece)  # noqa: PERF401 - in between come the large ones
        assert b"".join(seen).splitlines() == wanted.splitlines()


async def test_what_stands_for_a_large_event_keeps_its_other_fields() -> None:
    pieces = [b"data: 1\n\nid: 5\nretry: 9\ndata: " + LARGE + b"\n\n: no\ndata: 2\n\n"]
    seen = [
        piece async for piece in SmallEvents(Pieces(pieces), noted([], b"instead"), Rests(), Pace(), plenty())
    ]
    assert b"".join(seen) == b"data: 1\n\nid: 5\nretry: 9\ndata:instead\n\ndata: 2\n\n"


async def test_large_events_of_other_kinds_are_dropped() -> None:
    seen: list[bytes] = []
    pieces = [b"event: other\ndata: ", LARGE, b"\n\n", b"event:\ndata: " + LARGE + b"\n\n"]
    async for piece in SmallEvents(
        Pieces([b"".join(pieces[:3]), pieces[3]]), noted(seen), Rests(), Pace(), plenty()
    ):
        assert not piece
    assert seen == [LARGE]


async def test_an_event_without_end_ends_the_stream() -> None:
    seen: list[bytes] = []
    line = b"data: " + b"x" * 1024 * 1024 + b"\n"
    with pytest.raises(httpx2.DecodingError):
        async for _ in SmallEvents(
            Pieces([line] * (MAX_MESSAGE_BYTES // len(line) + 2)), noted(seen), Rests(), Pace(), plenty()
        ):
            pass
    assert not seen


async def test_messages_of_the_older_transport_are_handed_over_with_their_length() -> None:
    """So that those which nobody asked for are read slowly there, too: all of them come on one stream."""
    texts = [
        b'{"jsonrpc":"2.0","id":%d,"result":{"text":"%b"}}' % (size, b"x" * size) for size in (10, 200_000)
    ]
    stream = Pieces([b"data: " + text + b"\n\n" for text in texts])
    answer = httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=stream)
    diagnostics = Diagnostics(Scrubber(()))
    taken: list[SessionMessage] = []

    async def take(message: SessionMessage) -> None:
        taken.append(message)

    async with SseHttpClient(
        Failures(),
        diagnostics,
        Admission(URL, ConfiguredHeaders({}, (), diagnostics.scrub)),
        Room(UPSTREAM_BYTES),
        deliver=lambda error: None,
        take_message=take,
        transport=httpx2.MockTransport(lambda request: answer),
    ) as client:
        response = await client.send(client.build_request("GET", URL), stream=True)
        await response.aread()
    assert [each.text_bytes for each in taken if isinstance(each, MeasuredMessage)] == [*map(len, texts)]
