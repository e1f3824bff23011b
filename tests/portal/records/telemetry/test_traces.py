"""Traces: one from a client's request through run, check and calls to the upstreams, and nothing private in it."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.server.lowlevel import Server
from mcp_types import CallToolResult
from opentelemetry.trace import get_current_span
from starlette.responses import Response

from manifests.json_value import Json
from portal.records.telemetry.instruments import Telemetry, client_context
from portal.server.server import build_server
from tests.portal.app.test_reload import changed
from tests.portal.peers import DEADLINE_SECONDS, Barrier, Opened, Peer, opened, text, tool
from tests.portal.records.telemetry.collector import (
    PARENT,
    TRACE,
    TRACEPARENT,
    Collector,
    attributes_of,
    collecting,
)
from tests.upstreams.peers import http_peer
from upstreams.redaction import Redaction

BOTH = "from asyncio import gather\nawait gather(store.echo(a=1), store.echo(a=2))"


class NotingPeer(Peer):
    """A peer that notes the `_meta` of each call."""

    def __init__(self, *args: Any, **acts: Any) -> None:
        super().__init__(*args, **acts)
        self.metas: list[dict[str, Json]] = []

    async def _call(self, context: Any, params: Any) -> Any:
        self.metas.append({**(context.meta or {})})
        return await super()._call(context, params)


@asynccontextmanager
async def traced(
    folder: Path, *, arguments: bool = False, **more: Any
) -> AsyncIterator[tuple[Opened, Collector]]:
    """A portal, and the collector that has all spans after the block."""
    async with collecting() as collector:
        telemetry = {"otlp": collector.url, "arguments": arguments}
        async with opened(folder, telemetry=telemetry, **more) as portal:
            yield portal, collector


async def run(portal: Opened, code: str, **meta: Any) -> CallToolResult:
    with anyio.fail_after(DEADLINE_SECONDS):
        return await portal.client.call_tool("execute_code", {"code": code}, meta=meta)


async def test_one_trace_goes_from_an_older_client_to_the_upstream(tmp_path: Path) -> None:
    """Acceptance shows it for clients of today."""
    store = NotingPeer()
    async with traced(tmp_path, upstreams={"store": store}, mode="legacy") as (portal, collector):
        context = {"traceparent": TRACEPARENT, "tracestate": "vendor=1", "baggage": "who=ann"}
        assert not (await run(portal, BOTH, **context)).is_error
    request, script = collector.one("tools/call execute_code"), collector.one("run script")
    calls, sent = collector.named("execute_tool store.echo"), collector.named("tools/call echo")
    assert (request.parent_span_id.hex(), script.parent_span_id) == (PARENT, request.span_id)
    assert collector.one("check script").parent_span_id == script.span_id
    assert [span.parent_span_id for span in calls] == [script.span_id] * 2
    assert {span.parent_span_id for span in sent} == {span.span_id for span in calls}
    assert {meta["traceparent"] for meta in store.metas} == {f"00-{TRACE}-{s.span_id.hex()}-01" for s in sent}
    assert {meta["tracestate"] for meta in store.metas} == {"vendor=1"}
    assert not any("baggage" in meta for meta in store.metas)
    assert collector.resources[0]["service.name"] == "mcp-code-portal"


@pytest.mark.parametrize(
    ("more", "named"), [({}, "attributes"), ({"OTEL_SERVICE_NAME": "variable"}, "variable")]
)
async def test_the_service_is_named_as_the_variables_of_the_sdk_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, str], named: str
) -> None:
    for name, value in {"OTEL_RESOURCE_ATTRIBUTES": "service.name=attributes,team=a%20b", **more}.items():
        monkeypatch.setenv(name, value)
    async with traced(tmp_path) as (portal, collector):
        await run(portal, "1")
    assert (collector.resources[0]["service.name"], collector.resources[0]["team"]) == (named, "a b")


async def test_calls_that_run_at_once_are_children_of_their_own_runs(tmp_path: Path) -> None:
    store = Peer(tool("echo"), echo=Barrier(4))
    async with (
        traced(tmp_path, upstreams={"store": store}) as (portal, collector),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(run, portal, BOTH)
        tasks.start_soon(run, portal, BOTH)
    found = {span.span_id: span for span in collector.spans}
    scripts = [found[call.parent_span_id] for call in collector.named("execute_tool store.echo")]
    assert sorted(span.name for span in scripts) == ["run script"] * 4
    assert sorted([scripts.count(span) for span in collector.named("run script")]) == [2, 2]
    for sent in collector.named("tools/call echo"):
        call = found[sent.parent_span_id]
        assert sent.trace_id == call.trace_id == found[call.parent_span_id].trace_id


async def test_each_attempt_is_a_request_of_its_own(tmp_path: Path) -> None:
    answers = iter([503, 200])
    retried = {"annotations": {"readOnlyHint": True}}
    store = Peer(tool("echo", **retried))
    app = store.server.streamable_http_app()

    async def flaky(scope: Any, receive: Any, send: Any) -> None:
        is_call = scope["type"] == "http" and dict(scope["headers"]).get(b"mcp-method") == b"tools/call"
        if is_call and (status := next(answers)) != 200:
            await Response(status_code=status)(scope, receive, send)
        else:
            await app(scope, receive, send)

    async with http_peer(flaky) as peer:
        upstream = {"url": f"http://127.0.0.1:{peer.port}/mcp"}
        async with traced(tmp_path, upstreams={"store": upstream}) as (portal, collector):
            assert not (await run(portal, "await store.echo(a=1)")).is_error
    call = collector.one("execute_tool store.echo")
    sent = collector.named("tools/call echo")
    assert [span.parent_span_id for span in sent] == [call.span_id] * 2
    assert [attributes_of(span).get("error.type") for span in sent] == ["upstream_answer", None]


async def test_failures_are_told_by_their_codes(tmp_path: Path) -> None:
    async def fail(arguments: dict[str, Json]) -> CallToolResult:
        return text("no such thing", is_error=True)

    deny = {"tools": {"allow": ["*"], "deny": ["store.secret"]}}
    store = Peer(tool("fail"), tool("secret"), fail=fail)
    sections = {"capabilities": deny, "server": {"check": "off"}}
    async with traced(tmp_path, upstreams={"store": store}, **sections) as (portal, collector):
        await run(portal, "await store.fail()")
        await run(portal, "await store.secret()")
    failed = {span.name: attributes_of(span) for span in collector.spans if span.status.code == 2}
    assert {name: each["error.type"] for name, each in failed.items()} == {
        "tools/call fail": "tool_error",
        "execute_tool store.fail": "tool_error",
        "execute_tool store.secret": "not_granted",
        "run script": "not_granted",
        "tools/call execute_code": "tool_error",
    }
    assert failed["execute_tool store.secret"]["mcp_code_portal.call.state"] == "refused"
    assert not any(span.status.message or span.events for span in collector.spans)


PRIVATE = "a-private-word"
SECRET = "a-secret-of-the-manifest"
ECHOING = (
    f"await store.echo(a='{PRIVATE}', b='{SECRET}')",
    f"await store.fail(a='{PRIVATE}')",
    f"import {PRIVATE.replace('-', '_')}; await store.{PRIVATE.replace('-', '_')}()",
    f"raise ValueError('{PRIVATE}')",
)
"""Arguments, results, errors and names that no one should read in a span unless the manifest allows it."""


async def echo_all(folder: Path, collector: Collector, *scripts: str, **telemetry: Json) -> None:
    settings = {"otlp": collector.url, "headers": {"X-Key": "${KEY}"}, **telemetry}

    async def fail(arguments: dict[str, Json]) -> CallToolResult:
        return text(f"{PRIVATE} {SECRET} failed", is_error=True)

    store = Peer(tool("echo"), tool("fail"), fail=fail)
    sections = {"telemetry": settings, "server": {"check": "off"}}
    async with opened(folder, {"store": store}, environ={"KEY": SECRET}, **sections) as portal:
        for script in scripts:
            await run(portal, script, baggage=PRIVATE)
        with pytest.raises(Exception, match="unknown tool"):
            await portal.client.call_tool(PRIVATE, {PRIVATE: PRIVATE})


async def test_spans_have_nothing_that_a_stranger_wrote(tmp_path: Path) -> None:
    async with collecting() as collector:
        await echo_all(tmp_path, collector, *ECHOING)
    assert len(collector.named("run script")) == 4
    for private in (PRIVATE, PRIVATE.replace("-", "_"), SECRET):
        assert private not in collector.said()


async def test_spans_have_masked_arguments_and_results_if_the_manifest_says_so(tmp_path: Path) -> None:
    async with collecting() as collector:
        await echo_all(tmp_path, collector, *ECHOING[:2], arguments=True)
    call = attributes_of(collector.one("execute_tool store.echo"))
    for key in ("gen_ai.tool.call.arguments", "gen_ai.tool.call.result"):
        assert json.loads(call[key]) == {"a": PRIVATE, "b": "[hidden]"}
    request = attributes_of(collector.named("tools/call execute_code")[0])
    assert PRIVATE in request["gen_ai.tool.call.arguments"]
    assert SECRET not in collector.said()
    assert all(each["x-key"] == SECRET for each in collector.requests)


async def test_secret_that_comes_with_a_reload_is_masked_in_spans(tmp_path: Path) -> None:
    def add(data: Any) -> None:
        data["upstreams"]["new"] = {"url": "http://127.0.0.1:9/mcp", "headers": {"X-Key": "${KEY}"}}

    async with traced(tmp_path, upstreams={"store": Peer()}, arguments=True) as (portal, collector):
        await portal.portal.reload.apply(changed(tmp_path, add, {"KEY": SECRET}))
        assert not (await run(portal, f"await store.echo(a={PRIVATE!r}, b={SECRET!r})")).is_error
    assert PRIVATE in collector.said()
    assert SECRET not in collector.said()


@pytest.mark.parametrize(
    "meta",
    [
        {"traceparent": "x" * 100_000},
        {"traceparent": ["00"]},
        {"traceparent": 7, "tracestate": {}},
        {"traceparent": f"00-{'0' * 32}-{'0' * 16}-01"},
        {"traceparent": "00-é", "tracestate": "\x00"},
    ],
)
def test_a_bad_trace_context_is_ignored(meta: dict[str, Json]) -> None:
    assert not get_current_span(client_context(meta)).get_span_context().is_valid


def test_a_trace_state_that_is_too_long_is_ignored() -> None:
    too_long = ",".join(f"k{n}={'v' * 200}" for n in range(30))
    context = client_context({"traceparent": TRACEPARENT, "tracestate": too_long})
    found = get_current_span(context).get_span_context()
    assert (f"{found.trace_id:x}", dict(found.trace_state)) == (TRACE, {})


async def test_a_run_in_the_background_has_a_trace_of_its_own_with_a_link_to_its_request(
    tmp_path: Path,
) -> None:
    async with traced(tmp_path) as (portal, collector):
        arguments = {"code": "1 + 1", "background": True}
        started = await portal.client.call_tool("execute_code", arguments, meta={"traceparent": TRACEPARENT})
        assert started.structured_content is not None
        with anyio.fail_after(DEADLINE_SECONDS):
            run = started.structured_content["run_id"]
            assert [each.status async for each in portal.portal.runs.answers(run)][-1] == "ok"
    script = collector.one("run script")
    assert script.trace_id.hex() != TRACE
    assert not script.parent_span_id
    request = collector.one("tools/call execute_code")
    assert [(link.trace_id, link.span_id) for link in script.links] == [(request.trace_id, request.span_id)]


def test_shown_text_with_a_lone_surrogate_is_sendable() -> None:
    assert Telemetry(mask=Redaction(())).shown("result", "a\ud800") == {"result": "a?"}


def test_the_only_middleware_of_the_sdk_is_the_one_that_is_replaced() -> None:
    assert [type(each).__name__ for each in Server("any").middleware] == ["OpenTelemetryMiddleware"]


@pytest.mark.parametrize("sections", [{}, {"telemetry": {"metrics": True}}])
async def test_without_a_collector_the_trace_of_a_client_goes_on_as_it_is_and_without_the_section_not_at_all(
    tmp_path: Path, sections: dict[str, Json]
) -> None:
    store = NotingPeer()
    async with opened(tmp_path, {"store": store}, **sections) as portal:
        assert portal.portal.telemetry.is_on is bool(sections)
        assert bool(build_server(portal.portal).middleware) is bool(sections)
        assert not (await run(portal, "await store.echo()", traceparent=TRACEPARENT)).is_error
    assert store.metas[0].get("traceparent") == (TRACEPARENT if sections else None)


def test_without_the_section_nothing_of_the_sdk_is_loaded() -> None:
    sdk = r"opentelemetry\.(?:sdk|exporter)|prometheus_client|portal\.records\.telemetry\.export"
    importing = re.compile(rf"^(?:from|import) (?:{sdk})\b", re.MULTILINE)
    root = Path(__file__).parents[4]
    files = (each for name in ("portal", "upstreams", "manifests") for each in (root / name).rglob("*.py"))
    assert [each.name for each in files if importing.search(each.read_text("utf-8"))] == ["export.py"]
