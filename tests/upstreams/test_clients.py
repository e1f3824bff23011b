"""The client that a portal is for an authorization server: how it registers, comes back, and proves who it is."""

import socket
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import anyio
import httpx2
import pytest
from mcp.shared.auth import OAuthClientInformationFull
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from manifests.json_value import Json
from manifests.portal_manifest import HttpUpstream, OAuthSettings
from tests.ports import closed_port
from tests.upstreams.oauth_peer import (
    NAME,
    SERVER_METADATA,
    ProtectedServer,
    announce,
    browse,
    headers_of,
    logged_in,
    refused,
    saying,
    signed_in,
)
from upstreams.fleet import login_store
from upstreams.oauth import tokens
from upstreams.oauth.authorization_server import OAuthRefusedError, discover, open_guarded_http
from upstreams.oauth.login import CodeRequest, revoke

pytestmark = pytest.mark.usefixtures("own_state")

SECRET = "s3cret:with/odd +characters~*%"


def registering(
    server: ProtectedServer, refusal: Callable[[dict[str, Any]], Json] = lambda wish: None, **given: Json
) -> list[dict[str, Any]]:
    """Registers whoever is not refused, with these fields. Returns what is asked."""
    wishes: list[dict[str, Any]] = []

    async def register(request: Request) -> Response:
        wish = await request.json()
        wishes.append(wish)
        if refused := refusal(wish):
            return JSONResponse(refused, status_code=400)
        client = {**wish, "client_id": "registered", "client_secret": SECRET, **given}
        server.authorization.clients["registered"] = OAuthClientInformationFull.model_validate(client)
        return JSONResponse({name: value for name, value in client.items() if f"hides_{name}" not in client})

    server.authorization.answers["/register"] = register
    return wishes


def host_of(wish: dict[str, Any]) -> str | None:
    (uri,) = wish["redirect_uris"]
    return urlsplit(uri).hostname


@pytest.mark.parametrize(
    ("settings", "hosts"),
    [
        ({}, ["127.0.0.1", "localhost"]),
        ({"redirect_host": "localhost", "redirect_path": "/done"}, ["localhost", "127.0.0.1"]),
    ],
)
async def test_registration_that_refuses_a_host_gets_the_other_one(
    server: ProtectedServer, settings: dict[str, Json], hosts: list[str]
) -> None:
    wishes = registering(server, lambda wish: {"error": "no"} if host_of(wish) == hosts[0] else None)
    assert (await signed_in(server.spec(**settings))).access_token
    assert [host_of(wish) for wish in wishes] == hosts
    assert server.authorization.forms[0]["redirect_uri"] == wishes[1]["redirect_uris"][0]


async def test_registration_that_takes_a_host_may_name_the_other(server: ProtectedServer) -> None:
    port = closed_port()
    theirs = [f"http://localhost:{port}/callback"]
    wishes = registering(server, redirect_uris=theirs)
    await signed_in(server.spec(redirect_port=port))
    assert [host_of(wish) for wish in wishes] == ["127.0.0.1"]
    assert server.authorization.forms[0]["redirect_uri"] == theirs[0]


async def test_registration_that_refuses_both_hosts_is_told_once(server: ProtectedServer) -> None:
    codes = {"localhost": "no_name", "127.0.0.1": "no_number"}
    wishes = registering(server, lambda wish: {"error": codes[host_of(wish)]})
    error = await refused(server.spec())
    assert isinstance(error, OAuthRefusedError)
    assert (error.code, len(wishes)) == ("no_number", 2)


async def test_refusal_with_http_200_is_one(server: ProtectedServer) -> None:
    server.authorization.answers["/register"] = saying({"error": "invalid_client_metadata"})
    assert isinstance(await refused(server.spec()), OAuthRefusedError)


@pytest.mark.parametrize(("path", "address"), [("/oauth2/callback/", "127.0.0.1"), ("/", "::1")])
async def test_client_registered_by_hand_comes_back_to_its_uri_on_either_loopback(
    server: ProtectedServer, address: str, path: str
) -> None:
    port = closed_port()
    uri = f"http://localhost:{port}{path}"
    server.authorization.add_client("mine", SECRET, redirect_uris=[uri])

    async def browser(url: str) -> None:
        async with httpx2.AsyncClient() as client:
            back = (await client.get(url)).headers["location"]
        assert back.startswith(f"{uri}?")
        target = back.removeprefix(uri.removesuffix(path))
        async with await anyio.connect_tcp(address, port) as stream:
            await stream.send(f"GET {target} HTTP/1.1\r\nHost: LocalHost:{port}\r\n\r\n".encode())
            assert b"Signed in" in await stream.receive()

    mine = {"client_id": "mine", "client_secret": SECRET, "issuer": server.authorization.issuer}
    spec = server.spec(**mine, redirect_host="localhost", redirect_port=port, redirect_path=path)
    assert (await signed_in(spec, browser)).client.client_id == "mine"


async def test_port_of_which_somebody_else_has_half_is_told(server: ProtectedServer) -> None:
    port = closed_port()
    with socket.create_server(("::1", port), family=socket.AF_INET6):
        assert "::1" in str(await refused(server.spec(redirect_port=port)))


@pytest.mark.parametrize("path", ["", "callback", "//evil.example", "/a/../b", "/a?b", "/a#b", "/ä", "/a\n"])
def test_path_that_a_browser_would_change_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="redirect_path"):
        OAuthSettings(redirect_path=path)


BOTH = ["client_secret_post", "client_secret_basic"]


@pytest.mark.parametrize(
    ("offered", "keeps", "is_said", "asked"),
    [
        (None, "none", True, "none"),
        (BOTH, "client_secret_post", True, "client_secret_post"),
        ([*BOTH[::-1], "private_key_jwt"], "client_secret_basic", True, "client_secret_post"),
        (["private_key_jwt", "client_secret_basic"], "client_secret_basic", False, "client_secret_basic"),
        (["none", "client_secret_post"], "client_secret_post", False, "none"),
        (["none", *BOTH[::-1]], "client_secret_basic", False, "none"),
        (None, "client_secret_basic", False, "none"),
    ],
)
async def test_new_client_asks_for_what_is_offered_and_uses_one_method_for_everything(
    server: ProtectedServer, offered: Json, keeps: str, is_said: bool, asked: str
) -> None:
    await announce(server.authorization, SERVER_METADATA, token_endpoint_auth_methods_supported=offered)
    secret = None if keeps == "none" else SECRET
    hidden: dict[str, Json] = {} if is_said else {"hides_token_endpoint_auth_method": True}
    wishes = registering(server, token_endpoint_auth_method=keeps, client_secret=secret, **hidden)
    server.authorization.expires_in = 0
    spec = server.spec()
    await logged_in(spec)
    await headers_of(spec)
    login = await login_store(NAME, spec).load()
    assert login is not None and await revoke(login, OAuthSettings())
    assert [wish["token_endpoint_auth_method"] for wish in wishes] == [asked]
    assert server.authorization.grants == ["authorization_code", "refresh_token", "revoked", "revoked"]
    for form in server.authorization.forms:
        assert ("client_id" in form) == (keeps != "client_secret_basic")
        assert form.get("client_secret") == (SECRET if keeps == "client_secret_post" else None)


async def test_manifest_says_how_its_client_is_registered(server: ProtectedServer) -> None:
    method = "client_secret_post"  # not the first choice, which is basic
    server.authorization.add_client("portal", SECRET, method)
    spec = server.client_spec(SECRET, token_endpoint_auth_method=method)
    await headers_of(spec)
    assert server.authorization.grants == ["client_credentials"]


async def test_token_of_a_slow_start_has_time(
    server: ProtectedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "RENEWAL_SECONDS", 0.0)
    server.authorization.add_client("portal", SECRET, "client_secret_basic")
    assert await headers_of(server.client_spec(SECRET))


async def test_new_client_asks_only_for_grants_that_the_server_has(server: ProtectedServer) -> None:
    offered = ["authorization_code", "client_credentials"]
    await announce(server.authorization, SERVER_METADATA, grant_types_supported=offered)
    wishes = registering(server)
    await signed_in(server.spec())
    assert [wish["grant_types"] for wish in wishes] == [["authorization_code"]]


async def asked_by(spec: HttpUpstream) -> dict[str, str]:
    """The authorization request of a login, which goes through."""
    asked: dict[str, str] = {}

    async def browser(url: str) -> None:
        asked.update(parse_qsl(urlsplit(url).query))
        await browse(url)

    await signed_in(spec, browser)
    return asked


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, {"prompt": "consent"}),
        ({"prompt": None}, {}),
        *[({"prompt": "select_account", "access_type": "offline"},) * 2],
    ],
)
async def test_manifest_adds_and_leaves_out_parameters_of_the_authorization_request(
    server: ProtectedServer, parameters: Json, expected: dict[str, str]
) -> None:
    registering(server, scope="tools offline_access")
    asked = await asked_by(server.spec(scope="tools offline_access", authorize_parameters=parameters))
    assert {name: asked[name] for name in ("prompt", "access_type") if name in asked} == expected
    assert asked["code_challenge_method"] == "S256" and asked["resource"] == server.url


@pytest.mark.parametrize(
    "name", ["state", "redirect_uri", "code_challenge", "code_challenge_method", "resource"]
)
def test_manifest_cannot_change_what_makes_a_login_safe(name: str) -> None:
    with pytest.raises(ValueError, match="portal sets itself"):
        OAuthSettings.model_validate({"authorize_parameters": {name: "x"}})


@pytest.mark.parametrize("is_sent", [True, False])
async def test_resource_is_sent_in_every_request_or_in_none(server: ProtectedServer, is_sent: bool) -> None:
    server.authorization.add_client("portal", SECRET, redirect_uris=["http://127.0.0.1:1/callback"])
    server.authorization.expires_in = 0
    spec = server.spec(send_resource=is_sent)
    assert ("resource" in await asked_by(spec)) == is_sent
    await logged_in(spec)
    for each in (spec, server.client_spec(SECRET, send_resource=is_sent)):
        await headers_of(each)
    grants = ["authorization_code", "authorization_code", "refresh_token", "client_credentials"]
    assert server.authorization.grants == grants
    assert {"resource" in form for form in server.authorization.forms} == {is_sent}


async def test_login_from_before_the_setting_is_renewed_without_the_resource(server: ProtectedServer) -> None:
    server.authorization.expires_in = 0
    await logged_in(server.spec())
    await headers_of(server.spec(send_resource=False))
    assert ["resource" in form for form in server.authorization.forms] == [True, False]


async def test_pkce_that_metadata_lacks_may_be_assumed_and_is_used(server: ProtectedServer) -> None:
    await announce(server.authorization, SERVER_METADATA, code_challenge_methods_supported=None)
    assert isinstance(await refused(server.spec()), OAuthRefusedError)
    assert (await asked_by(server.spec(pkce="assumed")))["code_challenge_method"] == "S256"
    assert server.authorization.forms[0]["code_verifier"]


async def test_portal_with_a_public_url_registers_that_and_nothing_else(server: ProtectedServer) -> None:
    wishes = registering(server, lambda wish: {"error": "invalid_redirect_uri"})
    spec, uri = server.spec(redirect_host="localhost"), "https://portal.example/oauth/sign-in/callback"
    async with open_guarded_http(spec.url) as http:
        with pytest.raises(OAuthRefusedError):
            await CodeRequest.of(spec, await discover(spec, http), [uri], http)
        registering(server)
        assert (await CodeRequest.of(spec, await discover(spec, http), [uri], http)).redirect_uri == uri
    assert [(wish["redirect_uris"], wish["application_type"]) for wish in wishes] == [([uri], "web")]
