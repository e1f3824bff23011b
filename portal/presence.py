"""Whether the client that asked is still there to be told the answer."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.requests import Request

_Result = TypeVar("_Result")


async def while_present(
    context: ServerRequestContext[Any, Any],
    work: Callable[[], Awaitable[_Result]],
    absent: Callable[[], _Result],
) -> _Result:
    """What the work comes to. When its HTTP connection ends before, the work is cancelled, and it comes to `absent`.

    The SDK does so itself since revision 2026-07-28. The earlier ones let a client come back for its answer, which
    takes a store of events that the portal has not: nobody could be told.

    Source: MCP 2025-11-25, basic/transports#resumability-and-redelivery.
    """
    request = context.request
    if not isinstance(request, Request) or context.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return await work()
    result: _Result | None = None
    async with anyio.create_task_group() as tasks:

        async def watch() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass
            tasks.cancel_scope.cancel()

        tasks.start_soon(watch)
        result = await work()
        tasks.cancel_scope.cancel()
    return absent() if result is None else result
