"""Numbers: what /metrics shows, whom, and under which labels."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import Request, RequestParams, Result
from prometheus_client.parser import text_string_to_metric_families

from manifests.errors import ManifestError
from manifests.json_value import Json
from manifests.loader import load_manifest
from tests.portal.peers import DEADLINE_SECONDS, Opened, Peer, http_app, opened, tool, write_manifest
from tests.upstreams.peers import http_peer

pytestmark = pytest.mark.anyio

OPERATORS, METRICS, TENANTS = "token-of-operators", "token-of-metrics", "token-of-a-tenant"


def page(portal: Opened) -> dict[str, dict[tuple[str, ...], float]]:
    """The numbers by their names, each by the values of its labels, without those of buckets."""
    shown = portal.portal.telemetry.page()
    return {
        sample.name: {
            tuple(value for _, value in sorted(other.labels.items())): other.value
            for other in family.samples
            if other.name == sample.name
        }
        for family in text_string_to_metric_families(shown[0].decode())
        for sample in family.samples
        if not sample.name.endswith("_bucket")
    }


async def test_what_happens_is_counted(tmp_path: Path) -> None:
    capabilities = {"tools": {"allow": ["*"], "deny": ["store.secret"]}}
    telemetry = {"metrics": True}
    store = Peer(tool("echo"), tool("secret"))
    async with opened(tmp_path, {"store": store}, telemetry=telemetry, capabilities=capabilities) as portal:
        assert (
            await portal.result_of("[len((await store.echo(a='x' * 1000))['a']) for _ in 'abc']")
            == [1000] * 3
        )
        await portal.error_of("await store.secret()")
        await portal.error_of("f = 'secret'\nawait getattr(store, f)()")
        shown = page(portal)
    assert shown["mcp_code_portal_run_duration_seconds_count"][("", "ok")] == 1
    assert shown["mcp_client_operation_duration_seconds_count"] == {("store", "tools/call"): 3}
    assert shown["mcp_code_portal_call_duration_seconds_count"][("done", "store")] == 3
    assert shown["mcp_code_portal_call_result_size_bytes_total"][()] == 3 * len('{"a":""}') + 3000
    assert 0 < shown["mcp_code_portal_answer_size_bytes_total"][()] < 3000
    refusals = shown["mcp_code_portal_refusals_total"]
    assert list(refusals.values()) == [1]
    assert next(iter(refusals))[0] == "not_granted"
    assert shown["mcp_code_portal_upstream_state"][("ready", "store")] == 1
    assert sum(shown["mcp_code_portal_upstream_state"].values()) == 1
    assert shown["mcp_code_portal_upstream_connections_total"] == {("store",): 1}
    assert shown["mcp_code_portal_queue_wait_duration_seconds_count"][()] == 3
    assert sum(shown["mcp_code_portal_workers"].values()) >= 2
    assert shown["mcp_code_portal_runs_open"] == {("running",): 0, ("waiting",): 0}


async def test_strangers_choose_no_label(tmp_path: Path) -> None:
    word = "zzstranger"
    async with opened(
        tmp_path, {"store": Peer()}, telemetry={"metrics": True}, server={"check": "off"}
    ) as portal:
        await portal.run(f"await store.{word}()")
        await portal.run(f"raise type('{word}', (Exception,), {{'code': '{word}'}})")
        await portal.run("1", session=word)
        with pytest.raises(MCPError):
            await portal.client.call_tool(word, {})
        with pytest.raises(MCPError):
            await portal.client.session.send_request(Request(method=word, params=RequestParams()), Result)
        shown = portal.portal.telemetry.page()
    assert word not in shown[0].decode()


@pytest.mark.parametrize(
    ("sections", "statuses"),
    [
        # Statuses without a token, and with those of operators, for metrics and of a tenant.
        ({"token": OPERATORS, "tokens": [{"token": TENANTS, "tenant": "acme"}]}, (401, 200, 401, 401)),
        ({"token": OPERATORS, "metrics_token": METRICS}, (401, 401, 200, 401)),
        ({"metrics_token": METRICS, "tokens": [{"token": TENANTS, "tenant": "acme"}]}, (401, 401, 200, 401)),
        ({}, (200, 200, 200, 200)),
    ],
)
async def test_who_may_read_metrics(
    tmp_path: Path, sections: dict[str, Json], statuses: tuple[int, ...]
) -> None:
    telemetry = {"metrics": True}
    if token := sections.pop("metrics_token", None):
        telemetry["metrics_token"] = token
    async with opened(tmp_path, telemetry=telemetry, server=sections) as portal:
        found = []
        async with served(portal) as http:
            for sent in ("", OPERATORS, METRICS, TENANTS):
                response = await http.get(
                    "/metrics", headers={"Authorization": f"Bearer {sent}"} if sent else {}
                )
                assert ("mcp_code_portal" in response.text) is (response.status_code == 200)
                assert "acme" not in response.text
                found.append(response.status_code)
            if token:  # it opens nothing else
                run = await http.get("/runs", headers={"Authorization": f"Bearer {token}"})
                assert run.status_code == 401
    assert tuple(found) == statuses


async def test_a_page_of_another_site_reads_no_metrics(tmp_path: Path) -> None:
    async with opened(tmp_path, telemetry={"metrics": True}) as portal, served(portal) as http:
        assert (await http.get("/metrics", headers={"Host": "evil.example"})).status_code == 421
        assert (await http.get("/metrics", headers={"Origin": "http://evil.example"})).status_code == 403


async def test_a_scraper_may_use_an_address(tmp_path: Path) -> None:
    telemetry = {"metrics": True, "metrics_token": METRICS}
    async with opened(tmp_path, telemetry=telemetry) as portal, served(portal) as http:
        headers = {"Host": "10.0.0.7:8080", "Authorization": f"Bearer {METRICS}"}
        assert (await http.get("/metrics", headers=headers)).status_code == 200


@pytest.mark.parametrize("telemetry", [None, {"otlp": "http://127.0.0.1:9"}])
async def test_without_metrics_there_is_no_page(tmp_path: Path, telemetry: Json) -> None:
    sections = {} if telemetry is None else {"telemetry": telemetry}
    async with opened(tmp_path, **sections) as portal, served(portal) as http:
        assert (await http.get("/metrics")).status_code == 404


@pytest.mark.parametrize(
    ("telemetry", "server", "word"),
    [
        ({}, {}, "does nothing"),
        ({"arguments": True}, {}, "does nothing"),
        ({"otlp": "http://collector.example:4318", "headers": {"X-Key": "k"}}, {}, "not https://"),
        ({"metrics": True}, {"tokens": [{"token": TENANTS}]}, "nobody may read"),
    ],
)
def test_useless_and_unsafe_settings_are_refused(
    tmp_path: Path, telemetry: dict[str, Json], server: dict[str, Json], word: str
) -> None:
    with pytest.raises(ManifestError, match=word):
        load_manifest(write_manifest(tmp_path, {}, telemetry=telemetry, server=server), {})


@asynccontextmanager
async def served(portal: Opened) -> AsyncIterator[httpx2.AsyncClient]:
    """An HTTP client of the portal."""
    async with http_peer(http_app(portal.portal)) as peer:
        origin = f"http://127.0.0.1:{peer.port}"
        async with httpx2.AsyncClient(base_url=origin, timeout=DEADLINE_SECONDS) as http:
            yield http
