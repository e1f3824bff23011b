"""A collector of OTLP over HTTP, which decodes with OpenTelemetry's own definitions and imports no portal."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import anyio
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.upstreams.peers import Changing, http_peer

Attributes: TypeAlias = dict[str, Any]

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
"""A client's `_meta`."""


@dataclass
class Collector(Changing):
    """The data that portals sent. While `status` is not 200 it takes none; while `is_stuck` it does not answer.
    `metrics_status` is its answer to metrics, if that is another one."""

    url: str = ""
    status: int = 200
    metrics_status: int | None = None
    is_stuck: bool = False
    requests: list[dict[str, str]] = field(default_factory=list)
    """The headers of each request."""
    paths: list[str] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    numbers: dict[str, tuple[str, str, str, set[str]]] = field(default_factory=dict)
    """By its name the kind, the unit, the description and the attributes of each number, as they came last."""
    resources: list[Attributes] = field(default_factory=list)

    def named(self, name: str) -> list[Span]:
        """The spans with this name, in the order of their start."""
        found = [span for span in self.spans if span.name == name]
        return sorted(found, key=lambda span: span.start_time_unix_nano)

    def one(self, name: str) -> Span:
        (span,) = self.named(name)
        return span

    def said(self) -> str:
        """All texts of all spans and resources."""
        return "\n".join(map(repr, [*self.spans, *self.resources]))

    async def take_spans(self, request: Request) -> Response:
        body = ExportTraceServiceRequest.FromString(await request.body())
        if self.status == 200:
            for resource in body.resource_spans:
                self.resources.append(attributes_of(resource.resource))
                self.spans += [span for scope in resource.scope_spans for span in scope.spans]
        return await self._answer(request, self.status)

    async def take_numbers(self, request: Request) -> Response:
        body = ExportMetricsServiceRequest.FromString(await request.body())
        scopes = [scope for resource in body.resource_metrics for scope in resource.scope_metrics]
        for metric in (metric for scope in scopes for metric in scope.metrics):
            kind = metric.WhichOneof("data")
            keys = {each.key for point in getattr(metric, kind).data_points for each in point.attributes}
            self.numbers[metric.name] = (kind, metric.unit, metric.description, keys)
        return await self._answer(request, self.metrics_status or self.status)

    async def _answer(self, request: Request, status: int) -> Response:
        self.requests.append({**request.headers})
        self.paths.append(request.url.path)
        self.tell()
        if self.is_stuck:
            await anyio.sleep_forever()
        return Response(status_code=status)


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    """A collector on a loopback port."""
    collector = Collector()
    routes = [
        Route("/v1/traces", collector.take_spans, methods=["POST"]),
        Route("/v1/metrics", collector.take_numbers, methods=["POST"]),
    ]
    async with http_peer(Starlette(routes=routes)) as peer:
        collector.url = f"http://127.0.0.1:{peer.port}"
        yield collector


def attributes_of(item: Any) -> Attributes:
    """The attributes of a span or a resource."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in item.attributes}
