"""Records the requests of clients to the portal, and those of the portal to its upstreams."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from mcp.server._otel import OpenTelemetryMiddleware
from mcp.server.context import CallNext, HandlerResult, ServerMiddleware, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types.methods import SPEC_CLIENT_METHODS, SPEC_CLIENT_NOTIFICATION_METHODS
from starlette.requests import Request

from manifests.portal_manifest import StdioUpstream
from portal.definitions import DOCS_SEARCH, EXECUTE_CODE
from portal.telemetry import instruments
from portal.telemetry.telemetry import Telemetry, client_context
from upstreams.errors import UpstreamError
from upstreams.session import Session
from upstreams.supervisor import Supervisor
from upstreams.tools import ToolResult

T = TypeVar("T")

OTHER: Final = "_OTHER"
"""Stands for a method that the server does not know: clients can make up any number of them."""


def record_requests(server: Server[Any], telemetry: Telemetry) -> None:
    """Record the requests to this server.

    The SDK's middleware does the same with the tracer of the whole process, and writes what clients send into names,
    messages and tracebacks. So it is replaced; without telemetry only removed, which makes each request cheaper.
    """
    others = [each for each in server.middleware if not isinstance(each, OpenTelemetryMiddleware)]
    own = [_ClientRequests(telemetry, server)] if telemetry.is_on else []
    server.middleware = [*own, *others]


@dataclass(frozen=True)
class _ClientRequests(ServerMiddleware[Any]):
    telemetry: Telemetry
    server: Server[Any]

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        method, params = self._method(ctx.method), ctx.params or {}
        name, attributes = method, self._attributes(ctx, method)
        if method == "tools/call":
            attributes |= {
                instruments.OPERATION: instruments.EXECUTE_TOOL,
                **self.telemetry.shown(instruments.ARGUMENTS, params.get("arguments")),
            }
            if (tool := params.get("name")) in (DOCS_SEARCH, EXECUTE_CODE):
                name, attributes[instruments.TOOL] = f"{method} {tool}", tool
        parent = client_context(ctx.meta)
        with self.telemetry.operation(instruments.REQUEST, name, attributes, parent=parent) as observed:
            try:
                result = await call_next(ctx)
            except MCPError as error:
                observed.set({instruments.RPC_CODE: str(error.error.code)})
                observed.fail(str(error.error.code))
                raise
            if method == "tools/call" and isinstance(result, dict):  # as it is sent
                observed.set(self.telemetry.shown(instruments.RESULT, result.get("content")))
                if result.get("isError") is True:
                    observed.fail("tool_error")
            return result

    def _method(self, method: str) -> str:
        is_spec = method in SPEC_CLIENT_METHODS or method in SPEC_CLIENT_NOTIFICATION_METHODS
        return method if is_spec or self.server.get_request_handler(method) is not None else OTHER

    def _attributes(self, ctx: ServerRequestContext[Any, Any], method: str) -> dict[str, str | int]:
        transport = "tcp" if isinstance(ctx.request, Request) else "pipe"
        attributes: dict[str, str | int] = {instruments.METHOD: method, instruments.TRANSPORT: transport}
        if ctx.protocol_version:
            attributes[instruments.PROTOCOL] = ctx.protocol_version
        if isinstance(ctx.request_id, int):  # a text may say anything
            attributes[instruments.REQUEST_ID] = str(ctx.request_id)
        return attributes


@dataclass(frozen=True)
class UpstreamRequests:
    """Records each attempt of a request to an upstream."""

    telemetry: Telemetry

    async def __call__(
        self, upstream: Supervisor, session: Session, method: str, tool: str, send: Callable[[], Awaitable[T]]
    ) -> T:
        transport = "pipe" if isinstance(upstream.spec, StdioUpstream) else "tcp"
        attributes: dict[str, str | int] = {
            instruments.METHOD: method,
            instruments.UPSTREAM: upstream.name,
            instruments.TRANSPORT: transport,
        }
        if session.version:
            attributes[instruments.PROTOCOL] = session.version
        if tool:
            attributes |= {instruments.OPERATION: instruments.EXECUTE_TOOL, instruments.TOOL: tool}
        name = f"{method} {tool}" if tool else method
        with self.telemetry.operation(instruments.UPSTREAM_REQUEST, name, attributes) as observed:
            try:
                result = await send()
            except UpstreamError as error:
                if error.rpc_code is not None:
                    observed.set({instruments.RPC_CODE: str(error.rpc_code)})
                observed.fail(error.code)
                raise
            if isinstance(result, ToolResult) and result.is_error:
                observed.fail("tool_error")
            return result
