"""Records the requests of clients to the portal, and those of the portal to its upstreams."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from mcp.server.context import CallNext, HandlerResult, ServerMiddleware, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types.methods import SPEC_CLIENT_METHODS, SPEC_CLIENT_NOTIFICATION_METHODS
from starlette.requests import Request

from manifests.portal_manifest import StdioUpstream
from portal.base.requests import DOCS_SEARCH, EXECUTE_CODE
from portal.records.telemetry import instruments
from portal.records.telemetry.instruments import Attributes
from portal.records.telemetry.telemetry import Telemetry, client_context
from upstreams.errors import UpstreamError
from upstreams.session import Session
from upstreams.supervisor import Supervisor
from upstreams.tools import ToolResult

T = TypeVar("T")

OTHER: Final = "_OTHER"
"""Stands for a method that the server does not know: clients can make up any number of them."""


def record_requests(server: Server[Any], telemetry: Telemetry) -> None:
    """Record the requests to this server.

    The SDK's own middleware, the only one here, does the same with the tracer of the whole process, and writes what
    clients send into names, messages and tracebacks. So it is replaced; without telemetry only removed, which makes
    each request cheaper.
    """
    server.middleware = [_ClientRequests(telemetry, server)] if telemetry.is_on else []


@dataclass(frozen=True)
class _ClientRequests(ServerMiddleware[Any]):
    telemetry: Telemetry
    server: Server[Any]

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        name = method = self._method(ctx.method)
        attributes: Attributes = {
            instruments.METHOD: method,
            instruments.TRANSPORT: "tcp" if isinstance(ctx.request, Request) else "pipe",
            instruments.PROTOCOL: ctx.protocol_version,
        }
        if isinstance(ctx.request_id, int):  # a text may say anything
            attributes[instruments.REQUEST_ID] = str(ctx.request_id)
        if method == "tools/call":
            params = ctx.params or {}
            attributes[instruments.OPERATION] = instruments.EXECUTE_TOOL
            attributes |= self.telemetry.shown(instruments.ARGUMENTS, params.get("arguments"))
            if (tool := params.get("name")) in (DOCS_SEARCH, EXECUTE_CODE):
                name, attributes[instruments.TOOL] = f"{method} {tool}", tool
        with self.telemetry.request.span(name, attributes, parent=client_context(ctx.meta)) as found:
            try:
                result = await call_next(ctx)
            except MCPError as error:
                found[instruments.RPC_CODE] = found[instruments.ERROR] = str(error.error.code)
                raise
            if method == "tools/call" and isinstance(result, dict):  # as it is sent
                found |= self.telemetry.shown(instruments.RESULT, result.get("content"))
                if result.get("isError") is True:
                    found[instruments.ERROR] = "tool_error"
            return result

    def _method(self, method: str) -> str:
        is_spec = method in SPEC_CLIENT_METHODS or method in SPEC_CLIENT_NOTIFICATION_METHODS
        return method if is_spec or self.server.get_request_handler(method) is not None else OTHER


@dataclass(frozen=True)
class UpstreamRequests:
    """Records each attempt of a request to an upstream."""

    telemetry: Telemetry

    async def __call__(
        self, upstream: Supervisor, session: Session, method: str, tool: str, send: Callable[[], Awaitable[T]]
    ) -> T:
        attributes: Attributes = {
            instruments.METHOD: method,
            instruments.UPSTREAM: upstream.name,
            instruments.TRANSPORT: "pipe" if isinstance(upstream.spec, StdioUpstream) else "tcp",
            instruments.PROTOCOL: session.version,
        }
        if tool:
            attributes |= {instruments.OPERATION: instruments.EXECUTE_TOOL, instruments.TOOL: tool}
        name = f"{method} {tool}" if tool else method
        with self.telemetry.upstream_request.span(name, attributes) as found:
            try:
                result = await send()
            except UpstreamError as error:
                found[instruments.ERROR] = error.code
                if error.rpc_code is not None:
                    found[instruments.RPC_CODE] = str(error.rpc_code)
                raise
            if isinstance(result, ToolResult) and result.is_error:
                found[instruments.ERROR] = "tool_error"
            return result
