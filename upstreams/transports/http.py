"""The HTTP transports: Streamable HTTP, and the older HTTP+SSE.

The SDK's transports are not used: there a failed request ends the connection and cancels callers, a status like 401
becomes "Server returned an error response", and a JSON answer has no limit. Here each request is posted in its caller's
task, a failure affects only that call, and `MessageReader` caps and parses what arrives.

Source: MCP 2026-07-28, basic/transports/streamable-http; 2025-06-18, basic/transports; 2024-11-05, basic/transports.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import urljoin

import anyio
import httpx2
from anyio.abc import AsyncResource, TaskGroup, TaskStatus
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER, NAME_BEARING_METHODS
from mcp.shared.message import ClientMessageMetadata, ServerMessageMetadata, SessionMessage
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from manifests.portal_manifest import HttpUpstream
from upstreams.errors import (
    UpstreamAnswerError,
    UpstreamCutOffError,
    UpstreamError,
    UpstreamLostError,
    UpstreamUnavailableError,
    describe,
)
from upstreams.health import Diagnostics
from upstreams.http_client import Guard, Route, guarded_client, origin
from upstreams.transports import http_errors
from upstreams.transports.http_credentials import SUBJECT, HttpCredentials
from upstreams.transports.messages import InboundLimits, MessageReader, encoded, failure_of, is_answer_to
from upstreams.transports.wire import Wire

_WRITE_SECONDS: Final = 60.0
_KEPT_CONNECTIONS: Final = 32
_KEPT_SECONDS: Final = 1.0
"""Less than servers keep an idle one (gunicorn 2 s, uvicorn and Node 5): a call that meets its end is `unknown`."""

_CLOSE_SECONDS: Final = 1.0
"""Time limit to end a session, so that a hanging server does not delay closing the connection."""

NOTICE_SECONDS: Final = 2.0
_NOTICES_AT_ONCE: Final = 16
_MAX_NOTICES: Final = 1_000
"""Queued notifications and replies; further ones are dropped. Notifications after the start have two seconds each."""

_LEAST_RETRY_SECONDS: Final = 1.0
"""A broken stream is resumed no sooner than this, whatever the server's `retry` asks for."""

_LONGEST_RETRY_SECONDS: Final = 30.0
_MOST_RETRY_MS: Final = 60_000
_LONGEST_RESUME_SECONDS: Final = 2.0
"""The longest pause between two attempts to open the stream of unsolicited events, or to resume a call's stream."""

_PASSING: Final = (408, 409, 425, 429)  # 409: the server has not yet noticed that the former stream ended

_LINES_PER_UNIT: Final = 4
"""Lines of an event stream that count as one unsolicited message."""

_BLANK_LINES: Final = (b"\n\n", b"\n\r", b"\r\r")
"""The line breaks at the end of an event; with "\\r\\n", another "\\n" follows."""

_SMALL_CHUNK_BYTES: Final = 64
_FREE_SMALL_CHUNKS: Final = 8
"""Of an event stream: some servers write the lines of an event one by one."""

_UNITS_PER_SMALL_CHUNK: Final = 5
"""Each chunk of a body costs the event loop about 0.1 ms, however short it is."""

_INITIALIZED: Final = "notifications/initialized"
_DIES_OF_DELETE: Final = ("2024-11-05", "2025-03-26")
"""The Python SDK 1.8 and 1.9 speaks these, and the whole server ends when one session is deleted."""

_ERROR_BYTES: Final = 64 * 1024
_EVENTS: Final = "text/event-stream"
_NEVER_SENT: Final = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
    httpx2.LocalProtocolError,
)


@asynccontextmanager
async def open_http_wire(
    spec: HttpUpstream, credentials: HttpCredentials, diagnostics: Diagnostics
) -> AsyncIterator[Wire]:
    """Open a wire over the manifest's transport. Streamable HTTP sends nothing yet.

    Raises UpstreamError: an HTTP+SSE server is not reached within `connect_seconds`.
    """
    kind = HttpWithSse if spec.transport == "sse" else StreamableHttp
    reader = MessageReader(InboundLimits(spec.message_bytes), diagnostics, credentials.mask.in_parsed)
    route = Route.to(spec.url)
    client = guarded_client(
        Guard(proxy=lambda url: route.proxy),  # the same for all its URLs: they have one origin
        httpx2.Limits(max_keepalive_connections=_KEPT_CONNECTIONS, keepalive_expiry=_KEPT_SECONDS),
        # Calls have their own deadlines, and an event stream may be silent for any time.
        httpx2.Timeout(_WRITE_SECONDS, connect=spec.connect_seconds, read=None, pool=None),
        # No compression: a small compressed answer can decompress to any size.
        {"accept-encoding": "identity", **spec.headers},
    )
    async with client, anyio.create_task_group() as tasks:
        transport = kind(spec, client, route, tasks, credentials, reader)
        if isinstance(transport, HttpWithSse):
            await transport.connect(spec.connect_seconds)
        try:
            yield transport.wire
        finally:
            await transport.end_session()
            tasks.cancel_scope.cancel()


@dataclass(eq=False)
class HttpTransport(AsyncResource):
    """The messages of one connection: posts requests, and passes what arrives to its wire."""

    spec: HttpUpstream
    client: httpx2.AsyncClient
    route: Route
    tasks: TaskGroup
    credentials: HttpCredentials
    reader: MessageReader

    def __post_init__(self) -> None:
        self._url = str(self.spec.url)
        self._inbox, received = anyio.create_memory_object_stream[SessionMessage]()
        self.wire = Wire(received, self, self.reader.limits, closes_requests=self.spec.transport != "sse")
        self._session = ""
        self._version = ""
        self._notice_limiter = anyio.CapacityLimiter(_NOTICES_AT_ONCE)

    async def end_session(self) -> None:
        if not self._session or self._version in _DIES_OF_DELETE:
            return
        # Shielded: the connection may be closing because of a cancellation.
        with anyio.move_on_after(_CLOSE_SECONDS, shield=True), suppress(UpstreamError):
            await (await self._request("DELETE", self._headers())).aclose()

    async def send(self, item: SessionMessage) -> None:
        """Send a request and wait for its answer; send other messages in the background. Raises UpstreamError."""
        if isinstance(item.message, JSONRPCNotification) and item.message.method == _INITIALIZED:
            await self._notify(item)  # the server must have it before anything else
        elif not isinstance(item.message, JSONRPCRequest):
            # In the background: neither the next message nor a cancelled caller must wait for them.
            if self._notice_limiter.statistics().tasks_waiting < _MAX_NOTICES:
                self.tasks.start_soon(self._notify, item)
        else:
            await self._ask(item, item.message)

    async def aclose(self) -> None:
        """Do nothing: the owner of the client closes it."""

    async def _ask(self, item: SessionMessage, request: JSONRPCRequest) -> None:
        raise NotImplementedError

    def _headers(self) -> dict[str, str]:
        named = {http_errors.SESSION_HEADER: self._session, MCP_PROTOCOL_VERSION_HEADER: self._version}
        return {name: value for name, value in named.items() if value}

    async def _post(self, item: SessionMessage) -> httpx2.Response:
        stamped = item.metadata.headers if isinstance(item.metadata, ClientMessageMetadata) else None
        headers = {
            "accept": f"application/json, {_EVENTS}",
            "content-type": "application/json",
            **self._headers(),
            **(stamped or {}),
        }
        return await self._request("POST", headers, encoded(item.message), _subject(item.message))

    async def _request(
        self, method: str, headers: Mapping[str, str], body: bytes = b"", subject: str = ""
    ) -> httpx2.Response:
        request = self.client.build_request(method, self._url, headers=headers, content=body or None)
        request.extensions[SUBJECT] = subject
        try:
            return await self.credentials.send(request, self.client)
        except httpx2.RequestError as error:
            failure = UpstreamUnavailableError if isinstance(error, _NEVER_SENT) else UpstreamLostError
            raise failure(self.route.explain(error)) from error

    async def _notify(self, item: SessionMessage) -> None:
        """Send a message that is not answered: a notification or a reply."""
        problem = ""
        is_notice = isinstance(item.message, JSONRPCNotification) and item.message.method != _INITIALIZED
        try:
            async with self._notice_limiter:
                with anyio.move_on_after(NOTICE_SECONDS if is_notice else self.spec.connect_seconds):
                    response = await self._post(item)
                    problem = http_errors.status_line(response) if response.is_error else ""
                    await self._prefix(response)
        except UpstreamError as error:
            problem = str(error)
        if problem:
            self.reader.diagnostics.note(f"a notification was not delivered: {problem}")

    async def _deliver(self, text: bytes, request: JSONRPCRequest | None) -> bool:
        """Deliver an event. Returns whether it answers this request. Raises UpstreamError: it is unreadable."""
        read = self.reader.read_leniently if request is None else self.reader.read
        try:
            messages = read(text)
        except ValueError as error:
            raise UpstreamAnswerError(f"the answer is unreadable: {error}") from None
        is_answered = False
        for each in messages:
            message = each.message
            if request is not None and isinstance(message, JSONRPCResponse | JSONRPCError):
                # An error on the request's own stream may have any id (`read_answer`).
                if isinstance(message, JSONRPCError) and not self.wire.awaits(message.id):
                    message = message.model_copy(update={"id": request.id})
                if is_answer_to(request.id, message.id):
                    self._check_session(message, request)
                    is_answered = True
            related = None if request is None else ServerMessageMetadata(related_request_id=request.id)
            await self._hand_over(SessionMessage(message, related))
        return is_answered

    def _check_session(self, answer: JSONRPCMessage, request: JSONRPCRequest) -> None:
        """Raises UpstreamError if an answer with HTTP 200 reports a lost session."""
        if isinstance(answer, JSONRPCError) and failure_of(answer.error) is None:
            error = answer.error
            if lost := http_errors.lost_session(
                HTTPStatus.OK, error.message, self._session, error.code, request
            ):
                raise lost(f"no longer knows this session: {error.message}")

    async def _hand_over(self, message: SessionMessage) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the connection has ended
            await self._inbox.send(message)

    async def _prefix(self, response: httpx2.Response) -> bytes:
        """The first `_ERROR_BYTES` of a body that is not an answer, masked; b"" if it is compressed."""
        body = bytearray()
        async with aclosing(response):
            with suppress(UpstreamError):  # a partial body is enough
                async for chunk in _chunks(response):
                    body += chunk
                    if len(body) >= _ERROR_BYTES:
                        break
        return self.credentials.mask.in_json(bytes(body[:_ERROR_BYTES]))

    async def _events(self, response: httpx2.Response) -> AsyncGenerator[httpx2.ServerSentEvent]:
        """The events of a response, until it ends or breaks off. Raises UpstreamError: one is too long."""
        # UTF-8, optionally with a byte order mark.
        kind = {"content-type": f"{_EVENTS}; charset=utf-8-sig"}
        # Here and not in `_lines`, which ends only when it is collected.
        with self.reader.limits.buffering() as add, suppress(UpstreamLostError):  # the stream may be resumed
            lines = self._lines(response, add)
            content = httpx2.Response(200, headers=kind, content=lines, request=response.request)
            async with aclosing(response):
                async for event in httpx2.EventSource(content, max_event_size=None):
                    yield event

    async def _lines(self, response: httpx2.Response, add: Callable[[int], None]) -> AsyncIterator[bytes]:
        """The lines of an event stream. They count as unsolicited messages, because most carry no message.

        `add` gets the change of the bytes since the last blank line, which the parser holds.
        """
        held_bytes, small_chunks, last = 0, 0, b""
        async for chunk in _chunks(response):
            lines = max(chunk.count(b"\n"), chunk.count(b"\r"))
            small_chunks += len(chunk) < _SMALL_CHUNK_BYTES
            units = _units(chunk) if small_chunks > _FREE_SMALL_CHUNKS else 0
            self.reader.limits.take_unsolicited(lines / _LINES_PER_UNIT + units)
            recent = last + chunk
            blank = max(map(recent.rfind, _BLANK_LINES)) if lines else -1
            unfinished_bytes = held_bytes + len(chunk) if blank < 0 else len(recent) - blank - 2
            add(unfinished_bytes - held_bytes)
            held_bytes, last = unfinished_bytes, chunk[-1:]
            yield chunk


class StreamableHttp(HttpTransport):
    """Streamable HTTP: the answer to a POST is JSON or an event stream.

    Before 2026-07-28 there are also sessions, a stream of unsolicited events, and resumable streams.
    """

    async def send(self, item: SessionMessage) -> None:
        stamped = item.metadata.headers if isinstance(item.metadata, ClientMessageMetadata) else None
        self._version = (stamped or {}).get(MCP_PROTOCOL_VERSION_HEADER, self._version)
        method = getattr(item.message, "method", "")
        if method == "initialize":
            self._version = ""  # forget the version that the probe announced
        if method == "notifications/cancelled" and self._version in MODERN_PROTOCOL_VERSIONS:
            return  # closing the request cancels it
        await super().send(item)
        if method == _INITIALIZED and self._session:
            self.tasks.start_soon(self._listen)

    async def _ask(self, item: SessionMessage, request: JSONRPCRequest) -> None:
        response = await self._post(item)
        async with aclosing(response):
            if request.method == "initialize":
                self._session = response.headers.get(http_errors.SESSION_HEADER, "")
            if response.status_code == HTTPStatus.ACCEPTED:
                raise UpstreamAnswerError("accepted the request with HTTP 202 without an answer")
            if response.is_success and http_errors.kind_of(response) == _EVENTS:
                await self._follow(response, request)
                return
            body = await self._body(response, request)
            status = http_errors.status_line(response) if response.is_error else ""
            if response.is_error and (remedy := http_errors.status_remedy(response)):
                self.reader.diagnostics.note(remedy)
            answer = self.reader.read_answer(body, request.id, status)
            self._check_session(answer, request)
            await self._hand_over(SessionMessage(answer))

    async def _body(self, response: httpx2.Response, request: JSONRPCRequest) -> bytes:
        """The JSON body of an answer. Raises UpstreamError: it is not JSON, or too long."""
        kind, body = http_errors.kind_of(response), bytearray()
        if response.is_success and kind == "application/json":
            with self.reader.limits.buffering() as add:
                async for chunk in _chunks(response):
                    self.reader.limits.take_unsolicited(_units(chunk))
                    add(len(chunk))
                    body += chunk
            return bytes(body)
        start, redact = await self._prefix(response), self.reader.diagnostics.redact
        if response.is_success:
            raise UpstreamAnswerError(
                f"the answer is {kind or 'untyped'} instead of JSON: {redact.excerpt(start)!r}"
            )
        if error := http_errors.error_of(response, start, redact, request):
            raise error
        return start

    async def _follow(self, response: httpx2.Response | None, request: JSONRPCRequest | None) -> None:
        """Deliver an event stream until it answers the request; without one, unsolicited events.

        A stream that breaks off is resumed after its last event with an id, with backoff, as long as the caller waits.
        HTTP 404 or 405 ends that, and so does a second refusal in a row for a request.
        Raises UpstreamError: the answer does not come.
        """
        last_id, pause_seconds, failures, refusals = "", _LEAST_RETRY_SECONDS, 0, 0
        longest_seconds = _LONGEST_RETRY_SECONDS if request is None else _LONGEST_RESUME_SECONDS
        while True:
            opened = await self._opened(last_id) if response is None else response
            response = None
            if isinstance(opened, httpx2.Response):
                failures = refusals = 0
                async with aclosing(self._events(opened)) as events:
                    async for event in events:
                        if event.id.isascii():  # a header can have no other
                            last_id = event.id or last_id
                        if event.retry is not None:
                            pause_seconds = max(
                                _LEAST_RETRY_SECONDS, min(event.retry, _MOST_RETRY_MS) / 1_000
                            )
                        is_message = event.event == "message" and event.data
                        if is_message and await self._deliver(event.data.encode(), request):
                            return
            else:
                failures += 1
                refusals = refusals + 1 if 400 <= opened < 500 and opened not in _PASSING else 0
                if opened in (404, 405) or (request is not None and refusals > 1):
                    break
                last_id = "" if refusals and request is None else last_id  # it may have forgotten the event
            if request is not None and not last_id:
                break
            backoff_seconds = min(longest_seconds, pause_seconds * 2.0 ** min(failures, 10))
            await anyio.sleep(max(pause_seconds, backoff_seconds))
        if request is not None:
            raise UpstreamLostError("the event stream ended without an answer")

    async def _opened(self, last_id: str) -> httpx2.Response | int:
        """The event stream of a GET; else the status of the refusal, or 0 without an answer."""
        headers = {"accept": _EVENTS, **self._headers(), **({"last-event-id": last_id} if last_id else {})}
        try:
            response = await self._request("GET", headers)
        except UpstreamError as error:
            self.reader.diagnostics.note(f"the event stream cannot be opened: {error}")
            return 0
        if response.is_success and http_errors.kind_of(response) == _EVENTS:
            return response
        await response.aclose()
        if response.is_server_error:
            status = http_errors.status_line(response)
            self.reader.diagnostics.note(f"the event stream cannot be opened: {status}")
        return response.status_code

    async def _listen(self) -> None:
        try:
            await self._follow(None, None)
        except UpstreamError as error:
            self.wire.ending.cut_off(UpstreamCutOffError(str(error)))


class HttpWithSse(HttpTransport):
    """HTTP+SSE: all answers come on one event stream, whose first event names the session's URL for requests."""

    _is_known = False
    """Whether the server accepted a request of this session."""

    async def connect(self, seconds: float) -> None:
        """Wait for the endpoint event. Raises UpstreamError: it does not come."""
        with anyio.move_on_after(seconds) as connecting:
            await self.tasks.start(self._read)
        if connecting.cancelled_caught:
            raise UpstreamUnavailableError(f"sent no endpoint within {seconds:g} s")

    async def _read(self, *, task_status: TaskStatus[None]) -> None:
        """Read the stream until the connection ends; started at the endpoint event. Raises UpstreamError."""
        is_started = False
        async with self._inbox:
            try:
                response = await self._request("GET", {"accept": _EVENTS})
                if not response.is_success or http_errors.kind_of(response) != _EVENTS:
                    await response.aclose()
                    raise http_errors.status_error(response, b"", self.reader.diagnostics.redact)
                async for event in self._events(response):
                    if event.event == "endpoint" and not is_started:
                        self._url = self._endpoint(event.data)
                        is_started = True
                        task_status.started()
                    elif event.event == "message" and event.data:
                        await self._deliver(event.data.encode(), None)
                if not is_started:
                    raise UpstreamUnavailableError("ended its event stream before it sent an endpoint")
            except UpstreamError as error:
                if not is_started:
                    raise
                self.wire.ending.cut_off(UpstreamCutOffError(str(error)))

    async def _ask(self, item: SessionMessage, request: JSONRPCRequest) -> None:
        # Some servers respond to the POST only after the work; the wire cancels it once the answer has come.
        response = await self._post(item)
        body, redact = await self._prefix(response), self.reader.diagnostics.redact
        if response.is_success:
            self._is_known = True
            return
        error = http_errors.status_error(response, body, redact)
        # A 404 before any accepted request means a wrong path, not a lost session.
        if not self._is_known and response.status_code == HTTPStatus.NOT_FOUND:
            path = redact.excerpt(httpx2.URL(self._url).path.encode())
            raise UpstreamAnswerError(f"{error}, at {path!r}, the path that its endpoint event names")
        words, session = body.decode("utf-8", "replace"), self._url if self._is_known else ""
        if lost := http_errors.lost_session(response.status_code, words, session):
            raise lost(f"no longer knows this session: {error}")
        raise error

    def _endpoint(self, named: str) -> str:
        """The URL for requests. Raises UpstreamAnswerError if its origin differs, because that gets no credentials."""
        own, url = httpx2.URL(self._url), httpx2.URL(urljoin(self._url, named.strip()))
        if origin(own) != origin(url):
            raise UpstreamAnswerError(f"its endpoint event names {origin(url)} instead of {origin(own)}")
        return str(url)


def _subject(message: JSONRPCMessage) -> str:
    """The method and tool of a caller, which the server may refuse alone; "" for the connection's own messages."""
    method, params = getattr(message, "method", ""), getattr(message, "params", None) or {}
    name = params.get("name") if method == "tools/call" else ""  # scripts choose the others' names
    return f"{method} {name}" if method in NAME_BEARING_METHODS else ""


async def _chunks(response: httpx2.Response) -> AsyncIterator[bytes]:
    """The chunks of the body. Raises UpstreamError: it breaks off, or is compressed."""
    if response.headers.get("content-encoding", "").strip().lower() not in ("", "identity"):
        raise UpstreamAnswerError("the answer is compressed, although the portal asked for identity encoding")
    try:
        async for chunk in response.aiter_raw():
            yield chunk
    except httpx2.RequestError as error:
        raise UpstreamLostError(describe(error)) from error


def _units(chunk: bytes) -> int:
    """What a chunk counts as, because of its size."""
    return _UNITS_PER_SMALL_CHUNK if len(chunk) < _SMALL_CHUNK_BYTES else 0
