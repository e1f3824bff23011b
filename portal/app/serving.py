"""Serves a portal over stdio or HTTP until the client disconnects or the process is stopped."""

import math
import os
import select
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.server.context import CallNext, HandlerResult, ServerMiddleware, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, PROTOCOL_VERSION_META_KEY, JSONRPCRequest, jsonrpc_message_adapter
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from manifests.json_value import Json
from manifests.manifest import Manifest
from portal.app import http_access
from portal.app.accepted import running
from portal.app.composition import OpenPortal, open_portal
from portal.app.http_connections import CUT_OFF, http_server, listening
from portal.app.live import SeenClient, live, status_of
from portal.app.reload import ManifestKeeper, warn_of_writable_files
from portal.app.replicas import MAX_REQUEST_BYTES, ReplicaMiddleware
from portal.base.caller import Bearer
from portal.base.errors import SignInError
from portal.base.tokens import compact
from portal.console.needs import upstream_states
from portal.runs.leases import Address
from portal.server.http_runs import run_routes
from portal.server.portal import Portal
from portal.server.server import build_server
from portal.server.sign_in_pages import account_routes
from upstreams.health import WELL

if TYPE_CHECKING:
    from portal.app.console import PortalConsole


def build_http_app(
    portal: Portal,
    server: Server[Any],
    access: Callable[[], http_access.HttpAccess],
    more: Sequence[Route] = (),
) -> Starlette:
    """The ASGI application. `access` gives the rules that are in effect at a request, `more` the routes of the console.

    The SDK's Host check is off because HttpAccessMiddleware covers every route.

    Source: MCP 2026-07-28, basic/transports#streamable-http.
    """

    settings = portal.manifest.portal.server

    async def healthz(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(request: Request) -> Response:
        try:
            await access().caller(request.headers)
            shows_names = True
        except SignInError:
            shows_names = False
        body = compact(_readiness(portal, shows_names))
        return Response(f"{body}\n", media_type="application/json")

    async def whose(token: str) -> Bearer | None:
        return await access().bearer(token)

    async def metrics(request: Request) -> Response:
        refused = access().metrics_refusal(request.headers)
        if refused is not None:
            return refused
        assert portal.telemetry.page is not None
        text, media_type = await anyio.to_thread.run_sync(portal.telemetry.page)
        return Response(text, media_type=media_type)

    app = server.streamable_http_app(
        streamable_http_path="/mcp",
        max_request_body_size=MAX_REQUEST_BYTES,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        custom_starlette_routes=[
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            *run_routes(portal.runs, lambda profile: portal.views[profile].execution.profile),
            *([Route(http_access.METRICS_PATH, metrics)] if portal.telemetry.page else []),
            *http_access.sign_in_routes(settings.auth),
            *account_routes(portal.accounts, whose),
            *more,
        ],
    )
    guard = Middleware(
        http_access.HttpAccessMiddleware, access=access, approvers=lambda: portal.runs.approvers
    )
    app.user_middleware += [Middleware(http_access.BrowserAccessMiddleware, access=access), guard]
    if portal.manifest.portal.runs.is_shared:
        app.user_middleware.append(Middleware(ReplicaMiddleware, runs=portal.runs))
    return app


class LazyConsole:
    """Makes the console of a portal with the first page: nothing of it is imported or allocated before."""

    def __init__(self, *arguments: Any) -> None:
        self._arguments = arguments
        self._made: PortalConsole | None = None
        paths = ("/ui", "/ui/{path:path}")
        self.routes = [Route(path, self._on_listener, methods=["GET", "POST"]) for path in paths]

    async def on_socket(self) -> ASGIApp:
        return (await self._console()).on_socket

    async def _on_listener(self, request: Request) -> ASGIApp:
        return (await self._console()).on_listener

    async def _console(self) -> "PortalConsole":
        def make() -> "PortalConsole":
            from portal.app.console import PortalConsole

            return PortalConsole(*self._arguments)

        if self._made is None:
            made = await anyio.to_thread.run_sync(make)  # its imports take long
            self._made = self._made or made  # another page may have been asked for in between
        return self._made


def _readiness(portal: Portal, shows_names: bool) -> dict[str, Json]:
    """`{ready, upstreams: {status: count}, not_ready?: {name: detail}}`. The portal is ready even if one is down."""
    states = upstream_states(portal)
    answer: dict[str, Json] = {"ready": True, "upstreams": Counter(each["status"] for each in states)}
    bad = [each for each in states if each["status"] not in WELL]
    if bad and shows_names:
        answer["not_ready"] = {
            each["name"]: ": ".join(filter(None, (each["status"], each["detail"]))) for each in bad
        }
    return answer


class OpenRequests(ServerMiddleware[Any]):
    """The requests of MCP under way. A client before 2026-07-28 waits on if the stream of an answer only ends."""

    def __init__(self) -> None:
        self._scopes: set[anyio.CancelScope] = set()

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                return await call_next(ctx)
            finally:
                self._scopes.remove(scope)
        raise MCPError(INTERNAL_ERROR, CUT_OFF)

    def cut_off(self) -> None:
        """Cancel them, and answer each with an error."""
        for scope in self._scopes:
            scope.cancel()


class ClientMessages(ObjectReceiveStream[SessionMessage | Exception]):
    """The client's messages, one per line of stdin, as the SDK's read stream. Cancellable at any time.

    It reads in the task that handles them: a thread or another task makes trivial scripts slower.

    A client may ask `server/discover`, not wait for the answer, open with the older `initialize`, and then go on in
    either revision. The SDK takes the first for good, and refuses the other. So the messages end before a request that
    opens anew: `is_reopened` is true, and whoever reads them again gets that request first. This happens twice at most.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._kept = bytearray()
        self._last_request = ""
        self._reopened = 0
        self.is_reopened = False

    async def receive(self) -> SessionMessage | Exception:
        self.is_reopened = False
        if not (line := await self._line()):
            raise anyio.EndOfStream
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError as error:  # the SDK answers it
            return error
        if isinstance(message, JSONRPCRequest) and self._opens_anew(message):
            self._kept[:0] = line.encode()
            self.is_reopened = True
            raise anyio.EndOfStream
        return SessionMessage(message)

    def _opens_anew(self, request: JSONRPCRequest) -> bool:
        before, self._last_request = self._last_request, request.method
        if self._reopened == 0:
            is_anew = (before, request.method) == ("server/discover", "initialize")
        else:
            meta = (request.params or {}).get("_meta")
            is_newer = isinstance(meta, dict) and PROTOCOL_VERSION_META_KEY in meta
            is_anew = self._reopened == 1 and before == "initialize" and is_newer
        self._reopened += is_anew
        return is_anew

    async def _line(self) -> str:
        """The next line; "" after the last."""
        searched = 0
        while (end := self._kept.find(b"\n", searched)) < 0:
            searched = len(self._kept)
            # epoll rejects files and /dev/null; neither of them blocks.
            with suppress(PermissionError):
                await anyio.wait_readable(self._descriptor)
            if not (data := os.read(self._descriptor, 1 << 16)):
                end = searched
                break
            self._kept += data
        line = bytes(self._kept[: end + 1])
        del self._kept[: end + 1]
        return line.decode("utf-8", "replace")

    async def aclose(self) -> None:
        """Do nothing: the process owns stdin."""


class ClientAnswers(ObjectSendStream[SessionMessage]):
    """Writes the portal's messages to stdout, one per line, as the SDK's write stream."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._room = select.poll()
        self._room.register(descriptor, select.POLLOUT)
        self._queue, self._waiting = anyio.create_memory_object_stream[bytes](math.inf)
        self._unwritten = 0

    async def send(self, item: SessionMessage) -> None:
        """Write a message at once if that does not block, else queue it: no line is cut if its sender is cancelled."""
        line = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        # A pipe that is ready for writing accepts so many bytes without blocking.
        is_short = not self._unwritten and len(line) <= select.PIPE_BUF
        if is_short and self._room.poll(0) == [(self._descriptor, select.POLLOUT)]:
            line = line[os.write(self._descriptor, line) :]
        if line:
            self._unwritten += 1
            self._queue.send_nowait(line)

    async def write(self) -> None:
        """Write what is queued, until the stream is closed. Can be cancelled while the client does not read."""
        async for line in self._waiting:
            while line:
                write = partial(os.write, self._descriptor, line)
                line = line[await anyio.to_thread.run_sync(write, abandon_on_cancel=True) :]
            self._unwritten -= 1

    async def aclose(self) -> None:
        self._queue.close()


async def serve_stdio(
    manifest: Manifest, progress: Callable[[str], None], profile: str | None = None
) -> None:
    """Serve one client on stdin and stdout until it closes them. Anything else printed to stdout goes to stderr."""
    sys.stdout.flush()
    descriptor = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with running(manifest, "", 0) as (own, announce):
        async with (
            open_portal(manifest, progress, profile=profile) as portal,
            _reloading(portal, portal.reload.apply, announce, anyio.CancelScope()),
        ):
            server, client = build_server(portal), SeenClient(portal.runs.mask)
            server.middleware.append(client)

            def about() -> str:
                return " · ".join(filter(None, ("stdio", client.name, f"pid {own.pid}")))

            console, messages = LazyConsole(portal, own.name, about, None), ClientMessages(sys.stdin.fileno())
            async with live(own, partial(status_of, own, portal, client), console.on_socket):
                await _serve_messages(server, messages, descriptor)
                while messages.is_reopened:
                    await _serve_messages(server, messages, descriptor)


async def _serve_messages(server: Server[Any], messages: ClientMessages, descriptor: int) -> None:
    answers = ClientAnswers(descriptor)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answers.write)
        await server.run(messages, answers, server.create_initialization_options())


@asynccontextmanager
async def _reloading(
    portal: OpenPortal,
    apply: Callable[[Manifest], Awaitable[object]],
    announce: Callable[[Mapping[str, str]], None],
    until: anyio.CancelScope,
) -> AsyncIterator[None]:
    """Apply changes of the manifest's files until `until` is cancelled, and warn if scripts could make some."""
    async with anyio.create_task_group() as tasks:
        if portal.manifest.path is not None:
            keeper = ManifestKeeper(portal.manifest, apply, announce, portal.views.waiting)
            await tasks.start(keeper.keep, until)
            tasks.start_soon(warn_of_writable_files, portal.authority, portal.fleet)
        yield
        tasks.cancel_scope.cancel()


async def serve_http(
    manifest: Manifest, host: str, port: int, progress: Callable[[str], None], profile: str | None = None
) -> None:
    """Serve any number of clients at http://host:port/mcp until cancelled.

    `profile` applies to clients whose token sets none.

    Raises:
        OpenBindError: `host` is not loopback and the manifest sets no `server.token`.
        PortalError: The port is taken, or the host is not an address of this machine.
    """
    settings = manifest.portal.server
    access = http_access.HttpAccess(host, manifest.portal, manifest.caller_claims)
    listener = listening(host, port)
    port = listener.getsockname()[1]
    address = Address(host, port)
    async with anyio.create_task_group() as tasks:
        # Shielded, because responses must end before the upstreams and workers that they need.
        with anyio.CancelScope(shield=True), running(manifest, host, port) as (own, announce):
            async with open_portal(
                manifest, progress, profile=profile, bound=_bound_profiles, address=address
            ) as portal:

                async def apply(wanted: Manifest) -> None:
                    nonlocal access
                    applied = await portal.reload.apply(wanted)
                    access = http_access.HttpAccess(host, applied.portal, applied.caller_claims, access)

                console = LazyConsole(portal, own.name, lambda: own.transport, lambda: access)
                mcp_server, requests = build_server(portal), OpenRequests()
                mcp_server.middleware.append(requests)
                app = build_http_app(portal, mcp_server, lambda: access, console.routes)
                server = http_server(app, settings, requests.cut_off)
                tasks.start_soon(server.end_when_cancelled)
                async with (
                    live(own, partial(status_of, own, portal), console.on_socket),
                    _reloading(portal, apply, announce, server.serving),
                ):
                    progress(f"listening on {address.url()}/mcp")
                    await server.serve(sockets=[listener])
        tasks.cancel_scope.cancel()


def _bound_profiles(manifest: Manifest) -> set[str]:
    """The profiles that a token or a sign-in may set."""
    settings, tenants = manifest.portal.server, manifest.portal.tenants
    bound = {token.profile for token in settings.tokens if token.profile is not None}
    return bound | {each.profile for each in tenants.entries.values()} if tenants else bound
