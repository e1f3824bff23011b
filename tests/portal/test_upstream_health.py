"""What scripts, searches and readiness say of upstreams that fail, rest, or get too many calls."""

from pathlib import Path

import httpx2

from manifests.json_value import Json
from manifests.portal_manifest import ServerSettings
from portal.app.http_access import HttpAccess
from portal.app.serving import build_http_app
from portal.server.server import build_server
from tests.portal.peers import DEADLINE_SECONDS, Opened, Peer, opened, states
from tests.upstreams.faults.http_server import FaultyHttpServer, hang, status

FAILURES = """\
codes = []
for n in range(8):
    try:
        await broken.act(n=n)
    except ToolError as error:
        codes.append(error.code)
codes
"""
OUTAGE = ["upstream_answer"] * 5 + ["circuit_open"] * 3


async def test_script_is_answered_at_once_after_five_failures(tmp_path: Path) -> None:
    server = FaultyHttpServer(status("503 Service Unavailable"), always=True)
    async with (
        server.serving(),
        opened(tmp_path, {"broken": {"url": server.url}, "healthy": Peer()}) as portal,
    ):
        answer = await portal.run(FAILURES)
        assert answer["result"] == OUTAGE
        assert [state for _, state in states(answer)] == ["unknown"] * 5 + ["not_started"] * 3
        assert server.arrivals["act"] == 5
        assert await portal.result_of("await healthy.echo(a=1)") == {"a": 1}


async def test_open_circuit_is_told_by_search_and_readiness(tmp_path: Path) -> None:
    server = FaultyHttpServer(status("503 Service Unavailable"), always=True)
    async with (
        server.serving(),
        opened(tmp_path, {"broken": {"url": server.url}, "healthy": Peer()}) as portal,
    ):
        await portal.result_of(FAILURES)
        search = await portal.search()
        assert {row["upstream"]: row["state"] for row in search["namespaces"]} == {
            "broken": "failing",
            "healthy": "ready",
        }
        assert any("'broken' is failing" in notice and "503" in notice for notice in search["notices"])
        readiness = await readyz(portal)
        assert readiness["upstreams"] == {"failing": 1, "ready": 1}
        assert list(readiness["not_ready"]) == ["broken"]


async def test_upstream_that_hangs_is_called_five_times_whatever_scripts_try(tmp_path: Path) -> None:
    server = FaultyHttpServer(hang, always=True)
    async with server.serving():
        entry: dict[str, Json] = {"url": server.url, "call_seconds": 0.2}
        async with opened(tmp_path, {"broken": entry}) as portal:
            codes = await portal.result_of(FAILURES)
            assert codes == ["upstream_timeout"] * 5 + ["circuit_open"] * 3


async def readyz(portal: Opened) -> dict[str, Json]:
    access = HttpAccess("127.0.0.1", ServerSettings())
    app = build_http_app(portal.portal, build_server(portal.portal), access)
    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(
        transport=transport, base_url="http://127.0.0.1", timeout=DEADLINE_SECONDS
    ) as http:
        answer = (await http.get("/readyz")).json()
    assert isinstance(answer, dict)
    return answer
