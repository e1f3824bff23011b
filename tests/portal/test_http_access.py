"""Who may talk to the portal over HTTP."""

import httpx2
import pytest
from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from manifests.portal_manifest import AuthSettings, BoundToken, ServerSettings
from portal.app.http_access import HttpAccess, HttpAccessMiddleware, is_loopback, sign_in_routes
from portal.base.errors import OpenBindError
from portal.identity.sign_in import SignInError

ROUTES = ("/mcp", "/healthz", "/readyz", "/nowhere")


def rules(host: str = "127.0.0.1", **settings: object) -> HttpAccess:
    return HttpAccess(host, ServerSettings.model_validate(settings))


async def status(access: HttpAccess, path: str = "/mcp", **headers: str) -> int:
    async def answer(request: Request) -> PlainTextResponse:
        return PlainTextResponse("reached")

    routes = [Route(path, answer, methods=["GET", "POST"]) for path in ROUTES[:3]]
    app = Starlette(routes=routes, middleware=[Middleware(HttpAccessMiddleware, access=access)])
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
        raw = {name: value.encode() for name, value in headers.items()}
        return (await client.post(path, headers=raw)).status_code


async def test_a_local_client_passes() -> None:
    assert await status(rules()) == 200
    assert await status(rules(), Host="localhost:8080") == 200
    assert await status(rules(), Host="[::1]:8080") == 200


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize(
    "host",
    [
        "evil.test",
        "127.0.0.1.nip.test:8080",
        "localhost.evil.test",
        "127.0.0.1:8080@evil.test",
        "",
        "0.0.0.0",
    ],
)
async def test_a_foreign_host_is_refused_on_every_route(path: str, host: str) -> None:
    assert await status(rules(), path, Host=host) == 421


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("origin", ["https://evil.test", "null", "http://localhost.evil.test", "file://", ""])
async def test_a_foreign_origin_is_refused_on_every_route(path: str, origin: str) -> None:
    assert await status(rules(), path, Origin=origin) == 403


async def test_origins_of_this_machine_and_granted_ones_pass() -> None:
    assert await status(rules(), Origin="http://localhost:3000") == 200
    assert await status(rules(allowed_origins=["https://app.test"]), Origin="https://app.test") == 200


@pytest.mark.parametrize(
    "authorization",
    ["", "secret", "Bearer", "Bearer ", "Bearer wrong", "Basic secret", "Bearer secret2", "Bearer sécret"],
)
async def test_a_wrong_token_is_refused(authorization: str) -> None:
    assert await status(rules(token="secret"), Authorization=authorization) == 401


async def test_the_right_token_passes() -> None:
    assert await status(rules(token="secret"), Authorization="Bearer secret") == 200
    assert await status(rules(token="secret"), Authorization="bearer secret") == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "example.test"])
async def test_listening_beyond_loopback_needs_a_token(host: str) -> None:
    with pytest.raises(OpenBindError):
        rules(host)
    with pytest.raises(SignInError):
        await rules(host, token="secret").caller(Headers({}))


def test_loopback_is_recognised() -> None:
    assert is_loopback("127.0.0.1")
    assert is_loopback("127.8.8.8")
    assert is_loopback("::1")
    assert is_loopback("localhost")
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("localhost.evil.test")


async def test_bound_tokens_are_enough_to_listen_beyond_loopback_and_are_asked_for_everywhere() -> None:
    tokens = [BoundToken(token=SecretStr("secret"), profile="reader")]
    rules = HttpAccess("0.0.0.0", ServerSettings(tokens=(*tokens,)))
    for headers in ({}, {"authorization": "Bearer other"}, {"authorization": "Basic secret"}):
        with pytest.raises(SignInError):
            await rules.caller(Headers(headers))
    bearer = await rules.caller(Headers({"authorization": "bearer secret"}))
    assert bearer is not None and bearer.profile == "reader"
    assert "secret" not in repr(rules)


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
    access = HttpAccess("127.0.0.1", ServerSettings(auth=auth))
    app = Starlette(routes=sign_in_routes(auth), middleware=[Middleware(HttpAccessMiddleware, access=access)])
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, headers={"Host": host}) as client:
        challenge = (await client.get("http://127.0.0.1/mcp")).headers["www-authenticate"]
        told = challenge.partition('resource_metadata="')[2].partition('"')[0]
        where = httpx2.URL(told)
        assert told.endswith(f"/.well-known/oauth-protected-resource{path}")
        found = await client.get(where.copy_with(scheme="http", host="127.0.0.1", port=None))
        assert found.json()["authorization_servers"] == ["https://id.example"]
