"""Records the requests of clients and those to upstreams, and registers gauges, which are read when collected."""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar, get_args

import anyio
import structlog
from mcp.server.context import CallNext, HandlerResult, ServerMiddleware, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types.methods import SPEC_CLIENT_METHODS, SPEC_CLIENT_NOTIFICATION_METHODS
from opentelemetry.metrics import CallbackOptions, Observation
from starlette.requests import Request

from manifests.portal_manifest import StdioUpstream
from portal.base.requests import DOCS_SEARCH, EXECUTE_CODE
from portal.records.store.records import OPEN, StoreError
from portal.records.store.run_tables import RunTables
from portal.records.store.writer import RunStore
from portal.records.telemetry import instruments
from portal.records.telemetry.instruments import Attributes, Telemetry, client_context
from sandbox_runtime.sandbox import Sandbox
from upstreams.errors import UpstreamError
from upstreams.fleet import Fleet
from upstreams.health import Status
from upstreams.session import Session
from upstreams.tools import ToolResult
from upstreams.upstream import Upstream

T = TypeVar("T")
Sending: TypeAlias = Callable[[], Awaitable[T]]

log = structlog.get_logger()

OPEN_RUNS_SECONDS: Final = 15.0
"""How often the open runs are counted. A count reads an index of the store."""

OTHER: Final = "_OTHER"
"""Replaces methods that the server does not know: clients can make up any number of them."""


def record_requests(server: Server[Any], telemetry: Telemetry) -> None:
    """Record the requests to this server.

    The SDK's own middleware, the only one here, uses the tracer of the whole process, and records what clients send in
    names, messages and tracebacks. So it is replaced. Without telemetry it is only removed, to make requests cheaper.
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
        if isinstance(ctx.request_id, int):  # a text could be anything
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


async def record_attempt(
    telemetry: Telemetry, upstream: Upstream, session: Session, method: str, tool: str, send: Sending[T]
) -> T:
    attributes: Attributes = {
        instruments.METHOD: method,
        instruments.UPSTREAM: upstream.name,
        instruments.TRANSPORT: "pipe" if isinstance(upstream.spec, StdioUpstream) else "tcp",
        instruments.PROTOCOL: session.revision.version,
    }
    if tool:
        attributes |= {instruments.OPERATION: instruments.EXECUTE_TOOL, instruments.TOOL: tool}
    name = f"{method} {tool}" if tool else method
    with telemetry.upstream_request.span(name, attributes) as found:
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


def observe_portal(telemetry: Telemetry, fleet: Fleet, sandboxes: Callable[[], Collection[Sandbox]]) -> None:
    """Register gauges of the sandboxes that are open, together, and of the upstreams."""

    def waiting(options: CallbackOptions) -> Iterable[Observation]:
        return [Observation(sum(box.waiting for box in sandboxes()))] if sandboxes() else []

    def workers(options: CallbackOptions) -> Iterable[Observation]:
        counts = sum((Counter(box.workers) for box in sandboxes()), Counter[str]())
        states = ("idle", "busy") if sandboxes() else ()
        return [Observation(counts[state], {instruments.STATE: state}) for state in states]

    def states(options: CallbackOptions) -> Iterable[Observation]:
        return [
            Observation(
                int(state == each.state.status), {instruments.UPSTREAM: each.name, instruments.STATE: state}
            )
            for each in fleet
            for state in get_args(Status)
        ]

    def connections(options: CallbackOptions) -> Iterable[Observation]:
        return [Observation(each.connector.opened, {instruments.UPSTREAM: each.name}) for each in fleet]

    gauge, total = telemetry.meter.create_observable_gauge, telemetry.meter.create_observable_counter
    gauge("mcp_code_portal.queue.length", [waiting], "{script}", "Scripts that wait for a process.")
    gauge("mcp_code_portal.workers", [workers], "{process}", "Sandbox processes.")
    gauge("mcp_code_portal.upstream.state", [states], "1", "1 for the state of each upstream, else 0.")
    opened = "Connections that were opened."
    total("mcp_code_portal.upstream.connections", [connections], "{connection}", opened)


async def observe_runs(telemetry: Telemetry, store: RunStore) -> None:
    """Count the open runs in the store, until cancelled, and the writes to it."""
    if not telemetry.is_on:
        return
    counts: dict[str, int] = {}

    def runs(options: CallbackOptions) -> Iterable[Observation]:
        return [Observation(counts.get(state, 0), {instruments.STATE: state}) for state in OPEN]

    def writes(options: CallbackOptions) -> Iterable[Observation]:
        return [Observation(count, {instruments.WRITER: who}) for who, count in store.written.items()]

    described, meter = "Runs in the store that have not ended.", telemetry.meter
    meter.create_observable_gauge("mcp_code_portal.runs.open", [runs], "{run}", described)
    described = "Writes to the store of runs."
    meter.create_observable_counter("mcp_code_portal.store.writes", [writes], "{write}", described)
    while True:
        try:
            counts = await store.read(RunTables.open_counts)
        except StoreError as error:
            log.error("runs_not_counted", error=str(error))
        await anyio.sleep(OPEN_RUNS_SECONDS)
