"""Reaches an upstream by URL: Streamable HTTP, and the HTTP+SSE transport it replaced, both by the SDK's transports.

The SDK's transports read with a client of ours. Under them any exception of a client ends the whole connection, and a
status like 401 becomes "Server returned an error response". Here every failure of a request becomes the answer of
exactly the call that caused it, and what comes is capped and read by `MessageReader`: messages go past the SDK to
the wire, and the SDK gets an empty message in place of each answer, so that it knows that it came.
"""

import socket
import ssl
import zlib
from codecs import BOM_UTF8
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from functools import cache, partial
from http import HTTPStatus
from typing import Any, Final, Self
from weakref import WeakValueDictionary

import anyio
import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCResponse, RequestId
from pydantic_core import from_json, to_json

from manifests.json_value import Json
from manifests.upstream_sections import HttpUpstream
from upstreams.errors import (
    UpstreamAnswerError,
    UpstreamCutOffError,
    UpstreamError,
    UpstreamLostError,
    UpstreamSessionError,
    UpstreamSilentError,
    UpstreamUnavailableError,
)
from upstreams.http_credentials import Admission, HttpCredentials
from upstreams.http_errors import described_http, error_of, kind_of, refusal, status_line
from upstreams.messages import InboundLimits, MessageReader, failed_answer
from upstreams.state import Diagnostics
from upstreams.wire import Wire

_WRITE_SECONDS: Final = 60.0
_KEPT_CONNECTIONS: Final = 32

_CLOSE_SECONDS: Final = 1.0
"""To end a session. Nobody waits for it but the connection itself, so a server that hangs must not hold it up."""

NOTICE_SECONDS: Final = 2.0
NOTICES_AT_ONCE: Final = 16
_MAX_NOTICES: Final = 1_000
"""Notifications and replies are sent in the background, each for two seconds at most; one more is dropped."""

_LEAST_RETRY_MS: Final = 1_000
"""Streams that break off are asked for again no sooner, whatever the server says."""

_SILENT_SECONDS: Final = 30
_PROBE_SECONDS: Final = 10
_PROBES: Final = 3
"""A connection over which nothing came for 30 s is probed by TCP, and over after three probes without answer. Without
that a stream of events on a route that vanished would be waited for without end."""

_LINES_PER_UNIT: Final = 4
"""Lines of a stream of events that count as one unsolicited message."""

_UNPACKED_BYTES: Final = 64 * 1024
_ERROR_BYTES: Final = 64 * 1024
_GZIP: Final = ("gzip", "x-gzip")
_BODY_HEADERS: Final = frozenset({b"content-length", b"content-encoding", b"transfer-encoding"})
_NEVER_SENT: Final = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
    httpx2.LocalProtocolError,
)

CODING: Final = {"accept-encoding": "gzip"}
"""The header of requests whose answers are read by `unpacked`."""


@asynccontextmanager
async def open_http_wire(
    spec: HttpUpstream, diagnostics: Diagnostics, credentials: HttpCredentials
) -> AsyncIterator[Wire]:
    """A wire over Streamable HTTP; nothing is sent yet, so this cannot fail."""
    inbox = Inbox(spec, diagnostics, credentials)
    async with (
        UpstreamHttpClient(inbox, headers={**CODING, **spec.headers}, **_options(spec)) as client,
        streamable_http_client(str(spec.url), http_client=client, max_sse_event_size=None) as streams,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(inbox.carry, streams[0])
        yield inbox.wire(streams[1], closes_requests=True)
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def open_sse_wire(
    spec: HttpUpstream, diagnostics: Diagnostics, credentials: HttpCredentials
) -> AsyncIterator[Wire]:
    """A wire over HTTP+SSE, connected within `connect_seconds`."""
    inbox = Inbox(spec, diagnostics, credentials)

    def new_client(
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        return SseHttpClient(inbox, headers=headers, auth=auth, **_options(spec))

    transport = sse_client(str(spec.url), headers={**CODING, **spec.headers}, httpx_client_factory=new_client)
    # One scope around the whole life: a scope may not end inside a transport that was entered in it.
    with anyio.CancelScope(deadline=anyio.current_time() + spec.connect_seconds) as connecting:
        async with AsyncExitStack() as stack:
            streams = await stack.enter_async_context(transport)
            connecting.deadline = float("inf")
            tasks = await stack.enter_async_context(anyio.create_task_group())
            tasks.start_soon(inbox.carry, streams[0])
            yield inbox.wire(streams[1])
            tasks.cancel_scope.cancel()
    if connecting.cancelled_caught:
        raise UpstreamUnavailableError(f"sent no endpoint within {spec.connect_seconds:g} s")


def _options(spec: HttpUpstream) -> dict[str, Any]:
    # Deadlines are the calls' own, and a stream of events may be silent for as long as it likes.
    return {
        "timeout": httpx2.Timeout(_WRITE_SECONDS, connect=spec.connect_seconds, read=None, pool=None),
        "limits": httpx2.Limits(max_connections=None, max_keepalive_connections=_KEPT_CONNECTIONS),
        "verify": trusted_authorities(),
    }


@cache
def trusted_authorities() -> ssl.SSLContext:
    """Who may vouch for a server on TLS. To load them anew for each client takes 30 to 70 ms."""
    return httpx2.create_ssl_context()


class Inbox:
    """Where the messages of one connection go, whichever response brings them."""

    def __init__(self, spec: HttpUpstream, diagnostics: Diagnostics, credentials: HttpCredentials) -> None:
        self.admission = Admission(spec.url, credentials)
        self.diagnostics = diagnostics
        self.limits = InboundLimits(spec.message_bytes)
        self.reader = MessageReader(self.limits, diagnostics, self.admission.masked)
        self._sender, self._receiver = anyio.create_memory_object_stream[SessionMessage | Exception]()
        self._wire: Wire | None = None

    def wire(self, write_stream: Any, *, closes_requests: bool = False) -> Wire:
        """The wire that the messages go to."""
        self._wire = Wire(self._receiver, write_stream, self.limits, closes_requests=closes_requests)
        return self._wire

    async def carry(self, read_stream: Any) -> None:  # the SDK's stream protocols have no public name
        """Hand over what the SDK itself says, until it ends."""
        async with self._sender:
            async for item in read_stream:
                # Its answers stand for those that were delivered; only its errors are new.
                if not isinstance(item, SessionMessage) or not isinstance(item.message, JSONRPCResponse):
                    await self._sender.send(item)

    async def deliver(self, message: SessionMessage) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the connection has ended first
            await self._sender.send(message)

    async def fail(self, request_id: RequestId, failure: UpstreamError) -> None:
        """Answer a request with a failure. One for what the upstream sent ends the connection."""
        if isinstance(failure, UpstreamCutOffError) and self._wire is not None:
            self._wire.cut_off(failure)
        await self.deliver(SessionMessage(failed_answer(request_id, failure)))

    def cut_off(self, error: UpstreamCutOffError) -> None:
        if self._wire is not None:
            self._wire.cut_off(error)


class Post:
    """One request over HTTP, until its answer was read, or nobody waits for it any more."""

    def __init__(self, request_id: RequestId) -> None:
        self.request_id = request_id
        self._is_closed = False
        self._scope: anyio.CancelScope | None = None

    def close(self) -> None:
        self._is_closed = True
        if self._scope is not None:
            self._scope.cancel()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Around waiting for the upstream.

        Raises:
            UpstreamLostError: It was closed.
        """
        with anyio.CancelScope() as scope:
            self._scope = scope
            if self._is_closed:
                scope.cancel()
            yield
        self._scope = None
        if scope.cancelled_caught:
            raise UpstreamLostError("nobody waits for the answer any more")


_post: ContextVar[Post | None] = ContextVar("_post", default=None)
"""The request that this task of the SDK reads the answer of: in it the SDK also asks for the rest of one."""


class UpstreamHttpClient(httpx2.AsyncClient):
    """What the SDK's Streamable HTTP transport sends with. POSTs never raise."""

    def __init__(self, inbox: Inbox, **options: Any) -> None:
        super().__init__(**options)
        self.inbox = inbox
        # The SDK's task of a request holds its post until it has ended.
        self._posts: WeakValueDictionary[RequestId, Post] = WeakValueDictionary()
        self._tasks = anyio.create_task_group()
        self._notices = 0
        self._notice_turns = anyio.CapacityLimiter(NOTICES_AT_ONCE)

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        await self._tasks.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        self._tasks.cancel_scope.cancel()
        try:
            await self._tasks.__aexit__(*error)
        finally:
            await super().__aexit__(*error)

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        if request.method == "GET":
            return await self._listen(request, options)
        if request.method == "DELETE":
            # It is closed because somebody ended it, who would end this, too.
            with anyio.CancelScope(shield=True):
                await self._tell(request, options, _CLOSE_SECONDS)
            return httpx2.Response(HTTPStatus.NO_CONTENT, request=request)
        message = from_json(await request.aread())
        if "method" in message and "id" in message:
            return await self._ask(request, options, message["id"])
        if message.get("method") == "notifications/initialized":  # nothing may come before it
            return await self._tell(request, options, NOTICE_SECONDS)
        await self._tell_in_background(request, options)
        # Before 2026-07-28 a request goes on although it was cancelled. What it would still bring is nobody's.
        if message.get("method") == "notifications/cancelled" and (
            post := self._posts.get(message["params"]["requestId"])
        ):
            post.close()
        return httpx2.Response(HTTPStatus.ACCEPTED, request=request)

    async def _admitted(self, request: httpx2.Request, options: dict[str, Any]) -> httpx2.Response:
        response = await self.inbox.admission.send(request, partial(super().send, **options))
        stream = response.extensions.get("network_stream")
        with suppress(OSError):  # it is closed already
            keep_alive(stream.get_extra_info("socket") if stream else None)
        return response

    async def _listen(self, request: httpx2.Request, options: dict[str, Any]) -> httpx2.Response:
        """Ask for events: of what nobody asked for, or of an answer whose stream broke off."""
        post = _post.get()
        try:
            with post.waiting() if post else nullcontext():
                response = await self._admitted(request, options)
                if response.is_success and kind_of(response) == "text/event-stream":
                    return self._events(response, post)
                return await _without_body(response)  # the SDK would read all of it
        except httpx2.RequestError as error:
            self.inbox.diagnostics.note(f"events cannot be listened to: {described_http(error)}")
        except UpstreamLostError:
            pass
        except UpstreamError as error:
            self.inbox.diagnostics.note(f"events cannot be listened to: {error}")
        return httpx2.Response(HTTPStatus.METHOD_NOT_ALLOWED, request=request)

    async def _tell_in_background(self, request: httpx2.Request, options: dict[str, Any]) -> None:
        # The SDK sends these one by one, and nothing else meanwhile: not even that a call was cancelled.
        if self._notices >= _MAX_NOTICES:
            self.inbox.diagnostics.note("takes notifications and replies so slowly that some were not sent")
            return
        self._notices += 1

        async def tell() -> None:
            try:
                async with self._notice_turns:
                    await self._tell(request, options, NOTICE_SECONDS)
            finally:
                self._notices -= 1

        self._tasks.start_soon(tell)

    async def _tell(
        self, request: httpx2.Request, options: dict[str, Any], seconds: float
    ) -> httpx2.Response:
        """Send what has no answer: a notification, a reply, the end of a session."""
        problem = ""
        try:
            with anyio.move_on_after(seconds):
                response = await self._admitted(request, options)
                problem = status_line(response) if response.is_error and request.method == "POST" else ""
                await _without_body(response)
        except httpx2.RequestError as error:
            problem = described_http(error)
        except UpstreamError as error:
            problem = str(error)
        if problem:
            self.inbox.diagnostics.note(f"a notification was not delivered: {problem}")
        return httpx2.Response(HTTPStatus.ACCEPTED, request=request)

    async def _ask(
        self, request: httpx2.Request, options: dict[str, Any], request_id: RequestId
    ) -> httpx2.Response:
        """A response whose body the SDK reads, and that delivers the answer meanwhile."""
        post = self._posts[request_id] = self._posts.get(request_id) or Post(request_id)
        _post.set(post)
        response = None
        try:
            with post.waiting():
                response = await self._admitted(request, options)
                return await self._answered(response, post)
        except (httpx2.RequestError, UpstreamError) as error:
            if response is not None:
                await response.aclose()
            await self.inbox.fail(request_id, _failure(error))
            return httpx2.Response(200, json=_placeholder(request_id), request=request)

    async def _answered(self, response: httpx2.Response, post: Post) -> httpx2.Response:
        """The same response with a body that delivers what it says.

        Raises:
            UpstreamError: It is no answer.
        """
        kind = kind_of(response)
        if response.status_code == HTTPStatus.ACCEPTED:
            raise UpstreamSilentError("took the request with HTTP 202 but sends no answer")
        if response.is_success and kind == "text/event-stream":
            return self._events(response, post)
        if response.next_request is not None:
            raise _lost_call(response, response.next_request.url)
        if response.is_success and kind == "application/json":
            await self.inbox.deliver(SessionMessage(await self._read(response, post.request_id)))
            return _taken_over(response, post.request_id)
        redact, reader = self.inbox.diagnostics.redact, self.inbox.reader
        body = self.inbox.admission.masked(await _beginning(response))
        if response.is_error and (error := error_of(response, body, redact)):
            raise error
        if response.is_error:
            await self.inbox.deliver(SessionMessage(reader.read_answer(body, post.request_id)))
            return _taken_over(response, post.request_id)
        raise UpstreamAnswerError(
            f"the answer is {kind or 'of no type'} instead of JSON: {redact.excerpt(body)!r}"
        )

    async def _read(self, response: httpx2.Response, request_id: RequestId) -> JSONRPCResponse | JSONRPCError:
        body = bytearray()
        with self.inbox.limits.buffering() as add:
            try:
                async for piece in unpacked(response):
                    add(len(piece))
                    body += piece
            finally:
                await response.aclose()
            return self.inbox.reader.read_answer(bytes(body), request_id)

    def _events(self, response: httpx2.Response, post: Post | None) -> httpx2.Response:
        return _with_stream(response, _Events(self.inbox, response, post))


class SseHttpClient(UpstreamHttpClient):
    """What the SDK's older HTTP+SSE transport sends with. Answers arrive on the one stream of events.

    Some servers answer the POST of a request only when they have done what it asks for, and the SDK sends nothing else
    until then. So requests are sent in the background here, beside each other.
    """

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        if request.method == "GET":
            response = await self._admitted(request, options)
            return self._events(response, None) if response.is_success else response
        return await super().send(request, **options)

    async def _ask(
        self, request: httpx2.Request, options: dict[str, Any], request_id: RequestId
    ) -> httpx2.Response:
        post = self._posts[request_id] = Post(request_id)

        async def ask() -> None:
            try:
                with post.waiting():
                    await self._taken(await self._admitted(request, options))
            except (httpx2.RequestError, UpstreamError) as error:
                await self.inbox.fail(request_id, _failure(error))

        self._tasks.start_soon(ask)
        return httpx2.Response(HTTPStatus.ACCEPTED, request=request)

    async def _taken(self, response: httpx2.Response) -> None:
        """Raises UpstreamError if it says that the server did not take the request."""
        body = await _beginning(response)
        if response.next_request is not None:
            raise _lost_call(response, response.next_request.url)
        if response.status_code == HTTPStatus.NOT_FOUND:
            raise UpstreamSessionError("no longer knows this session")
        if response.is_error:
            raise refusal(response, self.inbox.admission.masked(body), self.inbox.diagnostics.redact)


class _Events(httpx2.AsyncByteStream):
    """A stream of events, of an answer (`post`) or of what nobody asked for.

    What the SDK reads is its ids, its waits before it may be asked for again, and a placeholder for each answer.
    """

    def __init__(self, inbox: Inbox, response: httpx2.Response, post: Post | None) -> None:
        self._inbox = inbox
        self._response = response
        self._post = post

    async def __aiter__(self) -> AsyncIterator[bytes]:
        inbox, post = self._inbox, self._post
        try:
            async for event in httpx2.EventSource(
                _with_stream(self._response, _Lines(self._response, inbox.limits, post)),
                max_event_size=inbox.limits.message_bytes,
            ):
                if event.event == "message" and event.data:
                    yield await self._delivered(event)
                elif event.event == "endpoint":  # of HTTP+SSE
                    yield f"event: endpoint\ndata: {event.data}\n\n".encode()
                if event.id or event.retry is not None:
                    retry = max(_LEAST_RETRY_MS, event.retry or 0)
                    yield f"id: {event.id}\nretry: {retry}\ndata:\n\n".encode()
        except httpx2.SSEError as error:
            failure = UpstreamAnswerError(str(error))
            if post is None:
                inbox.cut_off(UpstreamCutOffError(str(error)))
            else:
                yield await self._failed(post, failure)
        except (UpstreamError, httpx2.DecodingError) as error:
            if isinstance(error, UpstreamCutOffError):
                inbox.cut_off(error)
            if post is not None:
                yield await self._failed(post, _failure(error))

    async def _delivered(self, event: httpx2.ServerSentEvent) -> bytes:
        """Hand over what it says; a placeholder if that is the answer."""
        inbox, text = self._inbox, event.data.encode()
        if self._post is None:
            messages = inbox.reader.read_leniently(text)
        else:
            try:
                messages = inbox.reader.read(text)
            except ValueError as error:
                raise UpstreamAnswerError(f"the answer is unreadable: {error}") from None
        placeholder = b""
        for message in messages:
            await inbox.deliver(message)
            match message.message:
                case JSONRPCResponse(id=answered) | JSONRPCError(id=answered):
                    if self._post and answered == self._post.request_id:
                        placeholder = _event(answered)
        return placeholder

    async def _failed(self, post: Post, failure: UpstreamError) -> bytes:
        await self._inbox.fail(post.request_id, failure)
        return _event(post.request_id)

    async def aclose(self) -> None:
        await self._response.aclose()


class _Lines(httpx2.AsyncByteStream):
    """The lines of a stream of events, which count as unsolicited messages: most of them say nothing."""

    def __init__(self, response: httpx2.Response, limits: InboundLimits, post: Post | None) -> None:
        self._pieces = unpacked(response)
        self._limits = limits
        self._post = post

    async def __aiter__(self) -> AsyncIterator[bytes]:
        is_first = True
        while True:
            with self._post.waiting() if self._post else nullcontext():
                piece = await anext(self._pieces, None)
            if piece is None:
                return
            if is_first:
                piece, is_first = piece.removeprefix(BOM_UTF8), False
            self._limits.take_unsolicited(0, max(piece.count(b"\n"), piece.count(b"\r")) / _LINES_PER_UNIT)
            yield piece


def _failure(error: httpx2.RequestError | UpstreamError) -> UpstreamError:
    """What an exception says of a call."""
    if isinstance(error, UpstreamError):
        return error
    if isinstance(error, _NEVER_SENT):
        return UpstreamUnavailableError(described_http(error))
    if isinstance(error, httpx2.DecodingError):
        return UpstreamAnswerError(described_http(error))
    return UpstreamLostError(described_http(error))


def _taken_over(response: httpx2.Response, request_id: RequestId) -> httpx2.Response:
    """What the SDK gets in place of an answer that was delivered. It reads the session's id in the headers."""
    return httpx2.Response(
        200,
        headers=headers_without_body(response),
        content=to_json(_placeholder(request_id)),
        request=response.request,
    )


def _placeholder(request_id: RequestId | None) -> dict[str, Json]:
    return {"jsonrpc": "2.0", "id": request_id or 0, "result": {}}


def _event(request_id: RequestId | None) -> bytes:
    return b"data: " + to_json(_placeholder(request_id)) + b"\n\n"


def _lost_call(redirect: httpx2.Response, place: httpx2.URL) -> UpstreamAnswerError:
    """To a POST a redirect may say that the request was carried out, and where to look now."""
    told = f"{status_line(redirect)}: a redirect to {place}, where the call would be lost"
    return UpstreamAnswerError(f"{told}; use that URL if the server is there")


async def _beginning(response: httpx2.Response) -> bytes:
    """What a response says that is no answer, as far as anybody reads it."""
    body = bytearray()
    try:
        async for piece in unpacked(response):
            body += piece
            if len(body) >= _ERROR_BYTES:
                break
    finally:
        await response.aclose()
    return bytes(body[:_ERROR_BYTES])


async def _without_body(response: httpx2.Response) -> httpx2.Response:
    """The same for somebody who would read all of it. The connection stays usable if that is short and says so."""
    try:
        announced = response.headers.get("content-length", "")
        if announced.isdecimal() and int(announced[:10]) <= _ERROR_BYTES:
            await _beginning(response)
    except httpx2.RequestError:
        pass  # what counts has come
    finally:
        await response.aclose()
    return _with_stream(response, httpx2.ByteStream(b""))


def _with_stream(response: httpx2.Response, stream: httpx2.AsyncByteStream) -> httpx2.Response:
    return httpx2.Response(
        response.status_code, headers=headers_without_body(response), stream=stream, request=response.request
    )


def headers_without_body(response: httpx2.Response) -> list[tuple[bytes, bytes]]:
    """Those that do not speak of how the body came, as they came: a value need not be ASCII."""
    return [(name, value) for name, value in response.headers.raw if name.lower() not in _BODY_HEADERS]


async def unpacked(response: httpx2.Response) -> AsyncIterator[bytes]:
    """The body in pieces, whose length is for the caller to bound.

    httpx2 would unpack what is packed several times over, and each piece in one go.

    Raises:
        httpx2.DecodingError: It is packed otherwise than with gzip, once.
        httpx2.RequestError: As of `httpx2.Response.aiter_raw`.
    """
    coding = response.headers.get("content-encoding", "").strip().lower()
    if coding in ("", "identity"):
        async for piece in response.aiter_raw():
            yield piece
        return
    if coding not in _GZIP:
        raise httpx2.DecodingError(f"an answer packed with {coding[:100]} is not read")
    unpacking = zlib.decompressobj(zlib.MAX_WBITS | 16)
    async for packed in response.aiter_raw():
        try:
            while piece := unpacking.decompress(packed, _UNPACKED_BYTES):
                yield piece
                packed = unpacking.unconsumed_tail
        except zlib.error as error:
            raise httpx2.DecodingError(str(error)) from error
        if unpacking.eof:
            return


def keep_alive(connection: socket.socket | None) -> None:
    """Turn on TCP's keepalive. httpx2 takes socket options for a transport of ours only, which asks no proxy."""
    if connection is None or connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE):
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options: Mapping[str, int] = {
        "TCP_KEEPIDLE": _SILENT_SECONDS,
        "TCP_KEEPALIVE": _SILENT_SECONDS,  # the same on macOS
        "TCP_KEEPINTVL": _PROBE_SECONDS,
        "TCP_KEEPCNT": _PROBES,
        # What was sent and is never acknowledged is given up after the same time: probes say nothing of it.
        "TCP_USER_TIMEOUT": (_SILENT_SECONDS + _PROBE_SECONDS * _PROBES) * 1_000,
    }
    for name, value in options.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
