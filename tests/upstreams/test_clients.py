"""The client that a portal is for an authorization server: how it registers, comes back, and proves who it is."""

import socket
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import anyio
import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from manifests.json_value import Json
from manifests.portal_manifest import HttpUpstream, OAuthSettings
from tests.ports import closed_port
from tests.upstreams.oauth_peer import NAME, ProtectedServer, headers_of, logged_in, refused, signed_in
from upstreams.fleet import login_store
from upstreams.oauth import tokens
from upstreams.oauth.authorization_server import Discovered, GuardedHttp, OAuthRefusedError
from upstreams.oauth.documents import ServerMetadata
from upstreams.oauth.login import CodeRequest, open_redirection, revoke

pytestmark = pytest.mark.usefixtures("own_state")

SECRET = "s3cret:with/odd +characters~*%"
ISSUER, URL = "https://login.example", "https://tickets.example/mcp"
LOOPBACK = ["http://127.0.0.1:1/callback", "http://localhost:1/callback"]


class Registrar:
    """An authorization server in memory. Registers whoever is not refused, with the fields `given`."""

    def __init__(
        self,
        refusal: Callable[[dict[str, Any]], Json] = lambda wish: None,
        given: dict[str, Json] | None = None,
        **metadata: Json,
    ) -> None:
        self.wishes: list[dict[str, Any]] = []
        self._refusal, self._given = refusal, given or {}
        endpoints = {
            f"{name}_endpoint": f"{ISSUER}/{name}" for name in ("token", "authorization", "registration")
        }
        known = {"issuer": ISSUER, **endpoints, "code_challenge_methods_supported": ["S256"], **metadata}
        self._found = Discovered(ServerMetadata.model_validate(known), URL, "tools offline_access")
        app = Starlette(routes=[Route("/registration", self._register, methods=["POST"])])
        client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app))
        self.http = GuardedHttp(client, may_be_local=False)

    async def requested(self, uris: Sequence[str] = LOOPBACK, **oauth: Json) -> CodeRequest:
        """The login that begins with these redirect URIs."""
        spec = HttpUpstream.model_validate({"url": URL, "oauth": oauth})
        return await CodeRequest.of(spec, self._found, uris, self.http)

    async def asked(self, **oauth: Json) -> dict[str, str]:
        """The parameters of its authorization request."""
        return dict(parse_qsl(urlsplit((await self.requested(**oauth)).url("state", self.http)).query))

    async def _register(self, request: Request) -> Response:
        wish = await request.json()
        self.wishes.append(wish)
        if refused := self._refusal(wish):
            return JSONResponse(refused, status_code=400)
        return JSONResponse(
            {"redirect_uris": wish["redirect_uris"], "client_id": "registered", **self._given}
        )


def host_of(wish: dict[str, Any]) -> str:
    (uri,) = wish["redirect_uris"]
    return str(urlsplit(uri).hostname)


@pytest.mark.parametrize(
    ("settings", "hosts"),
    [
        ({}, ["127.0.0.1", "localhost"]),
        ({"redirect_host": "localhost", "redirect_path": "/done"}, ["localhost", "127.0.0.1"]),
    ],
)
async def test_registration_that_refuses_a_host_gets_the_other_one(
    settings: dict[str, Json], hosts: list[str]
) -> None:
    server = Registrar(lambda wish: {"error": "no"} if host_of(wish) == hosts[0] else None)
    async with open_redirection(OAuthSettings.model_validate(settings)) as redirection:
        request = await server.requested(redirection.uris, **settings)
    assert [host_of(wish) for wish in server.wishes] == hosts
    assert request.redirect_uri == redirection.uris[1]
    assert request.redirect_uri.endswith(settings.get("redirect_path", "/callback"))


async def test_registration_that_takes_a_host_may_name_the_other() -> None:
    server = Registrar(given={"redirect_uris": LOOPBACK[1:]})
    assert (await server.requested()).redirect_uri == LOOPBACK[1]
    assert [host_of(wish) for wish in server.wishes] == ["127.0.0.1"]


async def test_registration_that_refuses_both_hosts_is_told_once() -> None:
    codes = {"localhost": "no_name", "127.0.0.1": "no_number"}
    server = Registrar(lambda wish: {"error": codes[host_of(wish)]})
    with pytest.raises(OAuthRefusedError) as caught:
        await server.requested()
    assert (caught.value.code, len(server.wishes)) == ("no_number", 2)


async def test_refusal_with_http_200_is_one() -> None:
    with pytest.raises(OAuthRefusedError):
        await Registrar(given={"error": "invalid_client_metadata"}).requested()


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
    ("offered", "said", "asked", "used"),
    [
        (None, "none", "none", "none"),
        (BOTH, "client_secret_post", "client_secret_post", "client_secret_post"),
        (
            [*BOTH[::-1], "private_key_jwt"],
            "client_secret_basic",
            "client_secret_post",
            "client_secret_basic",
        ),
        (["private_key_jwt", "client_secret_basic"], None, "client_secret_basic", "client_secret_basic"),
        (["none", "client_secret_post"], None, "none", "client_secret_post"),
        (["none", *BOTH[::-1]], None, "none", "client_secret_basic"),
        (None, None, "none", "client_secret_basic"),
    ],
)
async def test_new_client_asks_for_a_method_that_is_offered_and_uses_what_the_server_says(
    offered: Json, said: str | None, asked: str, used: str
) -> None:
    given = {"client_secret": None if said == "none" else SECRET, "token_endpoint_auth_method": said}
    server = Registrar(given=given, token_endpoint_auth_methods_supported=offered)
    assert (await server.requested()).client.auth_method == used
    assert [wish["token_endpoint_auth_method"] for wish in server.wishes] == [asked]


@pytest.mark.parametrize("method", BOTH)
async def test_client_proves_who_it_is_in_one_way_everywhere(server: ProtectedServer, method: str) -> None:
    port = closed_port()
    server.authorization.add_client(
        "mine", SECRET, method, redirect_uris=[f"http://127.0.0.1:{port}/callback"]
    )
    server.authorization.expires_in = 0
    mine = {"client_id": "mine", "client_secret": SECRET, "issuer": server.authorization.issuer}
    spec = server.spec(**mine, redirect_port=port, token_endpoint_auth_method=method)
    await logged_in(spec)
    await headers_of(spec)
    login = await login_store(NAME, spec).load()
    assert login is not None and await revoke(login, OAuthSettings())
    assert server.authorization.grants == ["authorization_code", "refresh_token", "revoked", "revoked"]
    for form in server.authorization.forms:
        assert ("client_id" in form) == (method == "client_secret_post")
        assert form.get("client_secret") == (SECRET if method == "client_secret_post" else None)


async def test_token_of_a_slow_start_has_time(
    server: ProtectedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "RENEWAL_SECONDS", 0.0)
    server.authorization.add_client("portal", SECRET, "client_secret_basic")
    assert await headers_of(server.client_spec(SECRET))


async def test_new_client_asks_only_for_grants_that_the_server_has() -> None:
    server = Registrar(grant_types_supported=["authorization_code", "client_credentials"])
    await server.requested()
    assert [wish["grant_types"] for wish in server.wishes] == [["authorization_code"]]


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, {"prompt": "consent"}),
        ({"prompt": None}, {}),
        *[({"prompt": "select_account", "access_type": "offline"},) * 2],
    ],
)
async def test_manifest_adds_and_leaves_out_parameters_of_the_authorization_request(
    parameters: Json, expected: dict[str, str]
) -> None:
    asked = await Registrar().asked(authorize_parameters=parameters)
    assert {name: asked[name] for name in ("prompt", "access_type") if name in asked} == expected
    assert asked["code_challenge_method"] == "S256" and asked["resource"] == URL


@pytest.mark.parametrize(
    "name", ["state", "redirect_uri", "code_challenge", "code_challenge_method", "resource"]
)
def test_manifest_cannot_change_what_makes_a_login_safe(name: str) -> None:
    with pytest.raises(ValueError, match="portal sets itself"):
        OAuthSettings.model_validate({"authorize_parameters": {name: "x"}})


@pytest.mark.parametrize("is_sent", [True, False])
async def test_resource_is_sent_in_every_request_or_in_none(server: ProtectedServer, is_sent: bool) -> None:
    server.authorization.add_client("portal", SECRET)
    server.authorization.expires_in = 0
    assert ("resource" in await Registrar().asked(send_resource=is_sent)) == is_sent
    await logged_in(server.spec(send_resource=is_sent))
    for each in (server.spec(send_resource=is_sent), server.client_spec(SECRET, send_resource=is_sent)):
        await headers_of(each)
    assert server.authorization.grants == ["authorization_code", "refresh_token", "client_credentials"]
    assert {"resource" in form for form in server.authorization.forms} == {is_sent}


async def test_login_from_before_the_setting_is_renewed_without_the_resource(server: ProtectedServer) -> None:
    server.authorization.expires_in = 0
    await logged_in(server.spec())
    await headers_of(server.spec(send_resource=False))
    assert ["resource" in form for form in server.authorization.forms] == [True, False]


async def test_pkce_that_metadata_lacks_may_be_assumed_and_is_used() -> None:
    server = Registrar(code_challenge_methods_supported=None)
    with pytest.raises(OAuthRefusedError):
        await server.requested()
    assert (await server.asked(pkce="assumed"))["code_challenge_method"] == "S256"


async def test_portal_with_a_public_url_registers_that_and_nothing_else() -> None:
    uri, oauth = "https://portal.example/oauth/sign-in/callback", {"redirect_host": "localhost"}
    server = Registrar(lambda wish: {"error": "invalid_redirect_uri"})
    with pytest.raises(OAuthRefusedError):
        await server.requested([uri], **oauth)
    assert [(wish["redirect_uris"], wish["application_type"]) for wish in server.wishes] == [([uri], "web")]
    assert (await Registrar().requested([uri], **oauth)).redirect_uri == uri
