"""A collector that is away or stuck, and packages that are not installed."""

import sys
import threading
from functools import partial
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from portal.base.errors import TelemetryError
from tests.portal.peers import Peer, opened
from tests.portal.records.telemetry.collector import collecting
from tests.ports import closed_port


async def test_an_outage_is_logged_once_and_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    with capture_logs() as logs:
        async with collecting() as collector:
            collector.status = 400
            async with opened(tmp_path, {"store": Peer()}, telemetry={"otlp": collector.url}) as portal:
                for _ in range(3):
                    before = len(collector.requests)
                    assert await portal.result_of("await store.echo(a=1)") == {"a": 1}
                    await collector.until(partial(lambda seen: len(collector.requests) > seen, before))
                collector.status = 200
                assert await portal.result_of("1 + 1") == 2
                await collector.until(lambda: bool(collector.spans))
    events = [each["event"] for each in logs if each["event"].startswith("telemetry_")]
    assert events == ["telemetry_not_sent", "telemetry_sent_again"]
    assert len(collector.requests) >= 4


async def test_a_collector_that_takes_no_metrics_is_logged_once_while_it_takes_traces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
    with capture_logs() as logs:
        async with collecting() as collector:
            collector.metrics_status = 404
            async with opened(tmp_path, telemetry={"otlp": collector.url}) as portal:
                for _ in range(3):
                    for path in ("/v1/metrics", "/v1/traces"):
                        before = collector.paths.count(path)
                        assert await portal.result_of("1 + 1") == 2
                        await collector.until(
                            partial(lambda path, before: collector.paths.count(path) > before, path, before)
                        )
    logged = [each for each in logs if each["event"].startswith("telemetry_")]
    assert [(each["event"], each["signal"]) for each in logged] == [("telemetry_not_sent", "metrics")]


@pytest.mark.parametrize("is_stuck", [True, False])
async def test_requests_and_the_end_wait_for_no_collector_that_is_stuck_or_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_stuck: bool
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "4")
    with capture_logs() as logs:
        async with collecting() as collector:
            collector.is_stuck = True
            url = collector.url if is_stuck else f"http://127.0.0.1:{closed_port()}"
            async with opened(tmp_path, {"store": Peer()}, telemetry={"otlp": url}) as portal:
                assert await portal.result_of("await store.echo(a=1)") == {"a": 1}
                await collector.until(lambda: bool(collector.requests) is is_stuck)
                assert await portal.result_of("await store.echo(a=2)") == {"a": 2}
            told = len(logs)
        for thread in threading.enumerate():
            if thread.name.startswith("Otel"):
                thread.join()
    assert logs[told:] == []  # the portal has ended


async def test_missing_packages_are_named_with_the_command_that_installs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    monkeypatch.delitem(sys.modules, "portal.records.telemetry.export", raising=False)
    with pytest.raises(TelemetryError, match=r"portal\.yaml:\d+:\d+.*uv tool install '\.\[telemetry\]'"):
        async with opened(tmp_path, telemetry={"metrics": True}):
            pass
