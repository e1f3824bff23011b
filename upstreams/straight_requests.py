"""Requests whose answers go straight from the stream to who waits for them.

The SDK's dispatcher makes a message, two streams, a cancel scope and a span for each request, which a script that
makes one call after the other waits for each time (`five_calls` of `python -m benchmarks.portal`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import anyio
from mcp.shared.dispatcher import CallOptions, coerce_request_id
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, JSONRPCError, JSONRPCResponse, RequestId
from opentelemetry.trace import get_current_span
from pydantic_core import to_json

from manifests.json_value import Json

_OPTIONS: Final = {"request_id", "headers"}


class StraightRequests:
    """Those of one connection over lines, which knows of no headers."""

    def __init__(self, send_line: Callable[[bytes], Awaitable[None]]) -> None:
        self._send_line = send_line
        self._waiting: dict[RequestId, asyncio.Future[JSONRPCResponse | JSONRPCError]] = {}
        self._is_open = True

    def takes(self, options: CallOptions) -> bool:
        """Whether a request needs no more than its answer: nobody hears of its progress, and no trace."""
        return (
            self._is_open
            and options.get("request_id") is not None
            and options.keys() <= _OPTIONS
            and not get_current_span().get_span_context().is_valid
        )

    async def ask(self, request_id: RequestId, method: str, params: Mapping[str, Json]) -> dict[str, Json]:
        """The result.

        Raises:
            MCPError: As of `JSONRPCDispatcher.send_raw_request`.
        """
        line = to_json(
            {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}, inf_nan_mode="null"
        )
        answered: asyncio.Future[JSONRPCResponse | JSONRPCError] = asyncio.get_running_loop().create_future()
        self._waiting[coerce_request_id(request_id)] = answered
        try:
            await self._send_line(line + b"\n")
            answer = await answered
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise closed() from None
        finally:
            self._waiting.pop(coerce_request_id(request_id), None)
            if answered.done() and not answered.cancelled():
                answered.exception()  # seen, also where the line could not be sent any more
        if isinstance(answer, JSONRPCError):
            error = answer.error
            raise MCPError(code=error.code, message=error.message, data=error.data)
        return answer.result

    def answered(self, answer: JSONRPCResponse | JSONRPCError) -> bool:
        """Whether it was for one of these."""
        waiting = None if answer.id is None else self._waiting.pop(coerce_request_id(answer.id), None)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)
        return waiting is not None

    def close(self) -> None:
        """No more answers come."""
        self._is_open = False
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(closed())
        self._waiting.clear()


def closed() -> MCPError:
    """What the SDK raises when no answer can come any more."""
    return MCPError(code=CONNECTION_CLOSED, message="Connection closed")
