"""The portal over HTTP, in this process: MCP for many clients at once, health for whatever starts it."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from manifests.json_value import Json
from manifests.portal_manifest import ServerSettings
from portal.app.http_access import HttpAccess
from portal.app.serving import MAX_REQUEST_BYTES, build_http_app
from portal.calls.fetch import FROM_SCRIPT
from portal.server.server import build_server
from tests.portal.peers import DEADLINE_SECONDS, Opened, Peer, never, opened, tool
from tests.portal.test_signed_in_streams import HELLO
from tests.upstreams.peers import http_peer

pytestmark = pytest.mark.anyio

TOKEN = "a-token-of-the-tests"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
JSON_RPC = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


@asynccontextmanager
async def served(portal: Opened, token: str | None = None, **settings: Any) -> AsyncIterator[str]:
    """The portal on a loopback port; yields its origin."""
    access = HttpAccess("127.0.0.1", ServerSettings(token=token, **settings))
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


PREFLIGHT = {
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type,mcp-protocol-version,mcp-session-id",
    "Access-Control-Request-Private-Network": "true",
}
ALLOWED_ORIGIN = "access-control-allow-origin"


@pytest.mark.parametrize("page", ["http://localhost:6274", "https://app.test"])
async def test_page_of_an_allowed_origin_uses_the_portal(tmp_path: Path, page: str) -> None:
    settings = {"allowed_origins": ("https://app.test",)}
    async with (
        opened(tmp_path, {}) as portal,
        served(portal, TOKEN, **settings) as origin,
        httpx2.AsyncClient() as http,
    ):
        url, headers = f"{origin}/mcp", {"Origin": page}
        asked = await http.options(url, headers={**headers, **PREFLIGHT})
        assert (asked.status_code, asked.headers[ALLOWED_ORIGIN]) == (200, page)
        assert asked.headers["access-control-allow-private-network"] == "true"
        assert "mcp-session-id" in asked.headers["access-control-allow-headers"]
        assert "DELETE" in asked.headers["access-control-allow-methods"]
        assert (await http.options(url, headers=headers)).status_code == 401, "no preflight"
        for sent, status in (({}, 401), (BEARER, 200)):
            answer = await http.post(url, json=HELLO, headers={**headers, **JSON_RPC, **sent})
            assert (answer.status_code, answer.headers[ALLOWED_ORIGIN]) == (status, page)
            assert "Mcp-Session-Id" in answer.headers["access-control-expose-headers"]
            assert "access-control-allow-credentials" not in answer.headers
        assert answer.headers["mcp-session-id"]


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/mcp", {"Origin": "https://evil.test"}, 403),
        ("/mcp", {"Origin": "null"}, 403),
        ("/mcp", {"Origin": "http://localhost:6274", "Host": "evil.test"}, 421),
        ("/mcp", {"Origin": "http://localhost:6274", FROM_SCRIPT: "1"}, 403),
        ("/runs", {"Origin": "http://localhost:6274"}, 401),
    ],
)
async def test_other_preflights_are_refused(
    tmp_path: Path, path: str, headers: dict[str, str], status: int
) -> None:
    async with (
        opened(tmp_path, {}) as portal,
        served(portal, TOKEN) as origin,
        httpx2.AsyncClient() as http,
    ):
        answer = await http.options(f"{origin}{path}", headers={**PREFLIGHT, **headers})
        assert answer.status_code == status and ALLOWED_ORIGIN not in answer.headers
        if "Host" not in headers:
            answer = await http.post(f"{origin}{path}", json=HELLO, headers={**JSON_RPC, **BEARER, **headers})
            assert answer.headers.get(ALLOWED_ORIGIN) is None


async def test_without_a_token_only_listed_pages_use_the_portal(tmp_path: Path) -> None:
    listed, local = "http://localhost:6274", "http://localhost:3000"
    async with (
        opened(tmp_path, {}) as portal,
        served(portal, allowed_origins=(listed,)) as origin,
        httpx2.AsyncClient() as http,
    ):
        for page, allowed in ((listed, listed), (local, None)):
            answer = await http.options(f"{origin}/mcp", headers={"Origin": page, **PREFLIGHT})
            assert answer.headers.get(ALLOWED_ORIGIN) == allowed


async def test_unknown_well_known_paths_are_not_found_and_others_want_the_token(tmp_path: Path) -> None:
    async with (
        opened(tmp_path, {}) as portal,
        served(portal, TOKEN) as origin,
        httpx2.AsyncClient() as http,
    ):
        unknown = (
            "oauth-authorization-server",
            "openid-configuration",
            "oauth-authorization-server/mcp",
            "x/y",
        )
        for path in (*(f"/.well-known/{each}" for each in unknown), "/mcp/.well-known/openid-configuration"):
            assert (await http.get(f"{origin}{path}")).status_code == 404, path
        for path in ("/mcp", "/runs", "/.well-known", "/mcp/x", "/nowhere"):
            assert (await http.get(f"{origin}{path}")).status_code == 401, path
        around = httpx2.URL(origin).copy_with(raw_path=b"/.well-known/../mcp")
        assert (await http.post(around, json=HELLO, headers=JSON_RPC)).status_code in (401, 404)


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
