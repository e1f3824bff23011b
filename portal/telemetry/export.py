"""Sends spans and numbers to a collector, and shows numbers to Prometheus. Only this module imports the SDK for that.

Rule 1: the exporters have threads of their own. A collector that is slow or away costs a request nothing; what does not
fit into their queues is dropped.
"""

import os
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from itertools import chain
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import structlog

from manifests.manifest import Manifest
from manifests.portal_manifest import TelemetrySettings
from portal.errors import TelemetryError
from portal.telemetry.telemetry import NO_TELEMETRY, Telemetry
from upstreams.redaction import Redaction, secrets_of

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from prometheus_client import CollectorRegistry

log = structlog.get_logger()

FLUSH_SECONDS: Final = 3.0
"""How long the portal waits at its end for what was not sent yet."""

_NAME: Final = "mcp-code-portal"


@asynccontextmanager
async def open_telemetry(manifest: Manifest) -> AsyncIterator[Telemetry]:
    """The telemetry that the manifest wants; at the end what is left is sent, within FLUSH_SECONDS.

    Raises TelemetryError: its packages are not installed.
    """
    settings = manifest.portal.telemetry
    if settings is None:
        yield NO_TELEMETRY
        return
    try:
        # Half a second of imports, only for those who want them.
        exported = await anyio.to_thread.run_sync(_Exported, manifest, settings)
    except ImportError as error:
        raise TelemetryError(manifest.where("telemetry"), error.name or "opentelemetry") from error
    try:
        yield exported
    finally:
        with anyio.CancelScope(shield=True):
            await exported.close()


class _Exported(Telemetry):
    """Raises ImportError: a package is missing."""

    def __init__(self, manifest: Manifest, settings: TelemetrySettings) -> None:
        from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource

        name = settings.service_name or os.environ.get("OTEL_SERVICE_NAME") or _NAME
        resource = Resource.create({SERVICE_NAME: name, SERVICE_VERSION: version(_NAME)})
        outage = _Outage(settings.otlp or "")
        self._tracers = _tracer_provider(settings, resource, outage) if settings.otlp else None
        registry, self._meters = _meter_provider(settings, resource, outage)
        secrets = chain(manifest.hidden, *map(secrets_of, manifest.portal.upstreams.values()))
        mask = Redaction(secrets) if settings.arguments else None
        tracer = self._tracers.get_tracer(_NAME) if self._tracers else None
        super().__init__(tracer, self._meters.get_meter(_NAME), mask)
        if registry is not None:
            self.page = partial(_page, registry)

    async def close(self) -> None:
        """Send what is left. A collector that does not answer is left behind."""
        # Not a thread of the loop: the process would wait for that at its end.
        closing = threading.Thread(target=self._shut_down, daemon=True)
        closing.start()
        await anyio.to_thread.run_sync(closing.join, FLUSH_SECONDS)

    def _shut_down(self) -> None:
        if self._tracers is not None:
            self._tracers.shutdown()
        self._meters.shutdown()


def _page(registry: "CollectorRegistry") -> tuple[bytes, str]:
    from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

    return generate_latest(registry), CONTENT_TYPE_LATEST


class _Outage:
    """Logs that the collector cannot be reached, once until it can be reached again."""

    def __init__(self, url: str) -> None:
        self._collector = urlsplit(url).netloc.rpartition("@")[2]
        self._lock = threading.Lock()
        self._is_out = False

    def note(self, is_out: bool) -> None:
        with self._lock:
            is_news, self._is_out = is_out != self._is_out, is_out
        if is_news and is_out:
            log.warning("telemetry_not_sent", collector=self._collector)
        elif is_news:
            log.info("telemetry_sent_again", collector=self._collector)


def _tracer_provider(settings: TelemetrySettings, resource: "Resource", outage: _Outage) -> "TracerProvider":
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult

    class Exporter(OTLPSpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            result = super().export(spans)
            outage.note(result is not SpanExportResult.SUCCESS)
            return result

    # Not at exit: the portal closes it, and gives a collector that is away less time.
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    exporter = Exporter(_endpoint(settings, "traces"), headers=settings.headers)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def _meter_provider(
    settings: TelemetrySettings, resource: "Resource", outage: _Outage
) -> tuple["CollectorRegistry | None", "MeterProvider"]:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.prometheus import PrometheusMetricReader
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import (
        MetricExportResult,
        MetricsData,
        PeriodicExportingMetricReader,
    )
    from prometheus_client import CollectorRegistry

    class Exporter(OTLPMetricExporter):
        def export(self, metrics_data: MetricsData, *args: Any, **options: Any) -> MetricExportResult:
            result = super().export(metrics_data, *args, **options)
            outage.note(result is not MetricExportResult.SUCCESS)
            return result

    readers: list[MetricReader] = []
    registry = CollectorRegistry() if settings.metrics else None
    if registry is not None:
        readers.append(PrometheusMetricReader(scope_info_enabled=False, registry=registry))
    if settings.otlp is not None:
        exporter = Exporter(_endpoint(settings, "metrics"), headers=settings.headers)
        readers.append(PeriodicExportingMetricReader(exporter))
    return registry, MeterProvider(readers, resource, shutdown_on_exit=False)


def _endpoint(settings: TelemetrySettings, signal: str) -> str:
    return f"{(settings.otlp or '').rstrip('/')}/v1/{signal}"
