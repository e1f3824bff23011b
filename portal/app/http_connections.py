"""The HTTP server: limits the number of connections, and how long they wait for their clients.

Rule 1: a client has a deadline for everything that it has to send: the head of a request, and its body.
Rule 2: a new connection replaces one that waits for its client. So a client that sends its request at once is answered,
even while strangers hold all other connections.
"""

import asyncio
import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from ipaddress import ip_address, ip_network
from typing import Any, Final

import anyio
import h11
import structlog
import uvicorn
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from manifests.portal_manifest import ServerSettings
from portal.base.errors import PortalError

KEEP_ALIVE_SECONDS: Final = 75
"""A connection without requests is closed after this time. Load balancers close theirs after 60 s. The portal must not
be first: it might close while a request is on its way."""

BODY_FACTOR: Final = 6
"""A body may take `head_seconds` times this."""

FREE_PIECES, PIECE_BYTES = 1024, 256
"""The chunks or TCP segments that a body may have, plus one per PIECE_BYTES of it. Each costs 5 µs."""

HEAD_BYTES, BODY_BYTES = 16 << 10, 256 << 10
"""Bytes that are read at once. h11 refuses an unfinished head of more than that, so one has at most twice as much."""

TOLD_SECONDS: Final = 60.0

CUT_OFF_SECONDS: Final = 4.0
"""Time for the errors that tell clients that their requests are cut off. They may take a second, if there is load."""

CUT_OFF: Final = "The portal ends, and cancelled this request. It may have had an effect."

_LISTENING: Final = b"mcp-method", b"subscriptions/listen"
"""The header of the POST by which clients of MCP 2026-07-28 listen. Earlier ones use GET."""

log = structlog.get_logger()


def listening(host: str, port: int) -> socket.socket:
    """Listen at this address. Raises PortalError: the port is taken, or the host is not of this machine."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio disables Nagle's algorithm only if the protocol is named. With it, a second part of an answer waits 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise PortalError(
            f"cannot listen on {host}:{port}: {error.strerror or error}. Choose another"
        ) from error
    listener.listen(128)
    return listener


def http_server(
    app: ASGIApp, settings: ServerSettings, cut_off: Callable[[], None] = lambda: None
) -> "_HttpServer":
    """uvicorn with the limits of `settings`, for the running loop. `cut_off` answers requests that have to end now."""
    connections = Connections(app, settings)
    asyncio.get_running_loop().set_exception_handler(connections.on_loop_error)
    return _HttpServer(
        uvicorn.Config(
            connections,
            http=partial(HttpConnection, connections),  # type: ignore[arg-type]  # it is only called
            ws="none",
            forwarded_allow_ips=[*settings.trusted_proxies],
            log_config=None,
            log_level="error",  # strangers could cause any number of its warnings
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
        ),
        settings.drain_seconds,
        cut_off,
    )


class Connections:
    """Limits connections, in total and per address. As an ASGI application, it limits concurrent requests the same way.

    A direct client cannot have more requests than connections. Behind a trusted proxy, the forwarded addresses count.
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self.app, self.settings = app, settings
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        # The other half is for upstreams, workers and the store.
        self._total = settings.connections if files < 0 else min(settings.connections, files // 2)
        self._proxies = [ip_network(each) for each in settings.trusted_proxies]
        self.open: dict[HttpConnection, str] = {}
        self._requests: list[str] = []
        self._quiet_until: dict[str, float] = {}

    def admit(self, new: "HttpConnection", host: str) -> None:
        """Count a connection. If there are too many, the oldest that waits for its client ends, or else the new one."""
        crowd = [each for each, of in self.open.items() if of == host]
        # uvicorn does not know the address of a client that has already left.
        is_proxy = host != "" and any(ip_address(host) in each for each in self._proxies)
        if is_proxy or len(crowd) < self.settings.connections_per_address:
            crowd = [*self.open] if len(self.open) >= self._total else []
        self.open[new] = host
        if crowd:
            self._log_rarely("connections_full", address=host, connections=len(crowd))
            oldest = next((each for each in crowd if each.waits_for_client), new)
            del self.open[oldest]
            oldest.transport.abort()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if len(scope.get("path", "")) > 4_000:  # Starlette cannot read a number of over 4,300 digits
            await PlainTextResponse("the path is too long\n", 414)(scope, receive, send)
            return
        host = (scope.get("client") or ("",))[0]
        if self._requests.count(host) >= self.settings.connections_per_address:
            self._log_rarely("requests_full", address=host)
            await PlainTextResponse("too many requests at once\n", 429)(scope, receive, send)
            return
        self._requests.append(host)
        try:
            await self.app(scope, receive, send)
        finally:
            self._requests.remove(host)

    def on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log that a connection is not accepted. asyncio retries each second, and would log thousands of tracebacks."""
        if any(each in context["message"] for each in ("socket.accept() out of", "_start_serving")):
            self._log_rarely("connection_not_accepted", error=str(context.get("exception")))
        else:
            loop.default_exception_handler(context)

    def _log_rarely(self, event: str, **fields: object) -> None:
        if (now := time.monotonic()) >= self._quiet_until.get(event, now):
            self._quiet_until[event] = now + TOLD_SECONDS
            log.warning(event, **fields)


class HttpConnection(H11Protocol):
    """uvicorn's connection, with deadlines: uvicorn itself only ends connections that are idle between two requests.

    Based on h11, because httptools loses the bodies of clients that offer `Upgrade: h2c`, like the JDK's.
    """

    def __init__(self, connections: Connections, **of_uvicorn: Any) -> None:
        super().__init__(**of_uvicorn)
        self.conn: _Requests = _Requests(h11.SERVER)
        self._handler, self.app = self.app, self._respond
        self._connections = connections
        self._is_over = False
        """Whether the rest of a body is dropped, so that a client that sends all of it gets the answer, not a reset."""
        self._seconds: float | None = None
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def waits_for_client(self) -> bool:
        """Whether it is the client's turn, not the portal's."""
        is_idle = self.timeout_keep_alive_task is not None
        return is_idle or self._deadline is not None or self.flow.write_paused or self.transport.is_closing()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        host, port = self.client or ("", 0)
        self.client = host.removeprefix("::ffff:"), port
        self._connections.admit(self, self.client[0])
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._connections.open.pop(self, None)
        self._end_within(None)

    def shutdown(self) -> None:
        """Let a response finish, but close a stream to listen to, which never ends by itself; its client reconnects."""
        super().shutdown()
        if self.conn.has_stream and (self.scope["method"] == "GET" or _LISTENING in self.scope["headers"]):
            self.transport.close()

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        cycle = self.cycle
        try:
            await self._handler(scope, receive, send)
        except asyncio.CancelledError:  # the server ends
            if cycle.response_started:
                cycle.disconnected = True  # else uvicorn logs that the response is not complete
                self.transport.close()
            else:
                await PlainTextResponse(f"{CUT_OFF}\n", 503)(scope, receive, send)
        except RuntimeError as error:  # the SDK answers a notification again if its session has ended since
            if "response already completed" not in str(error):
                raise

    def data_received(self, data: bytes) -> None:
        if not self._is_over:
            super().data_received(data)
            self._watch()

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state is h11.IDLE:
            super().send_400_response(msg)
        else:  # once its head is there, the application answers
            self.transport.abort()

    def on_response_complete(self) -> None:
        has_body = self.conn.their_state is h11.SEND_BODY
        super().on_response_complete()
        if self.transport.is_closing():
            return
        if has_body:
            self.transport.write_eof()
            self._is_over = True
        if has_body or (self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]):
            self._unset_keepalive_if_required()  # it is not idle
        self._watch()

    def _watch(self) -> None:
        """Set the deadline for what the client has to send now. Receiving a part of it does not move the deadline."""
        their, head_seconds = self.conn.their_state, self._connections.settings.head_seconds
        # `max_size` is an attribute of asyncio's own transports.
        self.transport.max_size = BODY_BYTES if their is h11.SEND_BODY else HEAD_BYTES  # type: ignore[attr-defined]
        seconds = head_seconds * BODY_FACTOR if their is h11.SEND_BODY else None
        if self._is_over or (their is h11.IDLE and self.timeout_keep_alive_task is None):
            seconds = head_seconds
        if seconds != self._seconds:
            self._end_within(seconds)

    def _end_within(self, seconds: float | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._seconds = seconds
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)


class _Requests(h11.Connection):
    """h11 that refuses a body in tiny pieces, and knows whether the answer is a stream of events."""

    has_stream = False

    def send(self, event: Any) -> Any:
        if isinstance(event, h11.Response):
            self.has_stream = dict(event.headers).get(b"content-type", b"").startswith(b"text/event-stream")
        return super().send(event)

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._pieces: float = FREE_PIECES
            self.has_stream = False
        elif isinstance(event, h11.Data):
            self._pieces += len(event.data) / PIECE_BYTES - 1
            if self._pieces < 0:
                raise h11.RemoteProtocolError("the body is in too many pieces")
        return event


class _HttpServer(uvicorn.Server):
    """uvicorn that stops on cancellation. Its own handling of SIGTERM would end the process before upstreams close."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def __init__(self, config: uvicorn.Config, drain_seconds: float, cut_off: Callable[[], None]) -> None:
        super().__init__(config)
        self._drain_seconds, self._cut_off = drain_seconds, cut_off
        self.serving = anyio.CancelScope()
        """Cancelled when it begins to stop. From then on it accepts nothing."""

    async def end_when_cancelled(self) -> None:
        """Wait for cancellation, then stop. Open responses get `server.drain_seconds` to end."""
        try:
            await anyio.sleep_forever()
        finally:
            self.should_exit = True
            self.serving.cancel()

    async def _wait_tasks_to_complete(self) -> None:
        with anyio.move_on_after(self._drain_seconds):  # uvicorn's own deadline logs a line that is no event
            await super()._wait_tasks_to_complete()
            return
        log.warning("requests_cancelled", requests=len(self.server_state.tasks))
        self._cut_off()
        with anyio.move_on_after(CUT_OFF_SECONDS):
            await super()._wait_tasks_to_complete()
        for task in self.server_state.tasks:
            task.cancel()
