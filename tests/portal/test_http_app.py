"""The portal over HTTP, in this process: MCP for many clients at once, health for whatever starts it."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from manifests.json_value import Json
from manifests.portal_manifest import ServerSettings
from portal.http_access import HttpAccess
from portal.server import build_server
from portal.serving import MAX_REQUEST_BYTES, build_http_app
from tests.portal.peers import DEADLINE_SECONDS, Opened, Peer, never, opened, tool
from tests.upstreams.peers import http_peer

pytestmark = pytest.mark.anyio

TOKEN = "a-token-of-the-tests"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
JSON_RPC = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


@asynccontextmanager
async def served(portal: Opened, token: str | None = None) -> AsyncIterator[str]:
    """The portal on a loopback port; yields its origin."""
    access = HttpAccess("127.0.0.1", ServerSettings(token=token))
    app = build_http_app(portal.portal, build_server(portal.portal), access)
    async with http_peer(app) as peer:
        yield f"http://127.0.0.1:{peer.port}"


@asynccontextmanager
async def client(
    origin: str, mode: str = "auto", headers: dict[str, str] | None = None
) -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(headers=headers or {}, timeout=DEADLINE_SECONDS) as http,
        Client(streamable_http_client(f"{origin}/mcp", http_client=http), mode=mode) as client,
    ):
        yield client


def call(number: int, code: str) -> dict[str, Json]:
    """A request as a client of the handshake era sends it, with a number of its own choice."""
    params = {"name": "execute_code", "arguments": {"code": code}}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_that_goes_away_ends_its_run(tmp_path: Path, mode: str) -> None:
    peer = Peer(tool("hang"), tool("echo"), hang=never)
    async with opened(tmp_path, {"store": peer}) as portal, served(portal) as origin:
        async with anyio.create_task_group() as tasks:

            async def ask() -> None:
                async with client(origin, mode) as caller:
                    await caller.call_tool("execute_code", {"code": "await store.hang()"})

            tasks.start_soon(ask)
            await peer.until(lambda: bool(peer.calls))
            tasks.cancel_scope.cancel()
        await peer.until(lambda: peer.cancelled == ["hang"])
        assert await portal.result_of("await store.echo(a=1)") == {"a": 1}


async def test_nonsense_is_answered_with_an_error_and_harms_nobody(tmp_path: Path) -> None:
    async with opened(tmp_path) as portal, served(portal) as origin:
        async with httpx2.AsyncClient(base_url=origin, headers=JSON_RPC) as http:
            for body in (b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b"[" * 100_000, b'{"id": 1}'):
                assert 400 <= (await http.post("/mcp", content=body)).status_code < 500, body[:20]
            large = json.dumps(call(1, "x" * MAX_REQUEST_BYTES)).encode()
            assert (await http.post("/mcp", content=large)).status_code == 413
        async with client(origin) as caller:
            assert len((await caller.list_tools()).tools) == 2
