"""Failing upstreams as scripts, searches and readiness report them, and headers that are renewed."""

from pathlib import Path

import httpx2
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from manifests.json_value import Json
from tests.portal.peers import Peer, http_app, opened, states
from tests.upstreams.faults.http_server import FaultyHttpServer, status
from tests.upstreams.peers import http_peer
from tests.upstreams.raw_http_server import RawHttpServer


async def test_open_circuit_answers_scripts_at_once_and_is_told_by_search_and_readiness(
    tmp_path: Path,
) -> None:
    code = """
codes = []
for n in range(8):
    try:
        await broken.act(n=n)
    except ToolError as error:
        codes.append(error.code)
codes"""
    server = FaultyHttpServer(status("503 Service Unavailable"), always=True)
    async with (
        server.serving(),
        opened(tmp_path, {"broken": {"url": server.url}, "healthy": Peer()}) as portal,
        httpx2.AsyncClient(transport=httpx2.ASGITransport(http_app(portal.portal))) as http,
    ):
        answer = await portal.run(code)
        assert answer["result"] == ["upstream_answer"] * 5 + ["circuit_open"] * 3
        assert [state for _, state in states(answer)] == ["unknown"] * 5 + ["not_started"] * 3
        assert server.arrivals["act"] == 5
        assert await portal.result_of("await healthy.echo(a=1)") == {"a": 1}
        search = await portal.search()
        told = {row["upstream"]: row["state"] for row in search["namespaces"]}
        assert told == {"broken": "failing", "healthy": "ready"}
        assert any("'broken' is failing" in notice and "503" in notice for notice in search["notices"])
        readiness = (await http.get("http://127.0.0.1/readyz")).json()
        assert readiness["upstreams"] == {"failing": 1, "ready": 1}
        assert list(readiness["not_ready"]) == ["broken"]


async def test_refused_call_is_sent_again_with_the_new_secret_and_that_is_hidden(tmp_path: Path) -> None:
    """The upstream repeats whatever it does not take."""
    server, (token, runs) = RawHttpServer(), (tmp_path / "token", tmp_path / "runs")
    (tmp_path / "print.sh").write_text("printf . >> runs; cat token")
    headers = {"Authorization": "Bearer ${command:sh print.sh}"}

    def becomes(printed: str, accepted: str) -> None:
        token.write_text(printed)
        server.authorization = f"Bearer {accepted}"

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        sent = dict(scope.get("headers", [])).get(b"authorization", b"").decode()
        if scope["type"] != "http" or sent == server.authorization:
            await server.app(scope, receive, send)
        else:
            await PlainTextResponse(f"not {sent}", status_code=401)(scope, receive, send)

    becomes("token-1", "token-1")
    async with http_peer(app) as peer:
        gate: Json = {"url": f"http://127.0.0.1:{peer.port}/mcp", "headers": headers}
        async with opened(tmp_path, {"gate": gate}) as portal:
            for number in (1, 2):
                becomes(f"token-{number}", f"token-{number}")
                assert states(await portal.run("await gate.echo()")) == [("gate.echo", "done")]
            assert (server.executed, server.sessions_opened, runs.read_text()) == (2, 1, "..")
            becomes("canary-of-tokens", "something else")
            answer = await portal.run("await gate.echo()")
            assert "hidden" in answer["error"]["message"]
            assert "canary" not in str(answer) + portal.portal.fleet["gate"].state.detail
