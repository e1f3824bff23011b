"""An HTTP client whose failures reach the call they belong to.

Under the SDK's Streamable HTTP transport any exception of the client ends the whole connection, and with it
everything that runs inside; a status like 401 becomes "Server returned an error response". Here every failure of
a request becomes a JSON-RPC error response, which the SDK hands to exactly the call that caused it.
"""

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from functools import partial
from http import HTTPStatus
from typing import Any, Final, Self

import anyio
import httpx2
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCResponse

from upstreams.barren_lines import Rests
from upstreams.diagnostics import Diagnostics
from upstreams.drips import Drips
from upstreams.errors import (
    UpstreamAnswerError,
    UpstreamError,
    UpstreamLostError,
    UpstreamSessionError,
    UpstreamSilentError,
    UpstreamUnavailableError,
)
from upstreams.event_requests import EventRequests
from upstreams.http_body import (
    ByteOrderMark,
    announced_bytes,
    headers_without_body,
    unpacked,
    without_body,
)
from upstreams.http_credentials import Admission
from upstreams.http_errors import error_of, kind_of, refusal
from upstreams.http_status import described_http, status_line
from upstreams.json_rpc import MessageReader
from upstreams.kept_alive import KeptAliveClient
from upstreams.large_events import SmallEvents
from upstreams.mended_events import MendedLines, with_mended_events
from upstreams.nesting import shallow
from upstreams.notices import NOTICE_SECONDS, Notices
from upstreams.open_posts import OpenPost, OpenPosts, WantedEvents
from upstreams.pace import Pace
from upstreams.piled_text import PiledText
from upstreams.room import Held, Room
from upstreams.sent_text import asked_id, awaits_answer, given_up_id, is_initialized, is_notification
from upstreams.stand_ins import StandIns
from upstreams.steps import STEP_BYTES, Steps, in_steps
from upstreams.unasked_bytes import MeasuredMessage, UnaskedBytes
from upstreams.wire import Failures
from upstreams.wire_text import END_BYTES, MAX_MESSAGE_BYTES, answered_id, mended

# Nobody waits for it but the connection itself, so a server that hangs must not hold it up.
CLOSE_SECONDS: Final = 1.0

_METHOD_HEADER: Final = "mcp-method"
_NEVER_SENT: Final = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
    httpx2.LocalProtocolError,
)


class UpstreamHttpClient(KeptAliveClient):
    """What the SDK's Streamable HTTP transport sends with. POSTs never raise; answers are capped and mended."""

    def __init__(
        self,
        failures: Failures,
        diagnostics: Diagnostics,
        admission: Admission,
        room: Room,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._failures = failures
        self._diagnostics = diagnostics
        self._admission = admission
        self._event_requests = EventRequests()
        self._room = room
        self._posts = OpenPosts(room)
        self._reader = MessageReader(failures, diagnostics, admission.masked)
        self.stand_ins = StandIns()
        """For the messages that the SDK does not read itself."""
        self._rests = Rests()
        self._pace = Pace()
        self._unasked = UnaskedBytes()
        self._tasks = anyio.create_task_group()
        self._notifications = Notices(self._tasks, diagnostics)
        self._replies = Notices(self._tasks, diagnostics)

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
        if request.method == "GET" or request.headers.get(_METHOD_HEADER) == "subscriptions/listen":
            # A stream of events may be silent for as long as it likes.
            request.extensions["timeout"] = {**request.extensions.get("timeout", {}), "read": None}
        if request.method == "GET":
            return await self._listen(request, options)
        # The body of a request that follows a redirect is not there yet.
        content = await request.aread()
        if request.method == "POST" and awaits_answer(content):
            self._event_requests.begin_call()
            return await self._ask(request, options)
        if request.method == "DELETE":
            # It is closed because somebody ended it, who would end this, too.
            with anyio.CancelScope(shield=True):
                return await self._tell_now(request, options, CLOSE_SECONDS)
        if is_initialized(content):  # nothing may come before it
            return await self._tell_now(request, options, NOTICE_SECONDS)
        if (given_up := given_up_id(content)) is not None:
            self._posts.give_up(given_up)
        # The SDK sends these one by one, and nothing else meanwhile: not even that a call was cancelled.
        notices = self._notifications if is_notification(content) else self._replies
        notices.send(partial(self._followed, self._tell, request, options))
        return httpx2.Response(HTTPStatus.ACCEPTED, request=request)

    async def _listen(self, request: httpx2.Request, options: dict[str, Any]) -> httpx2.Response:
        """Ask for events: of what nobody asked for, or of an answer whose stream broke off."""
        post = self._posts.of_task()
        try:
            with post.waiting() if post else nullcontext():
                is_turn = await self._event_requests.turn()
                held = post.held if post else Held(self._room)
                response = await self._events(request, options, held) if is_turn else None
            if response is not None:
                return self._wanted(response, post) if post else response
            self._diagnostics.note("breaks off the stream that is to bring an answer again and again")
        except UpstreamLostError:
            pass  # it was given up, and was read on for long enough
        except UpstreamError as error:
            self._diagnostics.note(f"events cannot be listened to: {error}")
        return httpx2.Response(HTTPStatus.METHOD_NOT_ALLOWED, request=request)

    async def _events(self, request: httpx2.Request, options: dict[str, Any], held: Held) -> httpx2.Response:
        response = await self._send(request, options)
        if response.next_request is not None:
            return await without_body(response, _MAX_UNHEEDED_BYTES)  # the SDK would read all of it
        return self._with_mended_events(response, held)

    async def _followed(
        self,
        send: Callable[[httpx2.Request, dict[str, Any]], Awaitable[httpx2.Response]],
        request: httpx2.Request,
        options: dict[str, Any],
    ) -> httpx2.Response:
        """What the SDK does with its own: go where the server says, unless the message would be lost on the way."""
        for _ in range(self.max_redirects):
            response = await send(request, options)
            following = response.next_request
            if following is None or following.method != request.method:
                break
            request = following
        return response

    async def _tell_now(
        self, request: httpx2.Request, options: dict[str, Any], seconds: float
    ) -> httpx2.Response:
        with anyio.move_on_after(seconds):
            return await self._tell(request, options)
        return httpx2.Response(HTTPStatus.ACCEPTED, request=request)

    async def _tell(self, request: httpx2.Request, options: dict[str, Any]) -> httpx2.Response:
        """Send what has no answer: a notification, a reply, the end of a session."""
        try:
            response = await self._send(request, options)
            return await without_body(response, announced_bytes(response, _MAX_UNHEEDED_BYTES))
        except httpx2.RequestError as error:
            self._diagnostics.note(f"a notification was not delivered: {described_http(error)}")
        except UpstreamError as error:
            self._diagnostics.note(f"a notification was not delivered: {error}")
        return httpx2.Response(HTTPStatus.ACCEPTED, request=request)

    async def _ask(self, request: httpx2.Request, options: dict[str, Any]) -> httpx2.Response:
        """The answer, or that there is none; of an answer in events they are still to come."""
        post = self._posts.opened(asked_id(request.content))
        is_open = False
        try:
            response = await self._answer(request, options, post)
            is_open = isinstance(response.stream, SmallEvents)
            return self._wanted(response, post)
        finally:
            if is_open:
                self._posts.close_with_task(post)
            else:
                self._posts.close(post)

    def _wanted(self, response: httpx2.Response, post: OpenPost) -> httpx2.Response:
        """The same, its events read no longer than the request that they answer may be."""
        if isinstance(response.stream, SmallEvents):
            stand_in = partial(self._event_standing_for, post.request_id)
            response.stream = WantedEvents(response.stream, post, stand_in)
        return response

    async def _answer(
        self, request: httpx2.Request, options: dict[str, Any], post: OpenPost
    ) -> httpx2.Response:
        try:
            with post.waiting():
                response = await self._send(request, options)
                return await self._readable(response, post.held)
        except _NEVER_SENT as error:
            return self._failed(request, UpstreamUnavailableError(described_http(error)))
        except httpx2.DecodingError as error:
            return self._failed(request, UpstreamAnswerError(described_http(error)))
        except httpx2.RequestError as error:
            return self._failed(request, UpstreamLostError(described_http(error)))
        except UpstreamError as error:
            return self._failed(request, error)

    async def _send(self, request: httpx2.Request, options: dict[str, Any]) -> httpx2.Response:
        return await self._admission.send(request, partial(super().send, **options))

    async def _readable(self, response: httpx2.Response, held: Held) -> httpx2.Response:
        kind = kind_of(response)
        if response.status_code == HTTPStatus.ACCEPTED:
            await response.aclose()
            raise UpstreamSilentError("took the request with HTTP 202 but sends no answer")
        if response.is_success and kind == "text/event-stream":
            return self._with_mended_events(response, held)
        if response.next_request is not None:
            return await _redirect(response)
        body = await _read_capped(response, held, self._pace)
        is_long = len(body) > STEP_BYTES
        asked, answered = asked_id(response.request.content), answered_id(body[:END_BYTES], body[-END_BYTES:])
        if response.is_client_error and answered == asked and (result := await self._result_in(body, asked)):
            return _answer(response, HTTPStatus.OK, result)
        told = await in_steps(self._admission.masked(body[:STEP_BYTES]))
        scrub = self._diagnostics.scrub
        if response.is_error and (error := await error_of(response, told, scrub, is_whole=not is_long)):
            raise error
        if kind != "application/json":
            raise UpstreamAnswerError(
                f"the answer is {kind or 'of no type'} instead of JSON: {scrub.excerpt(told)!r}"
            )
        if answered is not None and answered != asked:
            raise UpstreamAnswerError("the answer is that of another request")
        if asked is None or (answered == asked and not is_long):
            content = await in_steps(_fit(told))
        else:
            content = await self._answer_in(body, asked)
        return _answer(response, response.status_code, content)

    async def _result_in(self, body: bytes, asked: int | None) -> bytes | None:
        """What the SDK reads instead of a result, if it is one."""
        if asked is None or b'"result"' not in body or b'"jsonrpc"' not in body:
            return None
        message = await in_steps(self._reader.answer(body, asked))
        return self.stand_ins.stand_in(message) if isinstance(message, JSONRPCResponse) else None

    async def _answer_in(self, body: bytes, asked: int) -> bytes:
        """What the SDK reads instead of an answer that is long, or does not say to which request."""
        return self.stand_ins.stand_in(await in_steps(self._reader.answer(body, asked)))

    async def _stand_in(self, text: bytes, *, is_of_call: bool = True) -> bytes:
        """What the SDK reads instead of a long event. One that nobody asked for waits until so many bytes may come:
        one that is no answer, or comes where no call's answer is read."""
        message = await in_steps(self._reader.message(text))
        if not is_of_call or not isinstance(message, JSONRPCResponse | JSONRPCError):
            await self._unasked.rest()
            self._unasked.note(len(text))
        return self.stand_ins.stand_in(message)

    def _with_mended_events(self, response: httpx2.Response, held: Held) -> httpx2.Response:
        response = with_mended_events(response, self._admission.masked)
        if isinstance(response.stream, MendedLines):
            response.stream = self._small_events(response.stream, held)
        return response

    def _small_events(self, lines: MendedLines, held: Held) -> SmallEvents:
        return SmallEvents(
            lines, partial(self._stand_in, is_of_call=held.is_of_call), self._rests, self._pace, held
        )

    def _failed(self, request: httpx2.Request, error: UpstreamError) -> httpx2.Response:
        answer = self._standing_for(error, None)
        return httpx2.Response(HTTPStatus.BAD_GATEWAY, json=answer.model_dump(mode="json"), request=request)

    def _event_standing_for(self, request_id: int | None, error: UpstreamError) -> bytes:
        return self._standing_for(error, request_id).model_dump_json().encode()

    def _standing_for(self, error: UpstreamError, request_id: int | None) -> JSONRPCError:
        return JSONRPCError(jsonrpc="2.0", id=request_id, error=self._failures.carry(error))


class SseHttpClient(UpstreamHttpClient):
    """What the SDK's older HTTP+SSE transport sends with. Answers arrive on the stream of events: `take_message` is
    handed its messages, each with its length, and `deliver` those that stand for requests that were not taken.

    Some servers answer the POST of a request only when they have done what it asks for, and the SDK sends nothing else
    until then. So requests are sent in the background here, beside each other.
    """

    def __init__(
        self,
        *parts: Any,
        deliver: Callable[[JSONRPCError], None],
        take_message: Callable[[SessionMessage], Awaitable[None]],
        **options: Any,
    ) -> None:
        super().__init__(*parts, **options)
        self._deliver = deliver
        self._take_message = take_message

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        if request.method == "GET":
            return await self._events(request, options, Held(self._room))
        return await super().send(request, **options)

    async def _ask(self, request: httpx2.Request, options: dict[str, Any]) -> httpx2.Response:
        self._tasks.start_soon(self._followed, super()._ask, request, options)
        return httpx2.Response(HTTPStatus.ACCEPTED, request=request)

    async def _tell(self, request: httpx2.Request, options: dict[str, Any]) -> httpx2.Response:
        response = await super()._tell(request, options)
        if not response.is_error:
            return response
        self._diagnostics.note(f"a notification was not delivered: {status_line(response)}")
        return httpx2.Response(HTTPStatus.ACCEPTED, request=request)

    def _small_events(self, lines: MendedLines, held: Held) -> SmallEvents:
        return SmallEvents(lines, self._read_message, self._rests, self._pace, held, most_bytes=0)

    async def _read_message(self, text: bytes) -> bytes:
        message = await in_steps(self._reader.message(text))
        if isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
            answered = coerce_request_id(message.id)
            if isinstance(answered, int):  # nobody waits for what its POST is answered with
                self._posts.give_up(answered)
        await self._take_message(MeasuredMessage(message, len(text)))
        return b""

    async def _readable(self, response: httpx2.Response, held: Held) -> httpx2.Response:
        if response.next_request is not None:
            return await _redirect(response)
        if not response.is_error:
            return await without_body(response, _MAX_UNHEEDED_BYTES)
        body = await _read_capped(response, held, self._pace)
        if response.status_code == HTTPStatus.NOT_FOUND:
            raise UpstreamSessionError("no longer knows this session")
        told = await in_steps(self._admission.masked(body[:STEP_BYTES]))
        raise refusal(response, told, self._diagnostics.scrub)

    def _failed(self, request: httpx2.Request, error: UpstreamError) -> httpx2.Response:
        self._deliver(self._standing_for(error, asked_id(request.content)))
        return httpx2.Response(HTTPStatus.ACCEPTED, request=request)


_MAX_UNHEEDED_BYTES: Final = 64 * 1024


async def _redirect(response: httpx2.Response) -> httpx2.Response:
    """One that the SDK follows, or says why not.

    Raises:
        UpstreamAnswerError: Nobody can: to a POST it may say that the request was carried out, and where to look now.
    """
    bare = await without_body(response, _MAX_UNHEEDED_BYTES)
    following = bare.next_request
    if following is None or following.method == bare.request.method:
        return bare
    place = f"a redirect to {following.url}, where the call would be lost"
    raise UpstreamAnswerError(f"{status_line(bare)}: {place}; use that URL if the server is there")


def _answer(response: httpx2.Response, status: int, content: bytes) -> httpx2.Response:
    """The same with another body, which may be an answer in spite of its status."""
    headers = headers_without_body(response)
    return httpx2.Response(status, headers=headers, content=content, request=response.request)


async def _read_capped(response: httpx2.Response, held: Held, pace: Pace) -> bytes:
    body = PiledText()
    drips, mark = Drips(), ByteOrderMark()
    try:
        async for chunk in unpacked(response):
            await drips.rest(chunk)
            await pace.keep(chunk, len(body))
            body.add(mark.dropped_from(chunk))
            if len(body) > MAX_MESSAGE_BYTES:
                raise UpstreamAnswerError(f"the answer is longer than {MAX_MESSAGE_BYTES} bytes")
            held.hold(len(body))
    finally:
        await response.aclose()
    return await in_steps(body.taken())


def _fit(body: bytes) -> Steps[bytes]:
    """The same JSON, fit for the SDK's parser."""
    return (yield from shallow((yield from mended(body))))
