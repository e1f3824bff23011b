"""A portal of its own sends traces and numbers: one trace from its client to an upstream that sends its own part."""

import base64
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.acceptance.model import CALL_SECONDS, Json, Model
from tests.acceptance.portal_process import http_model, http_portal, stdio_model, write_manifest
from tests.acceptance.real_servers import INSTALLED
from tests.portal.records.telemetry.collector import PARENT, TRACE, TRACEPARENT, Collector, collecting
from tests.ports import closed_port

pytestmark = pytest.mark.anyio

SERVER = Path(__file__).parent / "peers/traced_server.py"
RECEIVER = Path(__file__).parent / "peers/otlp_receiver.py"
SCRIPT = "from asyncio import gather\nawait gather(traced.note(text='a'), traced.note(text='b'))"
METRICS = "token-of-the-scraper"


def portal_yaml(folder: Path, url: str, **telemetry: Json) -> Path:
    upstream = {"command": sys.executable, "args": [str(SERVER), url]}
    settings = {"otlp": url, "service_name": "portal-of-the-tests", **telemetry}
    return write_manifest(folder, {"traced": upstream}, telemetry=settings)


async def run_traced(portal: AbstractAsyncContextManager[Model]) -> None:
    async with portal as model:
        arguments = {"code": SCRIPT}
        result = await model.client.call_tool("execute_code", arguments, meta={"traceparent": TRACEPARENT})
        assert result.structured_content is not None
        assert result.structured_content["result"] == ["a", "b"]


def assert_one_trace(collector: Collector) -> None:
    by_id = {span.span_id: span for span in collector.spans if span.trace_id.hex() == TRACE}
    notes = [span for span in by_id.values() if span.name == "tools/call note"]
    upstreams = [span for span in notes if span.kind == span.SPAN_KIND_SERVER]
    assert len(upstreams) == 2
    for span in upstreams:
        names = []
        while span.parent_span_id.hex() != PARENT:
            span = by_id[span.parent_span_id]
            names.append(span.name)
        assert names == [
            "tools/call note",
            "execute_tool traced.note",
            "run script",
            "tools/call execute_code",
        ]
    assert {each["service.name"] for each in collector.resources} == {"portal-of-the-tests", "upstream"}


async def test_a_stdio_portal_and_its_upstream_share_the_trace_of_the_client(tmp_path: Path) -> None:
    async with collecting() as collector:
        await run_traced(stdio_model(portal_yaml(tmp_path, collector.url)))
        # It sends what is left before it ends, which the client has waited for.
        assert_one_trace(collector)
        assert "mcp.server.operation.duration" in collector.numbers


async def test_an_http_portal_does_the_same_and_shows_its_numbers(tmp_path: Path) -> None:
    manifest_settings = {"metrics": True, "metrics_token": METRICS}
    async with collecting() as collector, httpx2.AsyncClient(timeout=CALL_SECONDS) as http:
        with http_portal(portal_yaml(tmp_path, collector.url, **manifest_settings)) as portal:
            await run_traced(http_model(portal))
            assert (await http.get(f"{portal.origin}/metrics")).status_code == 401
            answer = await http.get(
                f"{portal.origin}/metrics", headers={"Authorization": f"Bearer {METRICS}"}
            )
            families = {family.name for family in text_string_to_metric_families(answer.text)}
            assert "mcp_client_operation_duration_seconds" in families
            await collector.until(lambda: len(collector.named("tools/call execute_code")) == 1)
            await collector.until(lambda: len(collector.named("tools/call note")) == 4)
        assert_one_trace(collector)


@contextmanager
def receiving() -> Iterator[tuple[str, list[dict[str, Json]]]]:
    """A third-party receiver: its URL, and the data it received, complete after the block."""
    command, port = [INSTALLED / "otlp/bin/python", RECEIVER], closed_port()
    received: list[dict[str, Json]] = []
    with subprocess.Popen([*command, str(port)], stdout=subprocess.PIPE, text=True) as receiver:
        assert receiver.stdout is not None and receiver.stdout.readline() == "ready\n"
        yield f"http://127.0.0.1:{port}", received
        receiver.kill()
        received += map(json.loads, receiver.stdout)


@pytest.mark.servers
async def test_a_receiver_of_the_opentelemetry_project_takes_both(tmp_path: Path) -> None:
    with receiving() as (url, received):
        await run_traced(stdio_model(portal_yaml(tmp_path, url)))
    parts = [part for each in received for part in each.get("resourceSpans", ())]
    spans = [span for part in parts for scope in part["scopeSpans"] for span in scope["spans"]]
    assert {base64.b64decode(span["traceId"]).hex() for span in spans if "parentSpanId" in span} == {TRACE}
    names = Counter(span["name"] for span in spans)
    assert names["tools/call execute_code"] == names["run script"] == 1
    assert names["execute_tool traced.note"] == 2 and names["tools/call note"] == 4
    assert any("resourceMetrics" in each for each in received)
