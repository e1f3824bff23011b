"""A Streamable HTTP server of the handshake era, down to its bytes, so that it can have a fault."""

import asyncio
import gzip
import json
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias

ANY = {"type": "object"}
TOOLS = [
    {"name": "act", "inputSchema": ANY},
    {"name": "look", "inputSchema": ANY, "annotations": {"readOnlyHint": True}},
    {"name": "fine", "inputSchema": ANY},
]
KEY = "dev.mcp-code-portal/idempotency-key"
EVENT_STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


class Exchange:
    """One call that arrived: what a fault answers it with."""

    def __init__(self, server: "FaultyHttpServer", writer: asyncio.StreamWriter, message: Any) -> None:
        self.server = server
        self.message = message
        self._writer = writer

    @property
    def tool(self) -> str:
        return str(self.message["params"]["name"])

    def act(self) -> None:
        self.server.effects[self.tool] += 1

    def body(self, **changes: Any) -> bytes:
        value = {"tool": self.tool, "n": (self.message["params"].get("arguments") or {}).get("n")}
        result = {"content": [{"type": "text", "text": json.dumps(value)}]}
        return json.dumps({"jsonrpc": "2.0", "id": self.message["id"], "result": result, **changes}).encode()

    async def send(
        self,
        status: str,
        body: bytes = b"",
        kind: str = "application/json",
        length: int | None = None,
        **headers: str,
    ) -> None:
        """A whole response, or one that promises `length` bytes."""
        head = {"Content-Type": kind, "Content-Length": str(len(body) if length is None else length)}
        head.update({name.replace("_", "-"): value for name, value in headers.items()})
        lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in head.items()), "", ""]
        await self.raw("\r\n".join(lines).encode() + body)

    async def events(self, *events: bytes) -> None:
        """The beginning of a stream of events."""
        for each in (EVENT_STREAM, *events):
            await self.raw(each)

    async def raw(self, data: bytes) -> None:
        with suppress(ConnectionError):
            self._writer.write(data)
            await self._writer.drain()

    @property
    def has_gone(self) -> bool:
        """Whether the other side has closed the connection, or the test is over."""
        return self._writer.is_closing() or self.server.over.is_set()

    def close(self) -> None:
        self._writer.close()

    def reset(self) -> None:
        """Not a goodbye but a slammed door."""
        sock = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    async def hang(self) -> None:
        """Until the other side has enough of it."""
        await self.server.over.wait()

    async def succeed(self) -> None:
        self.act()
        await self.send("200 OK", self.body())


Fault: TypeAlias = Callable[[Exchange], Awaitable[None]]


class FaultyHttpServer:
    """Strikes with its fault the first call of each tool but `fine`; `always`, every one of them.

    Counts arrivals, effects and sessions, and keeps the idempotency keys in the order of arrival.
    """

    def __init__(self, fault: Fault = Exchange.succeed, *, always: bool = False) -> None:
        self.fault = fault
        self.always = always
        self.arrivals: Counter[str] = Counter()
        self.effects: Counter[str] = Counter()
        self.keys: list[str] = []
        self.sessions: list[str] = []
        self.events: bytes | None = None
        """The answer to a GET that resumes a stream; None refuses it."""
        self.resumptions = 0
        self.may_go_on = asyncio.Event()
        self.unasked: Fault | None = None
        """The answer to a GET that resumes nothing; None refuses it."""
        self.known: set[str] = set()
        self.port = 0
        self.over = asyncio.Event()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["FaultyHttpServer"]:
        server = await asyncio.start_server(self._converse, "127.0.0.1")
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            self.over.set()
            server.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while not writer.is_closing():
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                await self._answer(head[0].split()[0], headers, body, writer)
        writer.close()

    async def _answer(
        self, verb: str, headers: dict[str, str], body: bytes, writer: asyncio.StreamWriter
    ) -> None:
        message = json.loads(body) if verb == "POST" else {}
        exchange = Exchange(self, writer, message)
        method = message.get("method")
        if verb == "GET" and self.events is not None and "last-event-id" in headers:
            self.resumptions += 1
            await exchange.send("200 OK", self.events, "text/event-stream")
        elif verb == "GET" and self.unasked is not None:
            await self.unasked(exchange)
        elif verb != "POST":
            await exchange.send("405 Method Not Allowed")
        elif method == "server/discover":
            await exchange.send("400 Bad Request", b"unknown method", "text/plain")
        elif method == "initialize":
            await self._initialize(exchange)
        elif headers.get("mcp-session-id") not in self.known:
            await exchange.send("404 Not Found")
        elif "id" not in message:
            await exchange.send("202 Accepted")
        elif method == "tools/call":
            await self._call(exchange)
        else:
            result = {"tools": TOOLS} if method == "tools/list" else {}
            answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
            await exchange.send("200 OK", json.dumps(answer).encode())

    async def _initialize(self, exchange: Exchange) -> None:
        session = f"session-{len(self.sessions)}"
        self.sessions.append(session)
        self.known.add(session)
        result = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "faulty http", "version": "1"},
        }
        answer = {"jsonrpc": "2.0", "id": exchange.message["id"], "result": result}
        await exchange.send("200 OK", json.dumps(answer).encode(), Mcp_Session_Id=session)

    async def _call(self, exchange: Exchange) -> None:
        tool = exchange.tool
        self.arrivals[tool] += 1
        self.keys.append((exchange.message["params"].get("_meta") or {}).get(KEY, "-"))
        if tool != "fine" and (self.always or self.arrivals[tool] == 1):
            await self.fault(exchange)
        else:
            await exchange.succeed()


def asking(fault: Fault) -> Fault:
    """Acts, asks for more input, and has the fault when the call goes on."""

    async def strike(exchange: Exchange) -> None:
        if "requestState" in exchange.message["params"]:
            await fault(exchange)
        else:
            exchange.act()
            await ask(exchange)

    return strike


async def ask(exchange: Exchange) -> None:
    result = {"resultType": "input_required", "requestState": "begun"}
    await exchange.send("200 OK", exchange.body(result=result))


async def go_on(exchange: Exchange) -> None:
    await exchange.send("200 OK", exchange.body())


def acted(answer: Fault) -> Fault:
    """The same after having acted."""

    async def fault(exchange: Exchange) -> None:
        exchange.act()
        await answer(exchange)

    return fault


def status(line: str, body: bytes = b"not now", kind: str = "text/plain", **headers: str) -> Fault:
    """Refuses with this status, without having acted."""

    async def fault(exchange: Exchange) -> None:
        await exchange.send(line, b"" if line.startswith("204") else body, kind, **headers)

    return fault


def words(line: str, text: str) -> Fault:
    return status(line, text.encode())


def rpc_error(line: str, code: int, message: str, *, with_id: bool = False, id: str | None = None) -> Fault:
    """Refuses with this status and a JSON-RPC error with the call's id, another or none; without having acted."""

    async def fault(exchange: Exchange) -> None:
        of = exchange.message["id"] if with_id else id
        answer = {"jsonrpc": "2.0", "id": of, "error": {"code": code, "message": message}}
        await exchange.send(line, json.dumps(answer).encode())

    return fault


def result_with(line: str) -> Fault:
    """Has acted and answers, with a status that says otherwise."""

    async def fault(exchange: Exchange) -> None:
        await exchange.send(line, exchange.body())

    return acted(fault)


async def forget_session(exchange: Exchange) -> None:
    exchange.server.known.clear()
    await exchange.send("404 Not Found")


async def hang(exchange: Exchange) -> None:
    await exchange.hang()


async def reset(exchange: Exchange) -> None:
    exchange.reset()


async def reset_in_the_body(exchange: Exchange) -> None:
    await exchange.send("200 OK", exchange.body()[:20], length=5_000)
    exchange.reset()


async def body_that_never_ends(exchange: Exchange) -> None:
    await exchange.send("200 OK", b"[", length=10**12)
    for _ in range(17):
        await exchange.raw(b" " * 1024 * 1024)
    await exchange.hang()


def flood(head: bytes, unit: bytes) -> Fault:
    """Only these after the head, until the reader leaves."""

    async def fault(exchange: Exchange) -> None:
        await exchange.raw(head)
        while not exchange.has_gone:
            await exchange.raw(unit)

    return fault


def in_drops(kind: str) -> Fault:
    """A body that never ends, in chunks of one byte."""
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n"
    return flood(head.encode(), b"1\r\n \r\n" * 100)


def unfinished_events(size_bytes: int) -> Fault:
    """An event that takes so much before its last line comes, which it does once the server lets it."""

    async def fault(exchange: Exchange) -> None:
        result = {"content": [], "_meta": {"padding": "x" * (size_bytes - 200)}}
        await exchange.events(b"data: " + exchange.body(result=result))
        await exchange.server.may_go_on.wait()
        await exchange.raw(b"\n\n")

    return fault


def flood_of_events(unit: bytes) -> Fault:
    return flood(EVENT_STREAM, unit * max(1, 65_536 // len(unit)))


def notice(characters: int) -> bytes:
    """An event that logs so much."""
    params = {"level": "info", "data": "x" * characters}
    message = {"jsonrpc": "2.0", "method": "notifications/message", "params": params}
    return b"data: " + json.dumps(message).encode() + b"\n\n"


async def compressed_bomb(exchange: Exchange) -> None:
    await exchange.send("200 OK", gzip.compress(b" " * 20 * 1024 * 1024, 9), Content_Encoding="gzip")


async def no_http(exchange: Exchange) -> None:
    await exchange.raw(b"SSH-2.0-OpenSSH_9.9\r\n")
    exchange.close()


async def event_stream_cut(exchange: Exchange) -> None:
    await exchange.events(b"event: message\ndata: " + exchange.body()[:30])
    exchange.close()


async def event_stream_and_silence(exchange: Exchange) -> None:
    await exchange.events(b": nothing yet\n\n")
    await exchange.hang()


async def event_stream_of_garbage(exchange: Exchange) -> None:
    await exchange.events(b"data: {oops\n\n")
    exchange.close()


async def event_stream_broken_off(exchange: Exchange) -> None:
    """Again at once, as often as the rest is requested."""
    exchange.act()
    exchange.server.events = b"retry: 0\nid: 1\ndata:\n\n"
    await exchange.events(exchange.server.events)
    exchange.close()


async def event_stream_with_noise(exchange: Exchange) -> None:
    exchange.act()
    other = exchange.body(id=999_999)
    await exchange.events(b"retry: 10\n\n", b"event: odd\ndata: x\n\n", b"data: " + other + b"\n\n")
    await exchange.raw(b"data: " + exchange.body() + b"\n\n")
    exchange.close()


async def too_many_values(exchange: Exchange) -> None:
    body = exchange.body(result={"structuredContent": "HERE"})
    await exchange.send("200 OK", body.replace(b'"HERE"', b"[" + b"[]," * 3_000_000 + b"1]"))
