"""Numbers: what /metrics shows, whom, and under which labels."""

from pathlib import Path

import httpx2
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import Request, RequestParams, Result
from prometheus_client.parser import text_string_to_metric_families
from starlette.datastructures import Headers

from manifests.errors import ManifestError
from manifests.json_value import Json
from manifests.loader import load_manifest
from manifests.portal_manifest import PortalManifest, ServerSettings, TelemetrySettings
from portal.app.http_access import HttpAccess
from portal.base.errors import SignInError
from tests.portal.app.test_http_app import served
from tests.portal.peers import Opened, Peer, opened, tool, write_manifest

OPERATORS, METRICS, TENANT = (
    "token-of-operators",
    "token-of-metrics",
    {"token": "of-a-tenant", "tenant": "acme"},
)


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
    assert sum(shown["mcp_code_portal_store_writes_total"].values()) > 0
    refusals = shown["mcp_code_portal_refusals_total"]
    assert list(refusals.values()) == [1]
    assert next(iter(refusals))[0] == "not_granted"
    assert shown["mcp_code_portal_upstream_state"][("ready", "store")] == 1
    assert sum(shown["mcp_code_portal_upstream_state"].values()) == 1
    assert shown["mcp_code_portal_upstream_connections_total"] == {("store",): 1}
    assert shown["mcp_code_portal_queue_wait_duration_seconds_count"][()] == 3
    assert sum(shown["mcp_code_portal_workers"].values()) >= 1
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
    ("sections", "metrics_token", "statuses"),
    [
        # Statuses without a token, and with those of operators, for metrics and of a tenant.
        ({"token": OPERATORS, "tokens": [TENANT]}, None, (401, 200, 401, 401)),
        ({"token": OPERATORS}, METRICS, (401, 401, 200, 401)),
        ({"tokens": [TENANT]}, METRICS, (401, 401, 200, 401)),
        ({}, None, (200, 200, 200, 200)),
    ],
)
async def test_who_may_read_metrics(
    sections: dict[str, Json], metrics_token: str | None, statuses: tuple[int, ...]
) -> None:
    telemetry = TelemetrySettings(metrics=True, metrics_token=metrics_token)
    server = ServerSettings.model_validate(sections)
    access = HttpAccess("127.0.0.1", PortalManifest(server=server, telemetry=telemetry))

    def status(sent: str, **more: str) -> int:
        headers = {"Host": "127.0.0.1:8080", **({"Authorization": f"Bearer {sent}"} if sent else {}), **more}
        refusal = access.metrics_refusal(Headers(headers))
        return refusal.status_code if refusal else 200

    assert tuple(status(sent) for sent in ("", OPERATORS, METRICS, TENANT["token"])) == statuses
    pages = {"Host": "evil.example"}, {"Origin": "http://evil.example"}
    if sections:  # a scraper may use an address
        assert status(metrics_token or OPERATORS, Host="10.0.0.7:8080") == 200
        with pytest.raises(SignInError):  # and a token for metrics opens nothing else
            await access.caller(Headers({"Authorization": f"Bearer {METRICS}"}))
    else:
        assert [status("", **each) for each in pages] == [421, 403]


async def test_without_metrics_there_is_no_page(tmp_path: Path) -> None:
    otlp = {"otlp": "http://127.0.0.1:9"}
    async with (
        opened(tmp_path, telemetry=otlp) as portal,
        served(portal) as url,
        httpx2.AsyncClient() as http,
    ):
        assert (await http.get(f"{url}/metrics")).status_code == 404


@pytest.mark.parametrize(
    ("telemetry", "server", "word"),
    [
        ({}, {}, "does nothing"),
        ({"arguments": True}, {}, "does nothing"),
        ({"otlp": "http://collector.example:4318", "headers": {"X-Key": "k"}}, {}, "not https://"),
        ({"metrics": True}, {"tokens": [TENANT]}, "no one may read"),
    ],
)
def test_useless_and_unsafe_settings_are_refused(
    tmp_path: Path, telemetry: dict[str, Json], server: dict[str, Json], word: str
) -> None:
    with pytest.raises(ManifestError, match=word):
        load_manifest(write_manifest(tmp_path, {}, telemetry=telemetry, server=server), {})
