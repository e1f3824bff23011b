"""Strangers who open connections and do not end what they begin, beside clients who are only slow, or many."""

import asyncio
import inspect
import resource
import socket
from asyncio import selector_events
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial

import anyio
import anyio.lowlevel
import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from structlog.testing import capture_logs
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from manifests.json_value import Json
from manifests.portal_manifest import ServerSettings
from portal.app.http_connections import (
    FREE_PIECES,
    HEAD_BYTES,
    PIECE_BYTES,
    Connections,
    HttpConnection,
    http_server,
)
from portal.app.http_connections import listening as _listener
from tests.portal.peers import DEADLINE_SECONDS

pytestmark = pytest.mark.anyio

GET = b"GET /now HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST /read HTTP/1.1\r\nHost: a\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
HEAD_SECONDS = 0.2


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.server = writer.get_extra_info("peername")

    async def send(self, *parts: bytes, pause: float = 0.0) -> None:
        for part in parts:
            self._writer.write(part)
            await self._writer.drain()
            await asyncio.sleep(pause)

    async def answer(self) -> tuple[int, bytes]:
        """The status and the body of the next answer."""
        with anyio.fail_after(DEADLINE_SECONDS):
            head = await self._reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            return int(head.split()[1]), await self._reader.readexactly(length)

    async def ask(self, request: bytes = GET) -> int:
        await self.send(request)
        return (await self.answer())[0]

    async def line(self) -> bytes:
        with anyio.fail_after(DEADLINE_SECONDS), suppress(ConnectionError):
            return await self._reader.readline()
        return b""

    async def is_closed(self) -> bool:
        """Wait until the portal closes it."""
        with anyio.fail_after(DEADLINE_SECONDS), suppress(ConnectionError):
            while await self._reader.read(1 << 16):
                pass
        return True

    def close(self) -> None:
        self._writer.transport.abort()


class App:
    """Answers with the address of its client: at once, after the body, or when it may."""

    def __init__(self) -> None:
        self.may_answer, self.waiting, self.bodies = anyio.Event(), 0, 0
        self.server: uvicorn.Server | None = None

    async def has(self, number: int) -> None:
        """Return as soon as so many requests wait."""
        with anyio.fail_after(DEADLINE_SECONDS):
            while self.waiting < number:
                await anyio.lowlevel.checkpoint()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        while scope["path"] == "/read":
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            if not message["more_body"]:
                self.bodies += 1
                break
        body = scope["client"][0].encode()
        if scope["path"] == "/stream":
            events = [(b"Content-Type", b"text/event-stream; charset=utf-8")]
            await send({"type": "http.response.start", "status": 200, "headers": events})
            await send({"type": "http.response.body", "body": b"begun\n", "more_body": True})
            body = b"ended\n"
        if scope["path"] in ("/wait", "/stream"):
            self.waiting += 1
            await self.may_answer.wait()
        if scope["path"] != "/stream":
            headers = [(b"content-length", b"%d" % len(body))]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


Connect = Callable[[], Awaitable[Client]]


@asynccontextmanager
async def served(app: App | None = None, **settings: Json) -> AsyncIterator[Connect]:
    """Serve as the portal does; yields what connects to it."""
    app = app or App()
    app.server = server = http_server(app, ServerSettings(**settings))
    listener = _listener("127.0.0.1", 0)
    clients: list[Client] = []

    async def connect() -> Client:
        clients.append(Client(*await asyncio.open_connection(*listener.getsockname())))
        return clients[-1]

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(server.serve, sockets=[listener]))
        try:
            yield connect
        finally:
            for each in clients:
                each.close()
            server.should_exit = server.force_exit = True


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    async with served() as connect:
        yield connect


async def drips(client: Client, first: bytes, drip: bytes) -> None:
    await client.send(first, pause=HEAD_SECONDS / 20)
    with suppress(ConnectionError):
        while drip:
            await client.send(drip, pause=HEAD_SECONDS / 20)


@pytest.mark.parametrize(
    ("first", "drip"),
    [
        pytest.param(b"", b"", id="nothing"),
        pytest.param(GET[:-2], b"", id="half a head"),
        pytest.param(GET[:-2] + b"X: ", b"a", id="a head that drips"),
        pytest.param(GET, b"a", id="the second head"),
        pytest.param(GET + GET[:-2], b"", id="half a head behind a request"),
        pytest.param(GET, b"\r\n", id="empty lines"),
        pytest.param(POST + b"Content-Length: 1000\r\n\r\n", b"a", id="a body"),
        pytest.param(POST + CHUNKED, b"1\r\na\r\n", id="chunks"),
    ],
)
async def test_unfinished_request_ends_and_nothing_else_does(first: bytes, drip: bytes) -> None:
    app = App()
    async with served(app, head_seconds=HEAD_SECONDS) as connect, anyio.create_task_group() as tasks:
        idle = await connect()
        assert await idle.ask() == 200
        stream = await connect()
        await stream.send(b"GET /stream HTTP/1.1\r\nHost: a\r\n\r\n")
        while await stream.line() != b"begun\n":
            pass
        waiting = await connect()
        await waiting.send(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n" + GET)  # pipelined
        stranger = await connect()
        tasks.start_soon(drips, stranger, first, drip)
        assert await stranger.is_closed()
        assert await idle.ask() == 200
        app.may_answer.set()
        while await stream.line() != b"ended\n":
            pass
        assert [(await waiting.answer())[0] for _ in range(2)] == [200, 200]
        tasks.cancel_scope.cancel()


async def test_slow_client_is_answered() -> None:
    async with served(head_seconds=DEADLINE_SECONDS) as connect:
        client = await connect()
        request = POST + b"Content-Length: 200\r\n\r\n" + b"a" * 200
        for _ in range(2):
            await client.send(*(bytes([each]) for each in request))
            assert (await client.answer())[0] == 200


@pytest.mark.parametrize(
    ("settings", "open_files"),
    [({"connections": 8}, 1000), ({"connections_per_address": 8}, 1000), ({}, 16)],
    ids=["in all", "of an address", "of the files that may be open"],
)
async def test_client_that_asks_takes_the_place_of_one_that_does_not(
    settings: dict[str, Json], open_files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (open_files, open_files))
    with capture_logs() as logs:
        async with served(**settings) as connect:
            strangers = [await connect() for _ in range(8)]
            for each in strangers:
                await each.send(GET[:-2])
            clients = [await connect() for _ in range(3)]
            assert [await each.ask() for each in clients] == [200] * 3
            assert [await each.is_closed() for each in strangers[:3]] == [True] * 3
            await strangers[3].send(b"\r\n")
            assert (await strangers[3].answer())[0] == 200
    assert [each["event"] for each in logs] == ["connections_full"]


async def test_connection_on_which_the_portal_works_is_nobody_elses() -> None:
    app = App()
    async with served(app, connections=2) as connect:
        clients = [await connect() for _ in range(2)]
        for each in clients:
            await each.send(GET.replace(b"now", b"wait"))
        await app.has(2)
        assert await (await connect()).is_closed()
        app.may_answer.set()
        assert [(await each.answer())[0] for each in clients] == [200, 200]


async def test_200_clients_of_one_address_keep_their_connections(connect: Connect) -> None:
    clients = [await connect() for _ in range(200)]
    for _ in range(2):
        assert {await each.ask() for each in clients} == {200}


def forwarded(path: str, *addresses: str) -> bytes:
    lines = "".join(f"X-Forwarded-For: {each}\r\n" for each in addresses)
    return f"GET /{path} HTTP/1.1\r\nHost: a\r\n{lines}\r\n".encode()


async def test_requests_through_a_trusted_proxy_count_by_the_address_that_it_adds() -> None:
    app = App()
    proxies = ["127.0.0.1", "10.0.0.0/8"]
    async with served(app, connections_per_address=2, trusted_proxies=proxies) as connect:
        for _ in range(2):
            await (await connect()).send(forwarded("wait", "192.0.2.1"))
        await app.has(2)
        client = await connect()
        for same in (["192.0.2.1"], ["192.0.2.9, 192.0.2.1"], ["192.0.2.9", "192.0.2.1, 10.0.0.1"]):
            assert await client.ask(forwarded("now", *same)) == 429
        for other in ("192.0.2.9", "192.0.2.1, 192.0.2.9", "2001:db8::9"):
            await client.send(forwarded("now", other))
            assert await client.answer() == (200, other.split()[-1].encode())
        app.may_answer.set()


@pytest.mark.parametrize("proxies", [[], ["10.0.0.0/8"]])
async def test_stranger_is_not_believed_about_its_address(proxies: list[Json]) -> None:
    async with served(trusted_proxies=proxies) as connect:
        client = await connect()
        await client.send(forwarded("now", "10.0.0.1", "192.0.2.1"))
        assert await client.answer() == (200, b"127.0.0.1")


@pytest.mark.parametrize("framing", [b"Content-Length: 1000000\r\n\r\n", CHUNKED])
async def test_body_is_not_read_on_after_the_answer(framing: bytes) -> None:
    async with served(head_seconds=HEAD_SECONDS) as connect:
        stranger = await connect()
        assert await stranger.ask(POST.replace(b"read", b"now") + framing) == 200
        assert await stranger.is_closed()
        with pytest.raises(ConnectionError):
            while True:
                await stranger.send(b"1\r\na\r\n" * HEAD_BYTES)
        client = await connect()
        whole = POST.replace(b"read", b"now") + b"Content-Length: 4\r\n\r\nbody"
        assert [await client.ask(whole) for _ in range(2)] == [200, 200]


async def test_client_that_sends_its_body_after_a_refusal_reads_it(connect: Connect) -> None:
    client = await connect()
    await client.send(POST.replace(b"read", b"now") + b"Content-Length: 1000000\r\n\r\n")
    await client.send(*[b"a" * 1000] * 1000)
    assert (await client.answer())[0] == 200


@pytest.mark.parametrize("is_chunked", [True, False])
async def test_body_in_tiny_pieces_is_refused(is_chunked: bool) -> None:
    app = App()
    async with served(app) as connect:
        stranger, client = await connect(), await connect()
        with suppress(ConnectionError):
            if is_chunked:
                await stranger.send(POST + CHUNKED + b"1\r\na\r\n" * 2 * FREE_PIECES + b"0\r\n\r\n")
            else:
                length = 10 * FREE_PIECES
                await stranger.send(POST + b"Content-Length: %d\r\n\r\n" % length, *[b"a"] * length)
        assert await stranger.is_closed()
        assert app.bodies == 0
        piece = b"%x\r\n%b\r\n" % (2 * PIECE_BYTES, b"a" * 2 * PIECE_BYTES)
        await client.send(POST + CHUNKED, b"1\r\na\r\n" * (FREE_PIECES // 2), piece * 8000, b"0\r\n\r\n")
        assert (await client.answer())[0] == 200


async def test_malformed_head_is_told(connect: Connect) -> None:
    client = await connect()
    assert await client.ask() == 200
    await client.send(b"no head\r\n\r\n")
    assert b" 400 " in await client.line() and await client.is_closed()


@pytest.mark.parametrize("path", [b"read", b"now", b"stream"])
async def test_malformed_body_is_no_error_of_ours(path: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with served() as connect:
        for parts in ([CHUNKED + b"no chunk\r\n"], [CHUNKED, b"no chunk\r\n"]):
            stranger = await connect()
            with suppress(ConnectionError):
                await stranger.send(POST.replace(b"read", path), *parts)
            assert await stranger.is_closed()
    assert not [each for each in caplog.records if each.name.startswith("uvicorn")]


async def test_head_is_bounded(connect: Connect) -> None:
    stranger = await connect()
    await stranger.send(GET[:-2] + b"a:b\r\n" * HEAD_BYTES + b"\r\n")
    assert b" 200 " not in await stranger.line()
    assert await (await connect()).ask(GET[:-2] + b"a: %b\r\n\r\n" % (b"b" * (HEAD_BYTES - 100))) == 200


async def test_connection_that_cannot_be_accepted_is_told_once_and_waits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    _, hard = before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with capture_logs() as logs:
        async with served() as connect:
            with anyio.fail_after(DEADLINE_SECONDS):
                early = await connect()
                assert await early.ask() == 200
                peer = socket.create_connection(early.server)
                resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
                try:
                    while not logs:
                        await anyio.lowlevel.checkpoint()
                    assert await early.ask() == 200
                finally:
                    resource.setrlimit(resource.RLIMIT_NOFILE, before)
                late = Client(*await asyncio.open_connection(sock=peer))
                assert await late.ask() == 200
                late.close()
    assert [each["event"] for each in logs] == ["connection_not_accepted"]
    assert not [each for each in caplog.messages if "accept" in each]


async def test_end_closes_a_stream_that_its_client_listens_to_and_no_answer() -> None:
    app = App()
    async with served(app, drain_seconds=3600) as connect:
        listening, modern, calling, asking = [await connect() for _ in range(4)]
        await listening.send(b"GET /stream HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n")
        listens = b"Mcp-Method: subscriptions/listen\r\nContent-Length: 0\r\n\r\n"
        await modern.send(b"POST /stream HTTP/1.1\r\nHost: a\r\n" + listens)
        await calling.send(b"POST /stream HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
        await asking.send(b"GET /wait HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream, */*\r\n\r\n")
        await app.has(4)
        assert app.server is not None
        app.server.should_exit = True
        assert await listening.is_closed() and await modern.is_closed()
        app.may_answer.set()
        assert (await asking.answer())[0] == 200
        while (line := await calling.line()) != b"ended\n":
            assert line


async def test_path_with_a_number_too_long_to_read_is_refused(connect: Connect) -> None:
    for digits, status in ((4_400, 414), (3_900, 200)):
        path = b"/runs/run_1/answers/" + b"7" * digits
        assert await (await connect()).ask(b"GET " + path + b" HTTP/1.1\r\nHost: a\r\n\r\n") == status


async def test_what_is_not_answered_in_time_is_told_that_the_portal_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = App()
    with capture_logs() as logs:
        async with served(app, drain_seconds=0.1) as connect:
            begun, asking = await connect(), await connect()
            await begun.send(b"POST /stream HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
            await asking.send(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")
            await app.has(2)
            assert app.server is not None
            app.server.should_exit = True
            status, text = await asking.answer()
            assert (status, b"portal ends" in text) == (503, True)
            assert await begun.is_closed() and await asking.is_closed()
    assert logs == [{"event": "requests_cancelled", "log_level": "warning", "requests": 2}]
    assert not caplog.messages


def test_names_of_uvicorn_are_those_that_connections_use() -> None:
    connections, loop = Connections(App(), ServerSettings()), asyncio.new_event_loop()
    settings = {"config": uvicorn.Config(App()), "server_state": ServerState(), "app_state": {}}
    own = HttpConnection(connections, **settings, _loop=loop)
    for name in ("conn", "client", "flow", "loop", "scope", "timeout_keep_alive_task", "transport"):
        assert name in vars(own)
    overridden = ["_unset_keepalive_if_required", "connection_lost", "connection_made", "data_received"]
    for name in [*overridden, "send_400_response", "shutdown"]:
        assert name in vars(H11Protocol)
    assert "_wait_tasks_to_complete" in vars(uvicorn.Server)
    assert "self.on_response_complete" in inspect.getsource(H11Protocol.handle_events)
    assert "write_paused" in vars(FlowControl(asyncio.Transport()))
    assert "self.max_size" in inspect.getsource(selector_events._SelectorSocketTransport)
    own.loop.close()
