"""Sends spans and metrics to a collector, and serves metrics to Prometheus. Only this module imports the SDK for that.

Rule 1: the exporters have their own threads. A slow or unreachable collector delays no request; what does not fit into
their queues is dropped.
"""

import threading
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import structlog
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExportResult,
    MetricReader,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from manifests.portal_manifest import TelemetrySettings
from portal.records.telemetry.instruments import Telemetry
from upstreams.redaction import Redaction

log = structlog.get_logger()

FLUSH_SECONDS: Final = 3.0
"""How long a closing portal waits for what has not been sent yet."""

_NAME: Final = "mcp-code-portal"

Result = TypeVar("Result", SpanExportResult, MetricExportResult)


class Exported(Telemetry):
    """Telemetry for the manifest's collector, and for Prometheus."""

    def __init__(self, settings: TelemetrySettings, mask: Redaction) -> None:
        named = OTELResourceDetector().detect().attributes.get(SERVICE_NAME)
        name = settings.service_name or named or _NAME
        resource = Resource.create({SERVICE_NAME: name, SERVICE_VERSION: version(_NAME)})
        registry, readers = CollectorRegistry(), list[MetricReader]()
        if settings.metrics:
            readers.append(PrometheusMetricReader(scope_info_enabled=False, registry=registry))
        # Not at exit: `close` waits less for an unreachable collector.
        self._tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._given_up = threading.Event()
        if settings.otlp:
            url, headers = settings.otlp.rstrip("/"), settings.headers
            spans = _SpanExporter(f"{url}/v1/traces", headers, self._given_up)
            self._tracers.add_span_processor(BatchSpanProcessor(spans))
            metrics = _MetricExporter(f"{url}/v1/metrics", headers, self._given_up)
            readers.append(PeriodicExportingMetricReader(metrics))
        self._meters = MeterProvider(readers, resource, shutdown_on_exit=False)
        super().__init__(
            self._tracers.get_tracer(_NAME) if settings.otlp else None,
            self._meters.get_meter(_NAME),
            mask if settings.arguments else None,
            (lambda: (generate_latest(registry), CONTENT_TYPE_LATEST)) if settings.metrics else None,
        )

    async def close(self) -> None:
        """Send what is left, within FLUSH_SECONDS. A collector that does not answer is given up."""
        # Not a worker thread of the loop: the process would wait for that before it exits.
        closing = threading.Thread(target=self._shut_down, daemon=True)
        closing.start()
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(closing.join, FLUSH_SECONDS)
        self._given_up.set()

    def _shut_down(self) -> None:
        self._tracers.shutdown()
        self._meters.shutdown()


class _Outage:
    """Logs once that the collector does not take a signal, until it does or is given up. Some refuse metrics only."""

    def __init__(self, url: str, given_up: threading.Event) -> None:
        parts = urlsplit(url)
        self._fields = {"signal": parts.path.rpartition("/")[2], "collector": parts.netloc.rpartition("@")[2]}
        self._is_out, self._given_up = False, given_up

    def noted(self, result: Result) -> Result:
        is_out = result is not type(result).SUCCESS
        is_news, self._is_out = is_out != self._is_out and not self._given_up.is_set(), is_out
        if is_news and is_out:
            log.warning("telemetry_not_sent", **self._fields)
        elif is_news:
            log.info("telemetry_sent_again", **self._fields)
        return result


class _SpanExporter(OTLPSpanExporter):
    def __init__(self, url: str, headers: dict[str, str], given_up: threading.Event) -> None:
        super().__init__(url, headers=headers)
        self._outage = _Outage(url, given_up)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return self._outage.noted(super().export(spans))


class _MetricExporter(OTLPMetricExporter):
    def __init__(self, url: str, headers: dict[str, str], given_up: threading.Event) -> None:
        super().__init__(url, headers=headers)
        self._outage = _Outage(url, given_up)

    def export(self, metrics_data: MetricsData, *args: Any, **options: Any) -> MetricExportResult:
        return self._outage.noted(super().export(metrics_data, *args, **options))
