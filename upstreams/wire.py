"""What carries JSON-RPC messages between the portal and one upstream, and how it ended."""

import secrets
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import Any, Final

import anyio
import anyio.lowlevel
from mcp.shared.dispatcher import (
    CallOptions,
    DispatchContext,
    OnNotify,
    OnNotifyIntercept,
    OnRequest,
    coerce_request_id,
)
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, INVALID_REQUEST, ErrorData, JSONRPCError, RequestId

from manifests.json_value import Json
from upstreams.errors import UpstreamError, UpstreamFaultError, UpstreamLostError, UpstreamSilentError
from upstreams.json_size import is_larger
from upstreams.stand_ins import StandIns
from upstreams.straight_requests import StraightRequests
from upstreams.unasked import Answer, UnaskedStream

MAX_REQUEST_CHARACTERS: Final = 500_000
"""Of one request of the upstream, text and values: the SDK looks at each of them, and nobody is served meanwhile."""

MAX_REQUEST_VALUES: Final = 20_000
"""Of the same, because each value costs as much as very many characters."""

_LOSSES: Final = (UpstreamLostError, UpstreamFaultError, UpstreamSilentError)

MAX_CARRIED: Final = 20_000
"""Errors that are on their way to the call that they are of: more than calls are under way when an upstream dies."""


class Wire(JSONRPCDispatcher):
    """The SDK's own boundary between JSON-RPC and typed MCP, and therefore where the portal takes hold.

    Requests go through `send_raw_request` and come back as raw JSON. The SDK's typed layer above would refuse
    a whole listing for one malformed tool, drop what it does not know and fail results that miss their
    outputSchema; a filter on the streams below would have to correlate ids, and differently for each
    transport. Here is one place for both eras and all three transports, and it is public API.
    """

    def __init__(
        self,
        read_stream: Any,  # the SDK's stream protocols have no public name
        write_stream: Any,
        *,
        failures: "Failures | None" = None,
        last_words: Callable[[], str] = lambda: "",
        exit_status: Callable[[], Awaitable[str]] | None = None,
        closes_requests: bool = False,
        send_line: Callable[[bytes], Awaitable[None]] | None = None,
        stand_ins: StandIns | None = None,
    ) -> None:
        taken = (stand_ins or StandIns()).taken
        stream = UnaskedStream(
            read_stream, self._note_excess, self._is_asked_for, self._is_awaited, self._take_answer, taken
        )
        super().__init__(stream, write_stream)
        self._ids = count(1)
        self._awaited: set[RequestId] = set()
        self._straight = StraightRequests(send_line) if send_line else None
        self.closes_requests = closes_requests
        """Whether since 2026-07-28 a request that is given up is closed, and with it all that is said about it."""
        self.on_excess: Callable[[str | None], None] = lambda method: None
        """Hears the method of each notification that was one too many, and None when many answers were."""
        self.on_notification: Callable[[str, Mapping[str, Json]], bool] = lambda method, params: False
        """Hears of each other notification before anything that comes after it; whether nobody else needs to."""
        self.on_answer: Callable[[RequestId | None], bool] = lambda request_id: False
        """Hears the id of each request that is answered, also too late; whether it is its first answer."""
        self.failures = failures or Failures()
        self.last_words = last_words
        self._exit_status = exit_status
        self._reason = ""
        self.ended = anyio.Event()

    def _note_excess(self, method: str | None) -> None:
        self.on_excess(method)

    def _is_asked_for(self, answer: Answer) -> bool:
        """Whether it is the first one to a call, also one that was given up."""
        is_loss = isinstance(answer, JSONRPCError) and self._is_loss(answer.error)
        return not is_loss and self.on_answer(answer.id)

    def _is_awaited(self, answer: Answer) -> bool:
        """Whether it is the first one to a request that somebody waits for."""
        request_id = None if answer.id is None else coerce_request_id(answer.id)
        if request_id not in self._awaited:
            return False
        self._awaited.discard(request_id)
        return True

    def _is_loss(self, error: ErrorData) -> bool:
        """Whether the answer was lost or says nothing, so that the upstream may still work on the request."""
        return self.failures.is_loss(error) or is_closed(error)

    def _take_answer(self, answer: Answer) -> bool:
        return self._straight is not None and self._straight.answered(answer)

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None, **more: Any
    ) -> dict[str, Any]:
        """As the SDK's, and cheaper where the SDK has nothing to add."""
        options: CallOptions = {"request_id": next(self._ids), **(opts or {})}
        request_id = options["request_id"]
        awaited = coerce_request_id(request_id)
        self._awaited.add(awaited)
        try:
            if more or opts is None or self._straight is None or not self._straight.takes(opts):
                return await super().send_raw_request(method, params, options, **more)
            return await self._ask_straight(self._straight, request_id, method, params)
        finally:
            self._awaited.discard(awaited)

    async def _ask_straight(
        self, straight: StraightRequests, request_id: RequestId, method: str, params: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        await anyio.lowlevel.checkpoint_if_cancelled()  # before it was sent there is nothing to take back
        try:
            return await straight.ask(request_id, method, params or {})
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self.notify(
                    "notifications/cancelled", {"requestId": request_id, "reason": "caller cancelled"}
                )
            raise

    def give_up(self, reason: str) -> None:
        """Nothing sent from now on would arrive; whoever holds the connection should open a new one."""
        self._reason = self._reason or reason
        self.ended.set()

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
            if self.on_notification(method, params or {}):
                return True
            return on_notify_intercept is not None and on_notify_intercept(method, params)

        async def bounded(
            context: DispatchContext[Any], method: str, params: Mapping[str, Any] | None
        ) -> dict[str, Any]:
            if is_larger(params, MAX_REQUEST_CHARACTERS, MAX_REQUEST_VALUES):
                most = f"{MAX_REQUEST_CHARACTERS} characters or {MAX_REQUEST_VALUES} values"
                raise MCPError(INVALID_REQUEST, f"more than {most} are not read")
            return await on_request(context, method, params)

        try:
            await super().run(bounded, on_notify, intercept, **options)
        finally:
            self.ended.set()
            if self._straight is not None:
                self._straight.close()


def is_closed(error: ErrorData) -> bool:
    """Whether the SDK says that no answer can come. Servers use the same code for errors of their own."""
    phrases = ("Connection closed", "SSE stream")
    return error.code == CONNECTION_CLOSED and error.message.startswith(phrases)


def is_unreadable_stream(error: ErrorData) -> bool:
    """Whether the SDK says that it does not read on, in the events that were to bring the answer."""
    return is_closed(error) and error.message.startswith("SSE stream failed")


class Failures:
    """Takes errors found below the SDK past it: between transport and caller it knows only JSON-RPC errors."""

    def __init__(self) -> None:
        self._carried: dict[str, UpstreamError] = {}

    def carry(self, error: UpstreamError) -> ErrorData:
        """The JSON-RPC error that stands for `error`; its token cannot be guessed by an upstream."""
        token = secrets.token_hex(16)
        # With the traceback, and those of what led to it, goes all that was read of the answer.
        error.__traceback__ = error.__cause__ = error.__context__ = None
        self._carried[token] = error
        if len(self._carried) > MAX_CARRIED:  # nobody claims those that answered nothing
            del self._carried[next(iter(self._carried))]
        return ErrorData(code=INTERNAL_ERROR, message=str(error), data=token)

    def is_loss(self, error: ErrorData) -> bool:
        """Whether it stands for an answer that was lost or says nothing: the upstream may still work on the request."""
        return isinstance(error.data, str) and isinstance(self._carried.get(error.data), _LOSSES)

    def claim(self, error: MCPError) -> UpstreamError | None:
        token = error.error.data
        return self._carried.pop(token, None) if isinstance(token, str) else None


def with_last_words(reason: str, last_words: str) -> str:
    return f"{reason}; its stderr ended with: {last_words}" if last_words else reason
