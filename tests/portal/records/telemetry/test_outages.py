"""A collector that is away or stuck, and packages that are not installed."""

import sys
from functools import partial
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from portal.base.errors import TelemetryError
from tests.portal.peers import Peer, opened
from tests.portal.records.telemetry.collector import collecting
from tests.upstreams.peers import closed_port

pytestmark = pytest.mark.anyio


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


async def test_requests_do_not_wait_for_a_collector_that_is_stuck(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    async with collecting() as collector:
        collector.is_stuck = True
        async with opened(tmp_path, {"store": Peer()}, telemetry={"otlp": collector.url}) as portal:
            assert await portal.result_of("await store.echo(a=1)") == {"a": 1}
            await collector.until(lambda: bool(collector.requests))
            assert await portal.result_of("await store.echo(a=2)") == {"a": 2}
        # The portal has ended, although the collector has answered nothing.
        assert collector.requests


async def test_requests_do_not_fail_without_a_collector(tmp_path: Path) -> None:
    telemetry = {"otlp": f"http://127.0.0.1:{closed_port()}"}
    async with opened(tmp_path, {"store": Peer()}, telemetry=telemetry) as portal:
        assert await portal.result_of("await store.echo(a=1)") == {"a": 1}


async def test_missing_packages_are_named_with_the_command_that_installs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    monkeypatch.delitem(sys.modules, "portal.records.telemetry.export", raising=False)
    with pytest.raises(TelemetryError, match=r"portal\.yaml:\d+:\d+.*uv tool install '\.\[telemetry\]'"):
        async with opened(tmp_path, telemetry={"metrics": True}):
            pass
