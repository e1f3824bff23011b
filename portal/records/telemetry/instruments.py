"""The instruments of a portal, by OpenTelemetry's API, and the attributes of spans and metrics, each named once.

Rule 1: an attribute of a metric has few values, defined by the manifest, the portal or the protocol. None comes from a
client, a script or an upstream's answer, and none names a caller, a tenant or a session.
Rule 2: arguments and results are only in ARGUMENTS and RESULT, which are set only if the manifest says so.

Source: OpenTelemetry semantic conventions, docs/gen-ai/mcp.md, status "development".
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeAlias

from opentelemetry.context import Context
from opentelemetry.metrics import Histogram, Meter, NoOpMeter
from opentelemetry.trace import Link, NoOpTracer, SpanKind, StatusCode, Tracer, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from manifests.json_value import Json
from portal.base.clean_json import sendable
from upstreams.redaction import Redaction

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
KERNEL: Final = "mcp_code_portal.kernel"
STATUS: Final = "mcp_code_portal.run.status"
SEQ: Final = "mcp_code_portal.call.seq"
CALL_STATE: Final = "mcp_code_portal.call.state"
NAMESPACE: Final = "mcp_code_portal.namespace"
UPSTREAM: Final = "mcp_code_portal.upstream"
STATE: Final = "mcp_code_portal.state"
RULE: Final = "mcp_code_portal.rule"
WRITER: Final = "mcp_code_portal.writer"

EXECUTE_TOOL: Final = "execute_tool"
"""The value of OPERATION for everything that calls a tool."""

Attributes: TypeAlias = dict[str, str | int]

SECONDS_BOUNDARIES: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
"""The boundaries that the conventions recommend for the durations of MCP requests."""

MAX_SHOWN_CHARACTERS: Final = 10_000
"""Arguments and results are masked, then cut to this length."""

MAX_CONTEXT_CHARACTERS: Final = 512
"""A longer `traceparent` or `tracestate` of a client is ignored. W3C requires that 512 are passed on."""

_TRACE_CONTEXT: Final = TraceContextTextMapPropagator()


@dataclass(frozen=True)
class Operation:
    """A timed operation, with a span and a histogram. The histogram gets only `labels` of the span's attributes."""

    tracer: Tracer
    kind: SpanKind
    seconds: Histogram
    labels: tuple[str, ...]
    is_on: bool

    @contextmanager
    def span(
        self,
        name: str,
        attributes: Mapping[str, str | int],
        *,
        parent: Context | None = None,
        links: Sequence[Link] = (),
    ) -> Iterator[Attributes]:
        """Record a span until the context is left. Its attributes may change until then; with ERROR it failed.

        It is a child of the current span, or of `parent`. ERROR is one of few codes. There is no message, because
        messages quote what strangers sent. An exception that leaves the context is recorded by its class alone.
        """
        found, began = {**attributes}, time.perf_counter()
        if not self.is_on:  # the no-ops take as long
            yield found
            return
        with self.tracer.start_as_current_span(
            name,
            context=parent,
            kind=self.kind,
            attributes=found,  # at the start, because samplers decide then
            links=links,
            # The SDK would record messages and tracebacks, which quote strangers and contain paths.
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield found
            except BaseException as error:
                found.setdefault(ERROR, type(error).__name__ if isinstance(error, Exception) else "cancelled")
                raise
            finally:
                span.set_attributes(found)
                if ERROR in found:
                    span.set_status(StatusCode.ERROR)
                labels = {label: found[label] for label in self.labels if label in found}
                self.seconds.record(time.perf_counter() - began, labels)


class Telemetry:
    """The instruments of one portal. Without a meter or a tracer, OpenTelemetry's no-ops stand in.

    With `mask`, spans contain arguments and results, masked by it. `page` renders the metrics for Prometheus and their
    media type, and blocks for milliseconds; None without Prometheus.
    """

    def __init__(
        self,
        tracer: Tracer | None = None,
        meter: Meter | None = None,
        mask: Redaction | None = None,
        page: Callable[[], tuple[bytes, str]] | None = None,
    ) -> None:
        self.is_on = meter is not None
        self.mask, self.page = mask, page
        self.meter = meter = meter or NoOpMeter("")
        is_on, tracer = tracer is not None or self.is_on, tracer or NoOpTracer()

        def seconds(name: str, description: str) -> Histogram:
            return meter.create_histogram(
                name, "s", description, explicit_bucket_boundaries_advisory=SECONDS_BOUNDARIES
            )

        def operation(kind: SpanKind, name: str, description: str, *labels: str) -> Operation:
            return Operation(tracer, kind, seconds(name, description), labels, is_on)

        server, internal, client = SpanKind.SERVER, SpanKind.INTERNAL, SpanKind.CLIENT
        self.request = operation(
            server, "mcp.server.operation.duration", "Requests of clients.", METHOD, TOOL, TRANSPORT, ERROR
        )
        runs = "Runs of scripts, each until it ends or waits."
        self.script_run = operation(internal, "mcp_code_portal.run.duration", runs, STATUS, ERROR)
        self.check = operation(internal, "mcp_code_portal.check.duration", "Checks of scripts.", ERROR)
        calls = "Calls of scripts."
        self.call = operation(internal, "mcp_code_portal.call.duration", calls, NAMESPACE, CALL_STATE)
        attempts = "Requests to upstreams, each attempt."
        self.upstream_request = operation(
            client, "mcp.client.operation.duration", attempts, METHOD, UPSTREAM, ERROR
        )
        waits = "Waits of scripts for a sandbox process."
        self.queue_wait = seconds("mcp_code_portal.queue.wait.duration", waits)
        refusals = "Calls that were not sent."
        self.refusals = meter.create_counter("mcp_code_portal.refusals", "{call}", refusals)
        results = "Bytes of results that scripts got from their calls, as JSON."
        self.result_bytes = meter.create_counter("mcp_code_portal.call.result.size", "By", results)
        answers = "Bytes of answers of execute_code, for the model."
        self.answer_bytes = meter.create_counter("mcp_code_portal.answer.size", "By", answers)

    def shown(self, name: str, value: Json) -> Attributes:
        """The attribute with an argument or a result as JSON, masked and cut; empty unless the manifest asks for it."""
        if self.mask is None or value is None:
            return {}
        try:
            text = (
                value if isinstance(value, str) else _start(value, MAX_SHOWN_CHARACTERS + self.mask.longest)
            )
        except (RecursionError, ValueError):  # too deep, or an integer with more digits than Python writes
            return {}
        # A lone surrogate would cost the exporter its whole batch.
        return {name: sendable(self.mask.start(text, MAX_SHOWN_CHARACTERS))}


NO_TELEMETRY: Final = Telemetry()


def client_context(meta: Mapping[str, Json] | None) -> Context:
    """The trace that a client's request belongs to, from its `_meta`; an empty one if that is missing or invalid.

    `baggage` is not read, so it does not reach upstreams.
    Source: SEP-414; W3C Trace Context.
    """
    given = {key: (meta or {}).get(key) for key in ("traceparent", "tracestate")}
    usable = {
        key: value
        for key, value in given.items()
        if isinstance(value, str) and len(value) <= MAX_CONTEXT_CHARACTERS
    }
    return _TRACE_CONTEXT.extract(usable, Context())


def current_trace() -> str:
    """The `traceparent` of the current span; "" without a span."""
    carrier: dict[str, str] = {}
    _TRACE_CONTEXT.inject(carrier)
    return carrier.get("traceparent", "")


def link_to(trace: str) -> Link:
    return Link(get_current_span(client_context({"traceparent": trace})).get_span_context())


def _start(value: Json, characters: int) -> str:
    """The start of a value as JSON. The rest is not serialized, because megabytes would take long."""
    text = ""
    for part in json.JSONEncoder().iterencode(value):
        text += part
        if len(text) > characters:
            break
    return text
