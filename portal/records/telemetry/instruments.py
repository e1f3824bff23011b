"""The attributes of spans and numbers, each named once, and what records an operation.

Rule 1: an attribute of a number has few values: the manifest, the portal or the protocol name them. None comes from a
client, a script or an upstream's answer, and none names a caller, a tenant or a session.
Rule 2: arguments and results are only in ARGUMENTS and RESULT, which are set only if the manifest says so.

Source: OpenTelemetry semantic conventions, docs/gen-ai/mcp.md, status "development".
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeAlias

from opentelemetry.context import Context
from opentelemetry.metrics import Histogram
from opentelemetry.trace import Link, SpanKind, StatusCode, Tracer

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

Attributes: TypeAlias = dict[str, str | int]


@dataclass(frozen=True)
class Operation:
    """Something that takes time. It has a span, and a histogram, which gets only `labels` of the span's attributes."""

    tracer: Tracer
    kind: SpanKind
    seconds: Histogram
    labels: tuple[str, ...]

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

        It is a child of the current span, or of `parent`. ERROR is one of few codes, and there is no message, because
        messages quote what strangers sent. An exception that leaves the context is recorded by its class alone.
        """
        found, began = {**attributes}, time.perf_counter()
        with self.tracer.start_as_current_span(
            name,
            context=parent,
            kind=self.kind,
            attributes=found,  # for samplers
            links=links,
            # The SDK would write messages and tracebacks, which quote strangers and name paths.
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
