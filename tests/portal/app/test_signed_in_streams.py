"""An open stream does not outlive the token of the person who opened it."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost

from portal.app import http_access
from tests.portal.issuer import AUDIENCE, Issuer
from tests.portal.peers import Peer, http_app, opened, structured, tool
from tests.upstreams.peers import DEADLINE_SECONDS, http_peer

HELLO: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
}  # fmt: skip


async def test_streams_end_with_the_token_and_scripts_by_themselves(
    issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    have_ended = anyio.Event()

    async def wait(arguments: dict[str, Any]) -> Any:
        await have_ended.wait()
        return structured({"done": True})

    peer = Peer(tool("wait"), wait=wait)
    server = {"auth": {"issuer": issuer.url, "audience": AUDIENCE}, "offers": ["resources"]}
    async with (
        opened(tmp_path, {"up": peer}, server=server, runs={"store": "runs.sqlite"}) as portal,
        http_peer(http_app(portal.portal)) as served,
    ):
        url = f"http://127.0.0.1:{served.port}"
        exp = time.time() + 3_000
        headers = {
            "Authorization": f"Bearer {issuer.token(exp=exp)}",
            "Accept": "application/json, text/event-stream",
        }
        http = httpx2.AsyncClient(base_url=url, headers=headers, timeout=DEADLINE_SECONDS)
        answers: list[str] = []

        async def run_script() -> None:
            answer = await client.call_tool("execute_code", {"code": "await up.wait()"})
            answers.append(answer.structured_content["status"])

        async def read(path: str, **headers: str) -> None:
            async with http.stream("GET", path, headers=headers) as stream:
                assert stream.status_code == 200
                async for _ in stream.aiter_lines():
                    pass

        async with http, Client(streamable_http_client(f"{url}/mcp", http_client=http)) as client:
            session = (await http.post("/mcp", json=HELLO)).headers["mcp-session-id"]
            run = (await http.post("/runs", json={"code": "await up.wait()"})).json()["run_id"]
            # For streams that open from now on, the token has one more second.
            late = SimpleNamespace(time=lambda: exp + 29)
            monkeypatch.setattr(http_access, "time", late)
            with anyio.fail_after(DEADLINE_SECONDS):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(run_script)
                    await peer.until(lambda: len(peer.calls) == 2)
                    with pytest.raises(SubscriptionLost):
                        async with client.listen(resources_list_changed=True) as subscription:
                            async for _ in subscription:
                                pass
                    await read("/mcp", **{"mcp-session-id": session})
                    await read(f"/runs/{run}/events")
                    assert not answers
                    have_ended.set()
            assert answers == ["ok"]
