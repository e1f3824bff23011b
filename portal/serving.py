"""Serves a portal over stdio or HTTP until the client leaves or the process is told to end."""

import ipaddress
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import anyio
import uvicorn
from mcp.server.stdio import stdio_server

from manifests.manifest import Manifest
from portal.client_pipes import client_pipes
from portal.composition import open_portal
from portal.errors import BindError
from portal.http_app import build_http_app
from portal.http_gate import gate_rules
from portal.server import build_server

SHUTDOWN_SECONDS = 3
"""How long open HTTP responses may take to end after Ctrl-C."""


async def serve_stdio(
    manifest: Manifest, progress: Callable[[str], None], profile: str | None = None
) -> None:
    """Serve one client on stdin and stdout; returns when it closes them."""
    with client_pipes() as (lines, answers):
        async with (
            open_portal(manifest, progress, profile=profile) as portal,
            stdio_server(stdin=lines, stdout=answers) as (reader, writer),
        ):
            server = build_server(portal)
            await server.run(reader, writer, server.create_initialization_options())


async def serve_http(
    manifest: Manifest, host: str, port: int, progress: Callable[[str], None], profile: str | None = None
) -> None:
    """Serve any number of clients at http://host:port/mcp until cancelled.

    `profile` binds those whose token binds them to none.

    Raises:
        OpenBindError: `host` is not loopback and the manifest sets no `server.token`.
        BindError: The port is taken, or the host is not ours.
    """
    settings = manifest.portal.server
    rules = gate_rules(
        host,
        token=settings.token.get_secret_value() if settings.token else None,
        allowed_hosts=settings.allowed_hosts,
        allowed_origins=settings.allowed_origins,
        tokens=settings.tokens,
    )
    listener = _listener(host, port)
    bound = {token.profile for token in settings.tokens if token.profile is not None}
    # Responses end before the upstreams and workers that they need: those are cancelled by nobody but this.
    async with (
        _told_to_end() as is_over,
        open_portal(manifest, progress, profile=profile, bound=bound) as portal,
    ):
        app = build_http_app(portal, build_server(portal), rules)
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
        shown = f"[{host}]" if ":" in host else host
        progress(f"listening on http://{shown}:{listener.getsockname()[1]}/mcp")
        await _HttpServer(config).serve_until(is_over, listener)


@asynccontextmanager
async def _told_to_end() -> AsyncIterator[anyio.Event]:
    """Set when this is cancelled from outside; what is within goes on."""
    is_over = anyio.Event()

    async def wait() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            is_over.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        with anyio.CancelScope(shield=True):
            yield is_over
        tasks.cancel_scope.cancel()


class _HttpServer(uvicorn.Server):
    """uvicorn, ended by an event: its own handling of SIGTERM ends the process before upstreams are closed."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def serve_until(self, is_over: anyio.Event, listener: socket.socket) -> None:
        """Responses that are under way then get SHUTDOWN_SECONDS to end."""

        async def end() -> None:
            await is_over.wait()
            self.should_exit = True

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(end)
            await self.serve(sockets=[listener])
            tasks.cancel_scope.cancel()


def _listener(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
    except ValueError:
        family = socket.AF_INET
    # With the protocol named, or asyncio leaves Nagle's algorithm on: a second part of an answer waits 40 ms then.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise BindError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    listener.listen(128)
    return listener
