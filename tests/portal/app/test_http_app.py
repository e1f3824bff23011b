"""The portal over HTTP: who may talk to it, MCP for many clients at once, and the messages of a client over stdio."""

import asyncio
import json
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from manifests.portal_manifest import AuthSettings, PortalManifest, ServerSettings
from portal.app.http_access import OPEN_PATHS, HttpAccess, HttpAccessMiddleware, sign_in_routes
from portal.app.http_connections import listening
from portal.app.replicas import MAX_REQUEST_BYTES
from portal.app.serving import ClientAnswers, ClientMessages, build_http_app
from portal.base.caller import Bearer
from portal.base.errors import OpenBindError, SignInError
from portal.calls.fetch import FROM_SCRIPT
from portal.server.server import build_server
from tests.portal.app.test_signed_in_streams import HELLO
from tests.portal.issuer import AUDIENCE, CLIENT, Issuer
from tests.portal.peers import DEADLINE_SECONDS, Opened, Peer, never, opened, tool
from tests.upstreams.peers import http_peer

TOKEN = "a-token-of-the-tests"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
JSON_RPC = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


@asynccontextmanager
async def served(portal: Opened, token: str | None = None, **settings: Any) -> AsyncIterator[str]:
    """The portal on a loopback port; yields its origin."""
    access = HttpAccess("127.0.0.1", PortalManifest(server=ServerSettings(token=token, **settings)))
    app = build_http_app(portal.portal, build_server(portal.portal), lambda: access)
    async with http_peer(app) as peer:
        yield f"http://127.0.0.1:{peer.port}"


@asynccontextmanager
async def client(
    origin: str, mode: str = "auto", headers: dict[str, str] | None = None, **options: Any
) -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(headers=headers or {}, timeout=DEADLINE_SECONDS) as http,
        Client(streamable_http_client(f"{origin}/mcp", http_client=http), mode=mode, **options) as client,
    ):
        yield client


PREFLIGHT = {
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type,mcp-protocol-version,mcp-session-id",
    "Access-Control-Request-Private-Network": "true",
}
ALLOWED_ORIGIN = "access-control-allow-origin"
LOCAL = "http://localhost:6274"


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of a portal with a token, which pages of app.test may use."""
    async with (
        opened(tmp_path, {}) as portal,
        served(portal, TOKEN, allowed_origins=("https://app.test",)) as origin,
        httpx2.AsyncClient(base_url=origin) as http,
    ):
        yield http


@pytest.mark.parametrize("page", [LOCAL, "https://app.test"])
async def test_page_of_an_allowed_origin_uses_the_portal(http: httpx2.AsyncClient, page: str) -> None:
    headers = {"Origin": page}
    asked = await http.options("/mcp", headers={**headers, **PREFLIGHT})
    assert (asked.status_code, asked.headers[ALLOWED_ORIGIN]) == (200, page)
    assert asked.headers["access-control-allow-private-network"] == "true"
    assert "mcp-session-id" in asked.headers["access-control-allow-headers"]
    assert "DELETE" in asked.headers["access-control-allow-methods"]
    assert (await http.options("/mcp", headers=headers)).status_code == 401, "no preflight"
    for sent, status in (({}, 401), (BEARER, 200)):
        answer = await http.post("/mcp", json=HELLO, headers={**headers, **JSON_RPC, **sent})
        assert (answer.status_code, answer.headers[ALLOWED_ORIGIN]) == (status, page)
        assert "Mcp-Session-Id" in answer.headers["access-control-expose-headers"]
        assert "access-control-allow-credentials" not in answer.headers
    assert answer.headers["mcp-session-id"]


async def test_other_preflights_are_refused(http: httpx2.AsyncClient) -> None:
    refused: list[tuple[str, dict[str, str], int]] = [
        ("/mcp", {"Origin": "https://evil.test"}, 403),
        ("/mcp", {"Origin": "null"}, 403),
        ("/mcp", {"Origin": LOCAL, "Host": "evil.test"}, 421),
        ("/mcp", {"Origin": LOCAL, FROM_SCRIPT: "1"}, 403),
        ("/runs", {"Origin": LOCAL}, 401),
    ]
    for path, headers, status in refused:
        answer = await http.options(path, headers={**PREFLIGHT, **headers})
        assert answer.status_code == status and ALLOWED_ORIGIN not in answer.headers
        if "Host" not in headers:
            answer = await http.post(path, json=HELLO, headers={**JSON_RPC, **BEARER, **headers})
            assert ALLOWED_ORIGIN not in answer.headers


async def test_without_a_token_only_listed_pages_use_the_portal(tmp_path: Path) -> None:
    async with (
        opened(tmp_path, {}) as portal,
        served(portal, allowed_origins=(LOCAL,)) as origin,
        httpx2.AsyncClient() as http,
    ):
        for page, allowed in ((LOCAL, LOCAL), ("http://localhost:3000", None)):
            answer = await http.options(f"{origin}/mcp", headers={"Origin": page, **PREFLIGHT})
            assert answer.headers.get(ALLOWED_ORIGIN) == allowed


async def test_unknown_well_known_paths_are_not_found_and_others_want_the_token(
    http: httpx2.AsyncClient,
) -> None:
    unknown = ("oauth-authorization-server", "oauth-authorization-server/mcp", "x/y")
    for path in (*(f"/.well-known/{each}" for each in unknown), "/mcp/.well-known/openid-configuration"):
        assert (await http.get(path)).status_code == 404, path
    for path in ("/mcp", "/runs", "/.well-known", "/mcp/x", "/nowhere"):
        assert (await http.get(path)).status_code == 401, path
    around = http.base_url.copy_with(raw_path=b"/.well-known/../mcp")
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
            assert (await http.post("/mcp", content=b"x" * (MAX_REQUEST_BYTES + 1))).status_code == 413
        async with client(origin) as caller:
            assert len((await caller.list_tools()).tools) == 2


def rules(host: str = "127.0.0.1", **settings: object) -> HttpAccess:
    return HttpAccess(host, PortalManifest.model_validate({"server": settings}))


async def status(access: HttpAccess, headers: Mapping[str, str], path: str) -> int:
    async def answer(request: Request) -> PlainTextResponse:
        return PlainTextResponse("reached")

    routes = [Route("/mcp", answer, methods=["GET", "POST"])]
    app = Starlette(routes=routes, middleware=[Middleware(HttpAccessMiddleware, access=lambda: access)])
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
        raw = {name: value.encode() for name, value in headers.items()}
        return (await client.post(path, headers=raw)).status_code


class Expired(HttpAccess):
    """Lets a token in that expires at once."""

    async def caller(self, headers: Headers) -> Bearer | None:
        return Bearer("late", None, ends=0.0)


@pytest.mark.parametrize(("begins", "expected"), [(False, 401), (True, 200)])
async def test_token_that_expires_ends_an_answer_or_is_refused_if_none_has_begun(
    begins: bool, expected: int
) -> None:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if begins:
            with anyio.CancelScope(shield=True):
                await send({"type": "http.response.start", "status": 200, "headers": []})
        await anyio.sleep_forever()

    app = HttpAccessMiddleware(answer, lambda: Expired("127.0.0.1", PortalManifest()))
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=app), base_url="http://127.0.0.1:8080"
    ) as http:
        assert (await http.get("/runs")).status_code == expected


FOREIGN_HOSTS = (
    "evil.test",
    "0.0.0.0",
    "127.0.0.1.nip.test:8080",
    "localhost.evil.test",
    "127.0.0.1:8080@evil.test",
    "",
)
FOREIGN_ORIGINS = ("https://evil.test", "null", "http://localhost.evil.test", "file://", "")
WRONG_TOKENS = (
    "",
    "secret",
    "Bearer",
    "Bearer ",
    "Bearer wrong",
    "Basic secret",
    "Bearer secret2",
    "Bearer sécret",
)
HERE: dict[str, object] = {}
GRANTED: dict[str, object] = {"allowed_origins": ["https://app.test"]}
GUARDED: dict[str, object] = {"token": "secret"}


@pytest.mark.parametrize(
    ("settings", "headers", "expected"),
    [
        (HERE, {}, 200),
        (HERE, {"Host": "localhost:8080"}, 200),
        (HERE, {"Host": "[::1]:8080"}, 200),
        *((HERE, {"Host": host}, 421) for host in FOREIGN_HOSTS),
        (HERE, {"Origin": "http://localhost:3000"}, 200),
        (GRANTED, {"Origin": "https://app.test"}, 200),
        *((HERE, {"Origin": origin}, 403) for origin in FOREIGN_ORIGINS),
        (GUARDED, {"Authorization": "Bearer secret"}, 200),
        (GUARDED, {"Authorization": "bearer secret"}, 200),
        *((GUARDED, {"Authorization": words}, 401) for words in WRONG_TOKENS),
    ],
)
async def test_who_is_let_in(settings: dict[str, object], headers: dict[str, str], expected: int) -> None:
    assert await status(rules(**settings), headers, "/mcp") == expected
    assert await status(rules(**settings), headers, "/nowhere") == (404 if expected == 200 else expected)


@pytest.mark.parametrize("path", OPEN_PATHS)
async def test_health_checks_by_address_are_answered_and_rebound_names_are_not(path: str) -> None:
    def asked(host: str, path: str) -> Awaitable[int]:
        return status(rules(**GUARDED), {"Host": host, "Authorization": "Bearer secret"}, path)

    no_route = 404
    for host in ("10.1.2.3", "10.1.2.3:8080", "[fd00::1]:8080", ""):
        assert (await asked(host, path), await asked(host, "/mcp")) == (no_route, 421)
    for host in (
        "evil.test",
        "10.1.2.3.nip.test:8080",
        "10.1.2.3:8080@evil.test",
        "[evil",
        "localhost.evil.test",
    ):
        assert await asked(host, path) == 421
    assert await status(rules(), {"Host": "10.1.2.3", "Origin": "https://evil.test"}, path) == 403


@pytest.mark.parametrize("host", ["127.8.8.8", "::1", "localhost"])
def test_listening_on_loopback_needs_no_token(host: str) -> None:
    rules(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "localhost.evil.test"])
@pytest.mark.parametrize("settings", [GUARDED, {"tokens": [{"token": "secret", "profile": "reader"}]}])
async def test_listening_beyond_loopback_needs_a_token_of_everybody(
    host: str, settings: dict[str, object]
) -> None:
    with pytest.raises(OpenBindError):
        rules(host)
    access = rules(host, **settings)
    for headers in ({}, {"authorization": "Bearer other"}, {"authorization": "Basic secret"}):
        with pytest.raises(SignInError):
            await access.caller(Headers(headers))
    bearer = await access.caller(Headers({"authorization": "bearer secret"}))
    assert (bearer and bearer.profile) == ("reader" if "tokens" in settings else None)
    assert "secret" not in repr(access)


@pytest.mark.parametrize(
    ("audience", "host", "path"),
    [
        ("https://portal.example/mcp", "portal.example", "/mcp"),
        ("https://portal.example", "Portal.example:443", ""),
        ("https://portal.example:8443/a%20b/{x}/%7By%7D", "portal.example:8443", "/a%20b/%7Bx%7D/%7By%7D"),
        ("https://b\u00fccher.example/mcp", "xn--bcher-kva.example", "/mcp"),
        ("https://[fd00::1]:8443/mcp", "[fd00::1]:8443", "/mcp"),
    ],
)
async def test_a_client_finds_the_metadata_of_a_portal_at_any_url(
    audience: str, host: str, path: str
) -> None:
    auth = AuthSettings.model_validate({"issuer": "https://id.example", "audience": audience})
    access = HttpAccess("127.0.0.1", PortalManifest(server=ServerSettings(auth=auth)))
    app = Starlette(
        routes=sign_in_routes(auth), middleware=[Middleware(HttpAccessMiddleware, access=lambda: access)]
    )
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, headers={"Host": host}) as client:
        challenge = (await client.get("http://127.0.0.1/mcp")).headers["www-authenticate"]
        told = challenge.partition('resource_metadata="')[2].partition('"')[0]
        where = httpx2.URL(told)
        assert told.endswith(f"/.well-known/oauth-protected-resource{path}")
        found = await client.get(where.copy_with(scheme="http", host="127.0.0.1", port=None))
        assert found.json()["authorization_servers"] == ["https://id.example"]


@pytest.mark.parametrize("size", [10, 3_000_000])
async def test_an_answer_arrives_whole_however_long_it_is(size: int) -> None:
    reader, writer = os.pipe()
    received = bytearray()

    def read_all() -> None:
        while received.count(b"\n") < 2:
            received.extend(os.read(reader, 1 << 16))

    answers = ClientAnswers(writer)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.to_thread.run_sync, read_all)
        tasks.start_soon(answers.write)
        for method in ("x" * size, "last"):
            await answers.send(SessionMessage(JSONRPCNotification(jsonrpc="2.0", method=method)))
        await answers.aclose()
    assert [json.loads(line)["method"] for line in received.splitlines()] == ["x" * size, "last"]


async def test_lines_come_whole_however_they_are_sent() -> None:
    reader, writer = os.pipe()
    ab, c, long, last = (_line(method) for method in ("ab", "c", "x" * 300_000, "last"))

    def send() -> None:
        for piece in (ab[:9], ab[9:] + c, long, b"no json\n", last.rstrip()):
            os.write(writer, piece)
        os.close(writer)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.to_thread.run_sync, send)
        methods = [_method(each) async for each in ClientMessages(reader)]
    assert methods == ["ab", "c", "x" * 300_000, None, "last"]


@pytest.mark.parametrize("methods", [[], ["a", "b"]])
async def test_lines_come_from_files_too(tmp_path: Path, methods: list[str]) -> None:
    (tmp_path / "messages").write_bytes(b"".join(map(_line, methods)))
    with (tmp_path / "messages").open("rb") as file:
        assert [_method(each) async for each in ClientMessages(file.fileno())] == methods


def _line(method: str) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": method}).encode() + b"\n"


def _method(item: SessionMessage | Exception) -> str | None:
    """The method of a notification; None for a line that is no message."""
    return getattr(item.message, "method", None) if isinstance(item, SessionMessage) else None


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_no_part_of_an_answer_waits_for_another(host: str) -> None:
    """With Nagle's algorithm the second part waits for the client's acknowledgement of the first, which takes 40 ms."""
    listener = listening(host, 0)
    accepted: asyncio.Queue[int] = asyncio.Queue()

    async def look(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = writer.get_extra_info("socket")
        await accepted.put(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    async with await asyncio.start_server(look, sock=listener):
        _, writer = await asyncio.open_connection(*listener.getsockname()[:2])
        assert await accepted.get() != 0
        writer.close()


async def test_verified_tokens_stay_known_after_a_reload_unless_tenants_or_claims_change(
    issuer: Issuer,
) -> None:
    auth = {"issuer": issuer.url, "audience": AUDIENCE, "introspection": CLIENT}
    issuer.active["opaque"] = {"sub": "ann", "aud": AUDIENCE, "org": "a", "exp": time.time() + 3_000}
    plain, tenants = ({"server": {"auth": auth}, **more} for more in ({}, {"tenants": {"claim": "org"}}))
    access = None
    for sections, claims, asked in (
        (plain, (), 1),
        (plain, (), 1),
        (plain, ("org",), 2),
        (tenants, ("org",), 3),
    ):
        access = HttpAccess("127.0.0.1", PortalManifest.model_validate(sections), claims, access)
        assert await access.caller(Headers({"authorization": "Bearer opaque"})) is not None
        assert issuer.asked.count("/introspect") == asked
