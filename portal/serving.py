"""Serves a portal over stdio or HTTP until the client disconnects or the process is stopped."""

import hashlib
import hmac
import io
import ipaddress
import os
import select
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import anyio
import anyio.to_thread
import uvicorn
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from manifests.json_value import Json
from manifests.manifest import Manifest
from manifests.portal_manifest import ServerSettings
from portal.budget.tokens import compact
from portal.composition import Portal, open_portal
from portal.errors import BindError, OpenBindError
from portal.runs.http import run_routes
from portal.server import build_server
from portal.sessions import BEARER, Bearer


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
"""Served without a token, because container health checks have none. Names are shown only with a token. So is
`/hooks/`: the secret is in the path.
"""


class HttpAccess:
    """Decides who may call a portal that listens on `host`. Hosts and origins match with and without a port.

    Raises OpenBindError: other machines can reach `host`, and no token is set.
    """

    def __init__(self, host: str, settings: ServerSettings) -> None:
        if not (settings.token or settings.tokens) and not is_loopback(host):
            raise OpenBindError(host)
        bracketed = f"[{host}]" if ":" in host else host
        self._hosts = {each.lower() for each in (*LOOPBACK_NAMES, bracketed, *settings.allowed_hosts)}
        local = (f"http://{name}" for name in LOOPBACK_NAMES)
        self._origins = {each.lower() for each in (*local, *settings.allowed_origins)}
        self._bearers: dict[bytes, Bearer | None] = {}
        if settings.token:
            self._bearers[settings.token.get_secret_value().encode()] = None
        for index, each in enumerate(settings.tokens, 1):
            token = each.token.get_secret_value().encode()
            owner = [each.tenant or "", each.profile or "", hashlib.sha256(token).hexdigest()]
            self._bearers[token] = Bearer(f"token {index}", each.profile, each.tenant, "/".join(owner))

    def is_authorised(self, headers: Headers) -> bool:
        """Whether the request has a valid token, or no token is required."""
        return not self._bearers or bool(self._given(headers))

    def bearer(self, headers: Headers) -> Bearer | None:
        """The bearer of the request's token, if it is one of `server.tokens`."""
        return next(iter(self._given(headers)), None)

    def _given(self, headers: Headers) -> Sequence[Bearer | None]:
        """At most one bearer: the owner of the request's token; None stands for `server.token`. Constant time."""
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return ()
        token = given.strip().encode()
        return [bearer for own, bearer in self._bearers.items() if hmac.compare_digest(token, own)]

    def refusal(self, path: str, headers: Headers) -> Response | None:
        """421 for an unknown Host, 403 for an unknown Origin, 401 without a valid token; None if allowed."""
        host, origin = headers.get("host", ""), headers.get("origin")
        if not _matches(host, self._hosts):
            text = f"Host {host[:100]!r} is not allowed. Add it to server.allowed_hosts in portal.yaml.\n"
            return PlainTextResponse(text, 421)
        if origin is not None and not _matches(origin, self._origins):
            text = (
                f"Origin {origin[:100]!r} is not allowed. Add it to server.allowed_origins in portal.yaml.\n"
            )
            return PlainTextResponse(text, 403)
        if path in OPEN_PATHS or path.startswith("/hooks/") or self.is_authorised(headers):
            return None
        text = "A bearer token is required. Send `Authorization: Bearer <server.token>`.\n"
        return PlainTextResponse(text, 401, {"WWW-Authenticate": 'Bearer realm="mcp-code-portal"'})


@dataclass(frozen=True)
class HttpAccessMiddleware:
    """ASGI middleware that applies HttpAccess to each request."""

    app: ASGIApp
    access: HttpAccess

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            if refusal := self.access.refusal(scope["path"], headers):
                await refusal(scope, receive, send)
                return
            if bearer := self.access.bearer(headers):
                # The SDK ties MCP sessions of older clients to "user". It does not need the token itself.
                user = AuthenticatedUser(AccessToken(token="", client_id=bearer.name, scopes=[]))
                scope = {**scope, BEARER: bearer, "user": user}
        if scope["type"] != "websocket":
            await self.app(scope, receive, send)


def _matches(value: str, allowed: Set[str]) -> bool:
    value = value.lower()
    bare, _, port = value.rpartition(":")
    return value in allowed or (port.isdigit() and bare in allowed)


MAX_REQUEST_BYTES = 4 << 20
"""Limit of one request body; a longer one gets 413. A script has at most 1 MiB."""


def build_http_app(portal: Portal, server: Server[Any], access: HttpAccess) -> Starlette:
    """The ASGI application. The SDK's Host check is off because HttpAccessMiddleware covers every route.

    Source: MCP 2026-07-28, basic/transports#streamable-http.
    """

    settings = portal.manifest.portal.server

    async def healthz(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(request: Request) -> Response:
        body = compact(_readiness(portal, access.is_authorised(request.headers)))
        return Response(f"{body}\n", media_type="application/json")

    app = server.streamable_http_app(
        streamable_http_path="/mcp",
        max_request_body_size=MAX_REQUEST_BYTES,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        custom_starlette_routes=[
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            *run_routes(
                portal.runs,
                lambda profile: portal.views[profile].execution,
                may_decide=bool(settings.token or settings.tokens),
            ),
        ],
    )
    app.user_middleware.append(Middleware(HttpAccessMiddleware, access=access))
    return app


def _readiness(portal: Portal, shows_names: bool) -> dict[str, Json]:
    """`{ready, upstreams: {status: count}, not_ready?: {name: detail}}`. The portal is ready even if one is down."""
    counts = Counter(upstream.state.status for upstream in portal.fleet)
    not_ready: dict[str, str] = {}
    for upstream in portal.fleet:
        if not upstream.state.is_well:
            detail = f": {upstream.state.detail}" if upstream.state.detail else ""
            retry_status = f"; {upstream.retry_status}" if upstream.retry_status else ""
            not_ready[upstream.name] = f"{upstream.state.status}{detail}{retry_status}"
    answer: dict[str, Json] = {"ready": True, "upstreams": counts}
    if not_ready and shows_names:
        answer["not_ready"] = not_ready
    return answer


_AT_ONCE_BYTES: Final = select.PIPE_BUF
"""A pipe that is ready for writing accepts this many bytes without blocking."""


class ClientLines(anyio.AsyncFile[str]):
    """Reads the client's lines from stdin. Can be cancelled at any time.

    Waits for the pipe in the event loop, because a thread per line makes trivial scripts slower.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__(io.StringIO())
        self._descriptor = descriptor
        self._kept = bytearray()
        self._searched = 0

    async def readline(self) -> str:
        """The next line with its line feed; "" after the last."""
        while (end := self._kept.find(b"\n", self._searched)) < 0:
            self._searched = len(self._kept)
            data = await self._read()
            if not data:
                end = self._searched
                break
            self._kept += data
        line = bytes(self._kept[: end + 1])
        del self._kept[: end + 1]
        self._searched = 0
        return line.decode("utf-8", "replace")

    async def _read(self) -> bytes:
        # epoll rejects files and /dev/null; neither of them blocks.
        with suppress(PermissionError):
            await anyio.wait_readable(self._descriptor)
        return os.read(self._descriptor, 1 << 16)


class ClientAnswers(anyio.AsyncFile[str]):
    """Writes the portal's answers to stdout. Can be cancelled while the client does not read."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(io.StringIO())
        self._descriptor = descriptor
        self._room = select.poll()
        self._room.register(descriptor, select.POLLOUT)

    async def write(self, text: str) -> None:  # type: ignore[override]  # nobody asks for the number of characters
        """Write the whole text."""
        data = text.encode()
        if len(data) <= _AT_ONCE_BYTES and self._room.poll(0):
            data = data[os.write(self._descriptor, data) :]
        while data:
            written = await anyio.to_thread.run_sync(os.write, self._descriptor, data, abandon_on_cancel=True)
            data = data[written:]

    async def flush(self) -> None:
        """Do nothing: `write` does not buffer."""


SHUTDOWN_SECONDS = 3
"""Time for open HTTP responses to end after Ctrl-C."""


async def serve_stdio(
    manifest: Manifest, progress: Callable[[str], None], profile: str | None = None
) -> None:
    """Serve one client on stdin and stdout until it closes them. Anything else printed to stdout goes to stderr."""
    sys.stdout.flush()
    answers = ClientAnswers(os.dup(sys.stdout.fileno()))
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    async with (
        open_portal(manifest, progress, profile=profile) as portal,
        stdio_server(stdin=ClientLines(sys.stdin.fileno()), stdout=answers) as (reader, writer),
    ):
        server = build_server(portal)
        await server.run(reader, writer, server.create_initialization_options())


async def serve_http(
    manifest: Manifest, host: str, port: int, progress: Callable[[str], None], profile: str | None = None
) -> None:
    """Serve any number of clients at http://host:port/mcp until cancelled.

    `profile` applies to clients whose token sets none.

    Raises:
        OpenBindError: `host` is not loopback and the manifest sets no `server.token`.
        BindError: The port is taken, or the host is not an address of this machine.
    """
    settings = manifest.portal.server
    access = HttpAccess(host, settings)
    listener = _listener(host, port)
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{listener.getsockname()[1]}"
    bound = {token.profile for token in settings.tokens if token.profile is not None}
    async with anyio.create_task_group() as tasks:
        # Shielded: responses end before the upstreams and workers that they need.
        with anyio.CancelScope(shield=True):
            async with open_portal(manifest, progress, profile=profile, bound=bound) as portal:
                if portal.runs.public_url is None and host not in ("0.0.0.0", "::"):
                    portal.runs.public_url = url
                server = _HttpServer(
                    uvicorn.Config(
                        build_http_app(portal, build_server(portal), access),
                        log_config=None,
                        access_log=False,
                        server_header=False,
                        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
                    )
                )
                tasks.start_soon(server.end_when_cancelled)
                progress(f"listening on {url}/mcp")
                await server.serve(sockets=[listener])
        tasks.cancel_scope.cancel()


class _HttpServer(uvicorn.Server):
    """uvicorn that stops on cancellation. Its own SIGTERM handling would end the process before upstreams close."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def end_when_cancelled(self) -> None:
        """Wait for cancellation, then stop. Open responses get SHUTDOWN_SECONDS to end."""
        try:
            await anyio.sleep_forever()
        finally:
            self.should_exit = True


def _listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio disables Nagle's algorithm only if the protocol is named. With it, a second part of an answer waits 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise BindError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    listener.listen(128)
    return listener
