"""Every span, attribute and number that the portal reports, each named once. A test compares docs/telemetry.md with it.

Rule 1: an attribute of a number has few values: the manifest, the portal or the protocol name them. None comes from a
client, a script or an upstream's answer, and none names a caller, a tenant or a session.
Rule 2: arguments and results are only in ARGUMENTS and RESULT, which are set only if the manifest says so.

Source: OpenTelemetry semantic conventions, docs/gen-ai/mcp.md, status "development".
"""

from dataclasses import dataclass
from typing import Final, Literal

from opentelemetry.trace import SpanKind

METHOD: Final = "mcp.method.name"
TOOL: Final = "gen_ai.tool.name"
OPERATION: Final = "gen_ai.operation.name"
ERROR: Final = "error.type"
PROTOCOL: Final = "mcp.protocol.version"
REQUEST_ID: Final = "jsonrpc.request.id"
RPC_CODE: Final = "rpc.response.status_code"
TRANSPORT: Final = "network.transport"
ARGUMENTS: Final = "gen_ai.tool.call.arguments"
RESULT: Final = "gen_ai.tool.call.result"
RUN: Final = "mcp_code_portal.run.id"
STATUS: Final = "mcp_code_portal.run.status"
SEQ: Final = "mcp_code_portal.call.seq"
CALL_STATE: Final = "mcp_code_portal.call.state"
NAMESPACE: Final = "mcp_code_portal.namespace"
UPSTREAM: Final = "mcp_code_portal.upstream"
STATE: Final = "mcp_code_portal.state"
RULE: Final = "mcp_code_portal.rule"

EXECUTE_TOOL: Final = "execute_tool"
"""The value of OPERATION for everything that calls a tool."""

SECONDS_BOUNDARIES: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
"""The boundaries that the conventions recommend for the durations of MCP requests."""


@dataclass(frozen=True)
class Instrument:
    """A number. A histogram and a counter are recorded; a gauge and a total are read when somebody collects them."""

    name: str
    kind: Literal["histogram", "counter", "gauge", "total"]
    unit: str
    description: str
    attributes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Operation:
    """Something that takes time: a span, and the histogram of its duration."""

    kind: SpanKind
    duration: Instrument
    attributes: tuple[str, ...]
    """All attributes that the span may have. Those that the histogram names, it gets, too."""


def _duration(name: str, description: str, *attributes: str) -> Instrument:
    return Instrument(name, "histogram", "s", description, attributes)


REQUEST: Final = Operation(
    SpanKind.SERVER,
    _duration("mcp.server.operation.duration", "Requests of clients.", METHOD, TOOL, TRANSPORT, ERROR),
    (METHOD, TOOL, OPERATION, REQUEST_ID, PROTOCOL, TRANSPORT, ERROR, RPC_CODE, ARGUMENTS, RESULT),
)
SCRIPT_RUN: Final = Operation(
    SpanKind.INTERNAL,
    _duration("mcp_code_portal.run.duration", "Runs of scripts, each until it ends or waits.", STATUS, ERROR),
    (RUN, STATUS, ERROR),
)
CHECK: Final = Operation(
    SpanKind.INTERNAL, _duration("mcp_code_portal.check.duration", "Checks of scripts.", ERROR), (ERROR,)
)
CALL: Final = Operation(
    SpanKind.INTERNAL,
    _duration("mcp_code_portal.call.duration", "Calls of scripts.", NAMESPACE, CALL_STATE),
    (OPERATION, TOOL, NAMESPACE, SEQ, CALL_STATE, ERROR, ARGUMENTS, RESULT),
)
UPSTREAM_REQUEST: Final = Operation(
    SpanKind.CLIENT,
    _duration(
        "mcp.client.operation.duration", "Requests to upstreams, each attempt.", METHOD, UPSTREAM, ERROR
    ),
    (METHOD, TOOL, OPERATION, UPSTREAM, PROTOCOL, TRANSPORT, ERROR, RPC_CODE),
)
OPERATIONS: Final = (REQUEST, SCRIPT_RUN, CHECK, CALL, UPSTREAM_REQUEST)

QUEUE_WAIT: Final = _duration(
    "mcp_code_portal.queue.wait.duration", "Waits of scripts for a sandbox process."
)
REFUSALS: Final = Instrument(
    "mcp_code_portal.refusals", "counter", "{call}", "Calls that were not sent.", (ERROR, RULE)
)
RESULT_BYTES: Final = Instrument(
    "mcp_code_portal.call.result.size",
    "counter",
    "By",
    "Bytes of results that scripts got from their calls, as JSON.",
)
ANSWER_BYTES: Final = Instrument(
    "mcp_code_portal.answer.size", "counter", "By", "Bytes of answers of execute_code, for the model."
)
QUEUE: Final = Instrument(
    "mcp_code_portal.queue.length", "gauge", "{script}", "Scripts that wait for a process."
)
WORKERS: Final = Instrument("mcp_code_portal.workers", "gauge", "{process}", "Sandbox processes.", (STATE,))
UPSTREAM_STATE: Final = Instrument(
    "mcp_code_portal.upstream.state",
    "gauge",
    "1",
    "1 for the state of each upstream, else 0.",
    (UPSTREAM, STATE),
)
CONNECTIONS: Final = Instrument(
    "mcp_code_portal.upstream.connections",
    "total",
    "{connection}",
    "Connections that were opened.",
    (UPSTREAM,),
)
OPEN_RUNS: Final = Instrument(
    "mcp_code_portal.runs.open", "gauge", "{run}", "Runs in the store that have not ended.", (STATE,)
)

INSTRUMENTS: Final = (
    *(operation.duration for operation in OPERATIONS),
    *(QUEUE_WAIT, REFUSALS, RESULT_BYTES, ANSWER_BYTES, QUEUE, WORKERS),
    *(UPSTREAM_STATE, CONNECTIONS, OPEN_RUNS),
)
