"""The JSON-RPC connection to one upstream, and how it ended."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, NamedTuple, TypeAlias

import anyio
import anyio.lowlevel
import mcp_types as types
import structlog
from anyio.abc import ObjectReceiveStream
from mcp.shared import dispatcher
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import ClientMessageMetadata, SessionMessage

from manifests.json_value import Json
from upstreams.errors import UpstreamAnswerError, UpstreamCutOffError, UpstreamError, describe
from upstreams.transports.messages import STRAY_ANSWER_UNITS, InboundLimits, failure_of, known_handshake
from upstreams.transports.notifications import AbandonedRequests, Notifications

log = structlog.get_logger()

_CLOSED: Final = object()

MAY_BE_OF_ABANDONED: Final = ContextVar("MAY_BE_OF_ABANDONED", default=True)
"""Whether the upstream's request that is handled may belong to an abandoned call; not on another call's own stream."""

Answer: TypeAlias = types.JSONRPCResponse | types.JSONRPCError

ProgressHandler: TypeAlias = Callable[[float, float | None, str | None], None]
"""Called with the progress of a call, the total if known, and a message."""


class _Request(NamedTuple):
    """A request in flight."""

    answered: asyncio.Future[Answer]
    progress: ProgressHandler | None
    is_subscription: bool
    """It stays open by design."""


class Wire(JSONRPCDispatcher):
    """The SDK's JSON-RPC layer below typed MCP: answers are raw JSON, on all transports.

    The typed layer refuses a whole listing for one malformed tool, drops unknown fields, and rejects results that
    violate their outputSchema.
    """

    def __init__(
        self,
        read_stream: Any,  # the SDK's stream protocols have no public name
        write_stream: Any,
        limits: InboundLimits,
        *,
        closes_requests: bool = False,
        send_at_once: Callable[[SessionMessage], bool] = lambda _: False,
        ending: "Ending | None" = None,
    ) -> None:
        super().__init__(_Incoming(read_stream, self), write_stream)
        self._ids = count(1)
        self._requests = write_stream
        self._send_at_once = send_at_once
        self._awaited: dict[types.RequestId, _Request] = {}
        self._limits = limits
        self.closes_requests = closes_requests
        """Whether each request has its own stream, which is closed if it is abandoned."""
        self.notifications = Notifications()
        self.abandoned = AbandonedRequests()
        """Abandoned calls, whose requests are not answered."""
        self.ending = ending or Ending()
        self._has_ended = False

    async def send_raw_request(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        opts: dispatcher.CallOptions | None = None,
        *,
        progress: ProgressHandler | None = None,
        owners: Collection[str | None] = (),
        **_: Any,
    ) -> dict[str, Any]:
        """Send a request and return its raw answer. How long to wait is up to the caller, whatever `opts` say.

        If the caller gives up, the request still belongs to its `owners` until it is answered.
        The SDK's method creates two streams, a scope and a span per request, which slows sequential calls (`five_calls`
        of `python -m benchmarks.portal`).
        Raises MCPError: the answer is an error, or does not come; then `failure_of` or `is_closed` tells why.
        """
        options = opts or {}
        request_id = options.get("request_id", next(self._ids))
        await anyio.lowlevel.checkpoint_if_cancelled()  # nothing was sent yet, so nothing has to be cancelled
        # A retired connection still takes the answers of a person for a call that began on it.
        if self._has_ended or self.ending.cut_off_reason:
            raise _closed()
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        key = dispatcher.coerce_request_id(request_id)
        self._awaited[key] = _Request(answered, progress, method == "subscriptions/listen")
        if progress is not None:
            params = {
                **(params or {}),
                "_meta": {**(params or {}).get("_meta", {}), "progressToken": request_id},
            }
        try:
            more: dict[str, Any] = {"params": dict(params)} if params else {}
            request = types.JSONRPCRequest(jsonrpc="2.0", id=request_id, method=method, **more)
            await self._send(request, options.get("headers"), answered)
            answer = await answered
        except (anyio.get_cancelled_exc_class(), MCPError) as error:
            failure = failure_of(error.error) if isinstance(error, MCPError) else None
            is_sent = failure is None or failure.outcome == "unknown"
            is_open = key in self._awaited and (answered.cancelled() or not answered.done())
            if is_sent and is_open:
                for owner in owners:
                    self.abandoned.add(key, owner)
            if not isinstance(error, MCPError) and options.get("cancel_on_abandon", True):
                # The notice has to be sent although the caller is cancelled.
                with anyio.CancelScope(shield=True):
                    reason = {"requestId": request_id, "reason": "caller cancelled"}
                    await self.notify("notifications/cancelled", reason)
            raise
        finally:
            self._awaited.pop(key, None)
            if not answered.cancel() and not answered.cancelled():
                answered.exception()  # mark it as retrieved, also if the request was not sent
        if isinstance(answer, types.JSONRPCError):
            raise MCPError(answer.error.code, answer.error.message, answer.error.data)
        result: dict[str, Json] = answer.result
        return known_handshake(result) if method == "initialize" else result

    async def _send(
        self,
        request: types.JSONRPCRequest,
        headers: dict[str, str] | None,
        answered: asyncio.Future[Answer],
    ) -> None:
        """Send a request until it is answered, even if the transport would take longer."""
        message = SessionMessage(request, ClientMessageMetadata(headers=headers))
        try:
            if self._send_at_once(message):
                return
            with anyio.CancelScope() as sending:
                answered.add_done_callback(lambda _: sending.cancel())
                await self._requests.send(message)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise _closed() from None
        except UpstreamError as failure:
            if isinstance(failure, UpstreamCutOffError):
                self.ending.cut_off(failure)
            raise MCPError(types.INTERNAL_ERROR, str(failure), failure) from failure
        except Exception as error:  # what a stranger sends may raise anything: the call alone fails
            log.exception("answer_not_read", method=request.method)
            unread = UpstreamAnswerError(f"the answer cannot be read: {describe(error)}")
            raise MCPError(types.INTERNAL_ERROR, str(unread), unread) from error

    def is_wanted(self, item: SessionMessage) -> bool:
        """Whether the SDK should handle a message. Raises UpstreamCutOffError: too many unsolicited messages."""
        message = item.message
        if not isinstance(message, Answer):
            return True
        request_id = message.id
        if request_id is None and isinstance(message, types.JSONRPCError):
            # An error without an id answers the only request in flight, unless it may answer an abandoned one.
            waiting = [key for key, request in self._awaited.items() if not request.is_subscription]
            request_id = waiting[0] if len(waiting) == 1 and not self.abandoned.owners() else None
        key = None if request_id is None else dispatcher.coerce_request_id(request_id)
        request = None if key is None else self._awaited.get(key)
        if request is not None and not request.answered.done():
            request.answered.set_result(message)
        elif (
            key is not None and request is not None and request.answered.cancelled()
        ):  # its caller does not know yet
            del self._awaited[key]
            self.abandoned.answered(key)
        elif not self.abandoned.answered(key):
            self._limits.take_unsolicited(STRAY_ANSWER_UNITS)
        return False

    def awaits(self, request_id: types.RequestId | None) -> bool:
        return request_id is not None and dispatcher.coerce_request_id(request_id) in self._awaited

    def _handle_progress(self, params: Mapping[str, Json]) -> None:
        token = dispatcher.as_request_id(params.get("progressToken"))
        done, total, message = params.get("progress"), params.get("total"), params.get("message")
        request = None if token is None else self._awaited.get(dispatcher.coerce_request_id(token))
        if request and request.progress and isinstance(done, int | float):
            total = total if isinstance(total, int | float) else None
            request.progress(done, total, message if isinstance(message, str) else None)

    async def run(
        self,
        on_request: dispatcher.OnRequest,
        on_notify: dispatcher.OnNotify,
        on_notify_intercept: dispatcher.OnNotifyIntercept | None = None,
        **options: Any,  # passed on unchanged
    ) -> None:
        def intercept(method: str, params: Mapping[str, Json] | None) -> bool:
            # The SDK handles the events of its subscriptions. For others it would create a task and a model each.
            if method == "notifications/progress":
                self._handle_progress(params or {})
            elif not dispatcher.run_notify_intercept(on_notify_intercept, method, params):
                self.notifications.handle(method)
            return True

        async def handle(
            context: dispatcher.DispatchContext[Any], method: str, params: Mapping[str, Any] | None
        ) -> dict[str, Any]:
            # Each request is handled in its own task.
            MAY_BE_OF_ABANDONED.set(context.message_metadata is None)
            return await on_request(context, method, params)

        try:
            await super().run(handle, on_notify, intercept, **options)
        finally:
            self._has_ended = True
            self.ending.ended.set()
            for request in self._awaited.values():
                if not request.answered.done():
                    request.answered.set_exception(_closed())


@dataclass(eq=False)
class Ending:
    """Whether and why a connection ended. Over HTTP there is no process with an exit status and a stderr."""

    exit_status: Callable[[], Awaitable[str]] | None = None
    last_stderr_line: Callable[[], str] = lambda: ""
    forget_stderr: Callable[[], Awaitable[None]] = anyio.lowlevel.checkpoint
    ended: anyio.Event = field(default_factory=anyio.Event)
    cut_off_reason: str = ""
    """Why the portal cut the upstream off, or ""."""
    _reason: str = ""

    def give_up(self, reason: str) -> None:
        """Mark the connection as ended, so that its owner opens a new one."""
        self._reason = self._reason or reason
        self.ended.set()

    def cut_off(self, error: UpstreamCutOffError) -> None:
        """End the connection because of what the upstream sent."""
        self.cut_off_reason = self.cut_off_reason or str(error)
        self.give_up(f"was cut off: {error}")

    async def explain(self) -> str:
        """Why it ended, for people. Waits briefly for the exit status of a child."""
        if self._reason:
            return self._reason
        return self.with_stderr(await self.exit_status() if self.exit_status else "closed the connection")

    def with_stderr(self, reason: str) -> str:
        last = self.last_stderr_line()
        return f"{reason}; its stderr ended with: {last}" if last else reason


class _Incoming(ObjectReceiveStream[Any]):
    """The incoming messages except answers, which go directly to their waiting requests."""

    def __init__(self, stream: Any, wire: Wire) -> None:
        self._stream = stream
        self._wire = wire

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def receive(self) -> Any:
        try:
            async for item in self._stream:
                if self._wire.is_wanted(item):
                    return item
        except UpstreamCutOffError as error:
            self._wire.ending.cut_off(error)
        raise anyio.EndOfStream


def is_closed(error: types.ErrorData) -> bool:
    """Whether the connection ended before an answer. Servers use the same error code for their own errors."""
    return error.data is _CLOSED


def _closed() -> MCPError:
    return MCPError(types.CONNECTION_CLOSED, "Connection closed", _CLOSED)
