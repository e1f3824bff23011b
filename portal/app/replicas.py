"""Passes requests on to the replica that owns them, because it has the session or the question in its memory.

Rule 1: things that only one replica has are named `<replica>.<random>`: MCP sessions of older clients, sessions of
scripts, and waiting requests. The name tells any replica which one owns it.
Rule 2: a request is passed on whole, with its token. The other replica authorizes it like one of its own.
"""

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import anyio
import httpx2
import structlog
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from portal.records.store.records import StoreError
from portal.records.store.run_tables import RunTables
from portal.records.store.tables import LEASE_SECONDS
from portal.records.store.writer import RunStore
from portal.runs.service import Runs
from portal.server.server import until_gone
from upstreams.http_client import Guard, guarded_client

log = structlog.get_logger()

MAX_REQUEST_BYTES: Final = 4 << 20
"""Limit of a request body; a longer one gets 413. Bodies are read to find which replica owns the request."""

_CONNECT_SECONDS: Final = 3.0
_LOOK_SECONDS: Final = 5.0
_LOST: Final = "the replica serving this session stopped during the request, which may have taken effect"
_LIMITS: Final = httpx2.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=2.0)
"""Clients' streams last long, so any number is allowed. Idle connections end long before the other side ends them."""

_SESSION: Final = "mcp-session-id"
_PASSED_ON: Final = "x-mcp-code-portal-replica"
_WRONG_REPLICA: Final = 421

_OF_ONE_HOP: Final = {
    *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer"),
    *("transfer-encoding", "upgrade"),
}
_FORWARDED: Final = "x-forwarded-for"
_OF_THE_REQUEST: Final = {*_OF_ONE_HOP, "content-length", _FORWARDED}
"""Headers that are not passed on: the length is set anew, and the client is the one that this replica sees."""

_NAMED: Final = re.compile(rb'(?<!\\)"(?:session|requestState)"\s*:\s*"([0-9a-f]{16})\.')


def home_of(store: RunStore | None) -> str:
    """The prefix of names that only this replica has; "" if machines do not share a store."""
    return f"{store.holder}." if store is not None else ""


@dataclass(eq=False)
class ReplicaMiddleware:
    """ASGI middleware that passes requests on to the replica that owns them. Inside HttpAccessMiddleware."""

    app: ASGIApp
    runs: Runs
    client: httpx2.AsyncClient = field(
        default_factory=lambda: guarded_client(
            Guard(), _LIMITS, timeout=httpx2.Timeout(None, connect=_CONNECT_SECONDS)
        )
    )
    _urls: dict[str, str] = field(default_factory=dict)
    """Of the replicas that were alive when they were last asked for."""
    _out_at: float = -math.inf
    """When Postgres was last away. For a lease from then on, old heartbeats do not say who has ended."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        home = home_of(self.runs.store)
        if scope["type"] != "http" or scope["path"] != "/mcp":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        named = headers.get(_PASSED_ON)
        if named is not None and f"{named}." != home:
            await PlainTextResponse("this is another replica\n", _WRONG_REPLICA)(scope, receive, send)
            return
        session = headers.get(_SESSION, "")
        body = await _Body.read(receive) if scope["method"] == "POST" else _Body(receive)
        replica = session.partition(".")[0] if "." in session else body.replica
        is_passable = body.is_whole or scope["method"] != "POST"  # an overlong body is refused here
        if is_passable and replica and f"{replica}." != home and named is None:
            url = await self._url(replica)
            if url is not None and await self._pass_on(replica, url, scope, body, send):
                return
        if session.startswith(home):
            own, name = session.removeprefix(home).encode("latin-1"), _SESSION.encode()
            pairs = [(key, own if key == name else value) for key, value in scope["headers"]]
            scope = {**scope, "headers": pairs}
        await self.app(scope, body.receive, partial(_send_named, home, send))

    async def _url(self, replica: str) -> str | None:
        """The URL of a replica, if it is alive. During an outage of Postgres, no replica counts as lost."""
        assert self.runs.store is not None
        url = None
        try:
            url = await self.runs.store.read(partial(RunTables.replica_url, replica=replica)) or None
        except StoreError as error:
            self._out_at = anyio.current_time()
            if replica not in self._urls:
                log.error("replica_not_found", error=str(error))
        if url is not None:
            self._urls[replica] = url
        elif anyio.current_time() - self._out_at >= LEASE_SECONDS:
            self._urls.pop(replica, None)
        return self._urls.get(replica)

    async def _pass_on(self, replica: str, url: str, scope: Scope, body: "_Body", send: Send) -> bool:
        """Let another replica answer. Returns False if it cannot be reached; then nothing was done.

        If the client disconnects, so does this portal. If the replica stops, the client gets an error after its lease.
        """
        headers = [
            (name, value) for name, value in scope["headers"] if name.decode("latin-1") not in _OF_THE_REQUEST
        ]
        client = (scope.get("client") or ("",))[0].encode()
        query = scope["query_string"].decode("latin-1")
        self.client.cookies.clear()  # those of one client are not for another
        request = self.client.build_request(
            scope["method"],
            f"{url}{scope['path']}" + (f"?{query}" if query else ""),
            headers=[
                *headers,
                (_PASSED_ON.encode(), replica.encode("latin-1")),
                (_FORWARDED.encode(), client),
            ],
            content=body.content,
        )
        response: httpx2.Response | None = None
        is_sent, is_answered = True, False
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(until_gone, body.rest, tasks.cancel_scope.cancel)
            try:
                with anyio.CancelScope() as alive:
                    tasks.start_soon(self._until_lost, replica, alive.cancel)
                    response = await self.client.send(request, stream=True)
                    if response.status_code == _WRONG_REPLICA:
                        is_sent = False
                        log.error("replica_not_reached", reason="another one answers at its address", url=url)
                    else:
                        await _send_response(response, send)
                        is_answered = True
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                is_sent = False
                log.warning("replica_not_reached", reason=type(error).__name__)
            except httpx2.HTTPError:
                pass
            finally:  # also when this portal ends
                if response is not None:
                    with anyio.CancelScope(shield=True):
                        await response.aclose()
                        if is_sent and not is_answered:
                            await send({"type": "http.response.body", "body": _lost(response, body)})
            if response is None and is_sent:
                await PlainTextResponse(f"{_LOST}\n", 502)(scope, body.rest, send)
            tasks.cancel_scope.cancel()
        return is_sent

    async def _until_lost(self, replica: str, cancel: Callable[[], None]) -> None:
        is_alive = True
        while is_alive:
            await anyio.sleep(_LOOK_SECONDS)
            is_alive = await self._url(replica) is not None
        cancel()


@dataclass
class _Body:
    """The body of a request, which can be read again."""

    rest: Receive
    content: bytes = b""
    is_whole: bool = False
    _is_given: bool = False

    @classmethod
    async def read(cls, receive: Receive) -> "_Body":
        """Read a body, up to MAX_REQUEST_BYTES."""
        content = bytearray()
        is_whole = False
        while not is_whole and len(content) <= MAX_REQUEST_BYTES:
            message = await receive()
            if message["type"] != "http.request":
                break
            content += message.get("body", b"")
            is_whole = not message.get("more_body", False)
        return cls(receive, bytes(content), is_whole)

    @property
    def replica(self) -> str:
        """The replica that owns the session or waiting request named in the body; "" if none is."""
        found = _NAMED.search(self.content) if self.is_whole else None
        return found[1].decode() if found else ""

    async def receive(self) -> Message:
        if self._is_given or not (self.content or self.is_whole):
            return await self.rest()
        self._is_given = True
        return {"type": "http.request", "body": self.content, "more_body": not self.is_whole}


async def _send_response(response: httpx2.Response, send: Send) -> None:
    headers = [pair for pair in response.headers.raw if pair[0].decode("latin-1").lower() not in _OF_ONE_HOP]
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    async for chunk in response.aiter_raw():
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def _lost(response: httpx2.Response, body: _Body) -> bytes:
    """The end of an answer that does not come: an error, because clients before 2026-07-28 wait on without one."""
    if not body.content or not response.headers.get("content-type", "").startswith("text/event-stream"):
        return b""
    error = ErrorData(code=INTERNAL_ERROR, message=_LOST)
    told = JSONRPCError(jsonrpc="2.0", id=json.loads(body.content)["id"], error=error)
    return f"\n\nevent: message\ndata: {told.model_dump_json(exclude_unset=True)}\n\n".encode()


async def _send_named(home: str, send: Send, message: Message) -> None:
    """Put this replica before the id of an MCP session that the SDK began or uses."""
    if message["type"] == "http.response.start":
        headers = MutableHeaders(scope=message)
        if _SESSION in headers:
            headers[_SESSION] = home + headers[_SESSION]
    await send(message)
