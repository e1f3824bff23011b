"""The JSON-RPC connection to one upstream, and how it ended."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import Any, Final, Self

import anyio
import anyio.lowlevel
from mcp.shared.dispatcher import (
    CallOptions,
    DispatchContext,
    OnNotify,
    OnNotifyIntercept,
    OnRequest,
    coerce_request_id,
    run_notify_intercept,
)
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    INVALID_REQUEST,
    ErrorData,
    JSONRPCError,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)
from opentelemetry.trace import get_current_span
from pydantic_core import to_json

from manifests.json_value import Json
from upstreams.errors import UpstreamCutOffError, UpstreamFaultError, UpstreamLostError, UpstreamSilentError
from upstreams.messages import REQUEST_UNITS, InboundLimits, Received, failure_of

MAX_REQUEST_BYTES: Final = 500_000
"""Of one request of the upstream: the SDK validates each value of it, and nobody is served meanwhile."""

_LOSSES: Final = (UpstreamLostError, UpstreamFaultError, UpstreamSilentError)
_DIRECT_OPTIONS: Final = {"request_id", "headers"}


class Wire(JSONRPCDispatcher):
    """The SDK's boundary between JSON-RPC and typed MCP, and therefore where the portal takes hold.

    Requests go through `send_raw_request` and come back as raw JSON. The SDK's typed layer above would refuse
    a whole listing for one malformed tool, drop what it does not know and fail results that miss their
    outputSchema. Here is one place for both eras and all three transports, and it is public API.
    """

    def __init__(
        self,
        read_stream: Any,  # the SDK's stream protocols have no public name
        write_stream: Any,
        limits: InboundLimits,
        *,
        last_words: Callable[[], str] = lambda: "",
        exit_status: Callable[[], Awaitable[str]] | None = None,
        closes_requests: bool = False,
        send_line: Callable[[bytes], Awaitable[None]] | None = None,
    ) -> None:
        """`send_line` is how a transport of lines sends small requests directly; see `_ask_directly`."""
        super().__init__(_Incoming(read_stream, self), write_stream)
        self._ids = count(1)
        self._awaited: dict[RequestId, asyncio.Future[JSONRPCResponse | JSONRPCError] | None] = {}
        """Requests under way; those that were sent directly have a future."""
        self._limits = limits
        self._send_line = send_line
        self._exit_status = exit_status
        self._reason = ""
        self.closes_requests = closes_requests
        """Whether a request that is given up is closed, and with it all that may be said about it."""
        self.on_notification: Callable[[str, Mapping[str, Json]], None] = lambda method, params: None
        """Hears each notification that the SDK does not handle, before anything that comes after it."""
        self.on_answer: Callable[[RequestId | None], bool] = lambda request_id: False
        """Hears the id of each request that is answered, also too late; whether it is its first answer."""
        self.last_words = last_words
        self.cut_off_reason = ""
        """Why the portal closed the connection, if it was for what the upstream sent."""
        self.ended = anyio.Event()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None, **more: Any
    ) -> dict[str, Any]:
        """As the SDK's, and directly where the SDK has nothing to add."""
        options: CallOptions = {"request_id": next(self._ids), **(opts or {})}
        request_id = options["request_id"]
        key = coerce_request_id(request_id)
        self._awaited[key] = None
        try:
            # Progress, and spans where the caller has one, are the SDK's.
            is_plain = not more and options.keys() <= _DIRECT_OPTIONS
            if self._send_line and is_plain and not get_current_span().get_span_context().is_valid:
                return await self._ask_directly(self._send_line, request_id, method, params or {})
            return await super().send_raw_request(method, params, options, **more)
        finally:
            del self._awaited[key]

    async def _ask_directly(
        self,
        send_line: Callable[[bytes], Awaitable[None]],
        request_id: RequestId,
        method: str,
        params: Mapping[str, Json],
    ) -> dict[str, Json]:
        """A request as one line, and its answer as it is read.

        The SDK makes a message, two streams, a cancel scope and a span for each request, which a script that makes one
        call after the other waits for each time (`five_calls` of `python -m benchmarks.portal`).
        """
        await anyio.lowlevel.checkpoint_if_cancelled()  # before it was sent there is nothing to take back
        if self.ended.is_set():
            raise _closed()
        line = to_json(
            {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}, inf_nan_mode="null"
        )
        answered = asyncio.get_running_loop().create_future()
        self._awaited[coerce_request_id(request_id)] = answered
        try:
            await send_line(line + b"\n")
            answer = await answered
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise _closed() from None
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                reason = {"requestId": request_id, "reason": "caller cancelled"}
                await self.notify("notifications/cancelled", reason)
            raise
        finally:
            if not answered.cancel() and not answered.cancelled():
                answered.exception()  # seen, also where the line could not be sent any more
        if isinstance(answer, JSONRPCError):
            raise MCPError(answer.error.code, answer.error.message, answer.error.data)
        result: dict[str, Json] = answer.result
        return result

    def is_wanted(self, item: SessionMessage) -> bool:
        """Whether the SDK is to handle a message that came; counts those that nobody asked for.

        Raises:
            UpstreamCutOffError: There are too many of those.
        """
        message = item.message
        size_bytes = item.metadata.size_bytes if isinstance(item.metadata, Received) else 0
        if not isinstance(message, JSONRPCResponse | JSONRPCError):
            self._limits.take_unsolicited(
                size_bytes, REQUEST_UNITS if isinstance(message, JSONRPCRequest) else 1
            )
            return True
        # After a lost answer the upstream may still work on the request.
        is_loss = isinstance(message, JSONRPCError) and is_lost(message.error)
        is_first = not is_loss and self.on_answer(message.id)
        key = None if message.id is None else coerce_request_id(message.id)
        if key not in self._awaited:
            if not is_first and not is_loss:
                self._limits.take_unsolicited(size_bytes)
            return False
        answered = self._awaited[key]
        if answered is None:
            return True
        if not answered.done():
            answered.set_result(message)
        return False

    def give_up(self, reason: str) -> None:
        """Nothing sent from now on would arrive; whoever holds the connection should open a new one."""
        self._reason = self._reason or reason
        self.ended.set()

    def cut_off(self, error: UpstreamCutOffError) -> None:
        """End it because of what the upstream sent."""
        self.cut_off_reason = self.cut_off_reason or str(error)
        self.give_up(f"was cut off: {error}")

    async def explain_end(self) -> str:
        """Why it ended, for a human; waits a moment for the exit status of a child."""
        if self._reason:
            return self._reason
        status = await self._exit_status() if self._exit_status else "closed the connection"
        return with_last_words(status, self.last_words())

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        **options: Any,  # passed on as they are
    ) -> None:
        def intercept(method: str, params: Mapping[str, Json] | None) -> bool:
            # The SDK knows the events of its subscriptions; it would make a task and a model of all others.
            if not run_notify_intercept(on_notify_intercept, method, params):
                self.on_notification(method, params or {})
            return True

        async def bounded(
            context: DispatchContext[Any], method: str, params: Mapping[str, Any] | None
        ) -> dict[str, Any]:
            metadata = context.message_metadata
            if isinstance(metadata, Received) and metadata.size_bytes > MAX_REQUEST_BYTES:
                raise MCPError(
                    INVALID_REQUEST, f"requests of more than {MAX_REQUEST_BYTES} bytes are not read"
                )
            return await on_request(context, method, params)

        try:
            await super().run(bounded, on_notify, intercept, **options)
        finally:
            self.ended.set()
            for answered in self._awaited.values():
                if answered is not None and not answered.done():
                    answered.set_exception(_closed())


class _Incoming:
    """The messages that come, but for answers that are taken directly or that nobody waits for."""

    def __init__(self, stream: Any, wire: Wire) -> None:
        self._stream = stream
        self._wire = wire

    @property
    def last_context(self) -> Any:
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Any:
        return await self.__anext__()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            async for item in self._stream:
                if not isinstance(item, SessionMessage) or self._wire.is_wanted(item):
                    return item
        except UpstreamCutOffError as error:
            self._wire.cut_off(error)
        raise StopAsyncIteration

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> bool | None:
        result: bool | None = await self._stream.__aexit__(*error)
        return result


def is_closed(error: ErrorData) -> bool:
    """Whether the SDK says that no answer can come. Servers use the same code for errors of their own."""
    phrases = ("Connection closed", "SSE stream")
    return error.code == CONNECTION_CLOSED and error.message.startswith(phrases)


def is_lost(error: ErrorData) -> bool:
    """Whether the answer was lost or says nothing, so that the upstream may still work on the request."""
    return isinstance(failure_of(error), _LOSSES) or is_closed(error)


def _closed() -> MCPError:
    """What the SDK raises when no answer can come any more."""
    return MCPError(code=CONNECTION_CLOSED, message="Connection closed")


def with_last_words(reason: str, last_words: str) -> str:
    return f"{reason}; its stderr ended with: {last_words}" if last_words else reason
