"""The socket of a running portal: answers HTTP to the same user's other processes, also if the portal speaks stdio.

Rule 1: only processes of this user are answered, and none that a portal started, nor what these started in turn: a
script must not decide by its upstreams what it may do. SECURITY.md says what this cannot stop.
Rule 2: nothing is imported or allocated for it before the first connection.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import partial
from typing import Any

import structlog
import uvicorn
from mcp.server.context import CallNext, HandlerResult, ServerMiddleware, ServerRequestContext
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from manifests.json_value import Json
from manifests.own_files import PRIVATE
from portal.app.http_connections import KEEP_ALIVE_SECONDS
from portal.app.peer import is_descendant, peer_of
from portal.app.running import RunningPortal, address, running_portals
from portal.base.plain_text import one_line
from portal.base.tokens import compact
from portal.console.needs import Need, approvals, of_portal, upstream_states
from portal.records.store.records import StoreError
from portal.records.store.run_tables import RunTables
from portal.server.callers import client_of
from portal.server.portal import Portal
from upstreams.redaction import Redaction

log = structlog.get_logger()


class SeenClient(ServerMiddleware[Any]):
    """Remembers the client of a connection, as it names itself: `Claude Desktop 1.2`."""

    def __init__(self, mask: Redaction) -> None:
        self.name, self._mask = "", mask

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        try:
            return await call_next(ctx)
        finally:
            self.name = self.name or client_of(ctx, self._mask)  # after `initialize`, which sets it


async def status_of(own: RunningPortal, portal: Portal, client: SeenClient | None = None) -> Json:
    """`{pid, manifest, transport, client, needs_you, upstreams, last_day}`, as in docs/console.md."""
    needs, day, runs = of_portal(portal), None, portal.runs

    def told(tables: RunTables) -> tuple[list[Need], Json]:
        day = asdict(tables.day(None, tables.now()))
        del day["half_hours"]  # they are for a plot
        return approvals(tables, tables.listed(is_asking=True)), None if runs.settings.trail == "off" else day

    if runs.store is not None:
        try:
            waiting, day = await runs.store.read(told)
            needs = [*waiting, *needs]
        except StoreError as error:
            needs.append(Need("down", one_line(str(error), 300)))
    return {
        "pid": own.pid,
        "manifest": own.manifest,
        "transport": own.transport,
        "client": client.name if client else "",
        "needs_you": [asdict(need) for need in needs],
        "upstreams": upstream_states(portal),
        "last_day": day,
    }


@asynccontextmanager
async def live(
    own: RunningPortal,
    status: Callable[[], Awaitable[Json]],
    ui_of: Callable[[], Awaitable[ASGIApp]],
) -> AsyncIterator[None]:
    """Serve the portal's socket until the context is left: `/status` as JSON, and at `/ui` the pages of `ui_of`.

    Without a socket, as in a state folder that cannot be written, the portal runs all the same, which is logged.
    """

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        found: ASGIApp = PlainTextResponse("not found\n", 404)
        if scope["path"] == "/status":
            found = Response(compact(await status()), media_type="application/json")
        elif scope["path"].startswith("/ui"):
            found = await ui_of()
        await found(scope, receive, send)

    quiet: dict[str, Any] = {"log_config": None, "log_level": "error", "access_log": False}
    plain: dict[str, Any] = {"lifespan": "off", "ws": "none", "proxy_headers": False}
    config = uvicorn.Config(app, timeout_keep_alive=KEEP_ALIVE_SECONDS, **plain, **quiet)
    state = _State(own.pid)
    peer = partial(_Peer, config, state, {})
    try:
        own.socket.parent.chmod(0o700)
        with address(own.socket) as path:
            loop = asyncio.get_running_loop()
            # Python 3.13 would remove it too, but by this path, which leads nowhere later, and complain on stderr.
            kept: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
            server = await loop.create_unix_server(peer, path, start_serving=False, **kept)
        own.socket.chmod(PRIVATE)
        await server.start_serving()  # no one could connect before
    except OSError as error:
        log.warning("portal_has_no_socket", reason=error.strerror or str(error))
        yield
        return
    try:
        yield
    finally:
        own.socket.unlink(missing_ok=True)
        server.close()
        for connection in [*state.connections]:  # so their applications end, also those of streams
            connection.transport.abort()


class _State(ServerState):
    def __init__(self, portal: int) -> None:
        super().__init__()
        self.portal = portal
        self.has_refused = False


class _Peer(H11Protocol):
    """One connection, which is closed unread if it comes from a stranger."""

    server_state: _State

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        is_welcome = False
        try:
            is_welcome = self._is_welcome(*peer_of(transport.get_extra_info("socket")))
        finally:  # also if the kernel cannot say who it was, because the peer has closed it again
            if not is_welcome:
                transport.abort()

    def _is_welcome(self, uid: int, pid: int) -> bool:
        # Its own pid in any case, because an upstream may be able to delete files of the state folder.
        portals = [self.server_state.portal, *(portal.pid for portal in running_portals())]
        if uid == os.geteuid() and not is_descendant(pid, portals):
            return True
        if not self.server_state.has_refused:  # an upstream could try without end
            log.warning("connection_refused", uid=uid, pid=pid, hint="only the first time is logged")
        self.server_state.has_refused = True
        return False
