"""Upstreams and authorization servers that lie: what a login and the requests of a portal make of it."""

from collections.abc import AsyncIterator
from urllib.parse import parse_qs, urlencode, urlsplit

import anyio
import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from manifests.json_value import Json
from manifests.portal_manifest import HttpUpstream
from tests.portal.peers import Peer
from tests.upstreams.oauth_peer import (
    RESOURCE_METADATA,
    SERVER_METADATA,
    Handler,
    ProtectedServer,
    announce,
    browse,
    echo,
    logged_in,
    protected,
    refused,
    saying,
    signed_in,
    signed_in_fleet,
)
from tests.upstreams.peers import DEADLINE_SECONDS, fleet_of, http_peer
from upstreams.errors import UpstreamError
from upstreams.oauth.authorization_server import OAuthRefusedError, OAuthUnreachableError

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("own_state")]


@pytest.fixture(scope="module")
async def honest(anyio_backend: str) -> AsyncIterator[ProtectedServer]:
    async with protected(Peer()) as server:
        yield server


@pytest.fixture
def server(honest: ProtectedServer) -> ProtectedServer:
    """It does not lie yet, and knows no users."""
    own = honest.authorization
    for each in (honest.answers, honest.requests, own.answers, own.clients, own.grants, own.forms):
        each.clear()
    own.told_issuer = None
    own.end()
    return honest


def sending_to(url: str, status: int = 307) -> Handler:
    async def answer(request: Request) -> Response:
        return RedirectResponse(url, status)

    return answer


@pytest.fixture
async def other() -> AsyncIterator[str]:
    """The origin of a server that must never be reached."""
    visits: list[str] = []

    async def note(request: Request) -> Response:
        visits.append(request.url.path)
        return JSONResponse({})

    methods = ["GET", "POST", "DELETE"]
    async with http_peer(Starlette(routes=[Route("/{path:path}", note, methods=methods)])) as peer:
        yield f"http://127.0.0.1:{peer.port}"
    assert visits == []


@pytest.mark.parametrize(
    "url", ["http://auth.example.invalid/x", "javascript:alert(1)", "file:///etc/passwd", "", "//x"]
)
@pytest.mark.parametrize("key", ["authorization_endpoint", "token_endpoint", "registration_endpoint"])
async def test_unsafe_endpoint_ends_the_login(server: ProtectedServer, key: str, url: str) -> None:
    await announce(server.authorization, SERVER_METADATA, **{key: url})
    await refused(server.spec())
    assert server.authorization.grants == []


@pytest.mark.parametrize(
    ("path", "lie"),
    [
        (RESOURCE_METADATA, {"authorization_servers": ["http://169.254.169.254/latest/meta-data"]}),
        (RESOURCE_METADATA, {"authorization_servers": ["http://auth.example.invalid/"]}),
        (RESOURCE_METADATA, {"authorization_servers": ["http://127.0.0.1.example.invalid/"]}),
        (RESOURCE_METADATA, {"authorization_servers": ["http://user:pass@127.0.0.1/"]}),
        (RESOURCE_METADATA, {"authorization_servers": ["https://user@auth.example.invalid/"]}),
        (RESOURCE_METADATA, {"resource": "https://other.example/mcp"}),
        (RESOURCE_METADATA, {"resource": "http://127.0.0.1:1/mcp"}),
        (RESOURCE_METADATA, {"authorization_servers": []}),
        (SERVER_METADATA, {"issuer": "https://honest.example"}),
        (SERVER_METADATA, {"code_challenge_methods_supported": ["plain"]}),
        (SERVER_METADATA, {"code_challenge_methods_supported": None}),
        (SERVER_METADATA, {"registration_endpoint": None}),
        (SERVER_METADATA, {"token_endpoint": None}),
    ],
)
async def test_metadata_that_lies_ends_the_login(
    server: ProtectedServer, path: str, lie: dict[str, Json]
) -> None:
    """Of a server in the clear or with a user, too, which is not asked."""
    await announce(server if path == RESOURCE_METADATA else server.authorization, path, **lie)
    assert isinstance(await refused(server.spec()), OAuthRefusedError)
    assert server.authorization.grants == []


async def test_metadata_as_it_is_makes_a_login(server: ProtectedServer) -> None:
    """The twin of all of these."""
    await announce(server, RESOURCE_METADATA)
    await announce(server.authorization, SERVER_METADATA)
    assert (await signed_in(server.spec())).access_token


async def test_upstream_chooses_no_authorization_server(other: str, server: ProtectedServer) -> None:
    await announce(server, RESOURCE_METADATA, authorization_servers=[f"{other}/"])
    issuer = server.authorization.issuer
    settings = {"client_id": "portal", "client_secret": "canary-s3cret", "issuer": issuer}
    await refused(server.spec(**settings))
    spec = server.spec(grant="client_credentials", **settings)
    async with fleet_of(tickets=spec) as fleet:
        assert fleet["tickets"].state.status == "down"


@pytest.mark.parametrize("path", [RESOURCE_METADATA, SERVER_METADATA, "/token", "/register"])
async def test_redirect_of_oauth_is_not_followed(other: str, server: ProtectedServer, path: str) -> None:
    """To another origin: within one, only discovery follows."""
    host = server if path == RESOURCE_METADATA else server.authorization
    host.answers[path] = sending_to(other + path)
    if path == RESOURCE_METADATA:  # there is another place to look at
        host.answers["/.well-known/oauth-protected-resource"] = host.answers[path]
    await refused(server.spec())


@pytest.mark.parametrize("path", ["/token", "/register"])
async def test_redirect_of_a_code_is_not_followed(server: ProtectedServer, path: str) -> None:
    """Within the origin neither."""
    moved: list[str] = []

    async def note(request: Request) -> Response:
        moved.append(request.method)
        return JSONResponse({"access_token": "t", "client_id": "c"})

    server.authorization.answers |= {path: sending_to("/moved"), "/moved": note}
    await refused(server.spec())
    assert moved == []


async def test_probe_that_is_sent_away_has_no_header(other: str, server: ProtectedServer) -> None:
    server.answers["/mcp"] = sending_to(f"{other}/mcp")
    headers: Json = {"X-Api-Key": "canary-key"}
    spec = HttpUpstream.model_validate({"url": server.url, "headers": headers, "oauth": {}})
    assert (await signed_in(spec)).access_token


async def test_issuer_in_the_redirect_that_was_not_asked_ends_the_login(server: ProtectedServer) -> None:
    server.authorization.told_issuer = "https://other.example"
    assert isinstance(await refused(server.spec()), OAuthRefusedError)
    assert server.authorization.grants == []


@pytest.mark.parametrize(
    "query", ["code=evil", "code=evil&state=", "code=evil&state=guess", "error=access_denied&state=guess"]
)
async def test_what_comes_back_without_the_state_is_turned_away(server: ProtectedServer, query: str) -> None:
    async def attacked(url: str) -> None:
        uri = parse_qs(urlsplit(url).query)["redirect_uri"][0]
        async with httpx2.AsyncClient() as stranger:
            assert (await stranger.get(f"{uri}?{query}")).status_code == 400
            assert (await stranger.get(uri.replace("/callback", "/"))).status_code == 404
            assert (await stranger.get(uri, headers={"Host": "evil.example"})).status_code == 400
            assert (await stranger.post(uri)).status_code == 400
            assert (await stranger.get(f"{uri}?{'&'.join(map(str, range(1_000)))}")).status_code == 400
        port = urlsplit(uri).port
        assert port
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(f"GET //[ HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
            assert b"400" in await stream.receive()
        await browse(url)

    assert (await signed_in(server.spec(), attacked)).access_token
    assert [form["code"] for form in server.authorization.forms] != ["evil"]


@pytest.mark.parametrize(
    "body", [b"x" * 2_000_000, b"{" * 100_000, b"\xff", b"[]", b"null", b'{"access_token": 1}']
)
async def test_answer_that_is_no_token_is_no_login(server: ProtectedServer, body: bytes) -> None:
    async def answer(request: Request) -> Response:
        return Response(body, media_type="application/json")

    server.authorization.answers["/token"] = answer
    assert isinstance(await refused(server.spec()), OAuthUnreachableError)


@pytest.mark.parametrize("token", ["a\r\nX-Evil: 1", "a b", "", "\u00fc", "x" * 100_000])
async def test_token_that_does_not_fit_a_header_is_no_login(server: ProtectedServer, token: str) -> None:
    server.authorization.answers["/token"] = saying({"access_token": token, "token_type": "Bearer"})
    assert isinstance(await refused(server.spec()), OAuthUnreachableError)


async def test_what_the_server_says_is_shown_only_in_words_of_oauth(server: ProtectedServer) -> None:
    said = {"error": "evil \x1b[2J", "error_description": "canary"}
    server.authorization.answers["/token"] = saying(said, 400)
    error = await refused(server.spec())
    assert "canary" not in str(error) and "evil" not in str(error)


async def test_reason_in_the_redirect_is_told_without_control_characters(server: ProtectedServer) -> None:
    async def deny(request: Request) -> Response:
        asked, said = request.query_params, {"error": "access_denied", "error_description": "ask\x1b[2J Ann"}
        return RedirectResponse(f"{asked['redirect_uri']}?{urlencode({**said, 'state': asked['state']})}")

    server.authorization.answers["/authorize"] = deny
    error = await refused(server.spec())
    assert "/authorize' says access_denied: 'ask [2J Ann'" in str(error)


@pytest.mark.parametrize("has_oauth", [False, True])
@pytest.mark.parametrize("status", [302, 307])
async def test_redirect_carries_no_credentials_to_another_origin(
    other: str, server: ProtectedServer, status: int, has_oauth: bool
) -> None:
    spec = server.spec()
    login = await logged_in(spec)
    if not has_oauth:
        headers = {"Authorization": f"Bearer {login.access_token}", "X-Api-Key": "canary-key"}
        spec = HttpUpstream(url=server.url, headers=headers)
    async with fleet_of(tickets=spec) as fleet:
        await echo(fleet)
        server.answers["/mcp"] = sending_to(f"{other}/mcp", status)
        with pytest.raises(UpstreamError):
            await echo(fleet)


async def test_tokens_are_not_for_the_same_name_elsewhere(other: str, server: ProtectedServer) -> None:
    await logged_in(server.spec())
    elsewhere = HttpUpstream.model_validate({"url": f"{other}/mcp", "oauth": {}})
    async with fleet_of(tickets=elsewhere) as fleet:
        assert fleet["tickets"].state.status == "needs_login"


async def test_upstream_cannot_have_a_renewal_for_every_call(server: ProtectedServer) -> None:
    """It answers 401 to each call, and takes everything else."""
    async with signed_in_fleet(server) as fleet:
        server.answers["/mcp"] = saying({}, 401)
        for _ in range(20):
            with pytest.raises(UpstreamError):
                await echo(fleet)
    assert server.authorization.grants == ["authorization_code", "refresh_token"]


@pytest.mark.parametrize(
    "url",
    [
        *("http://[", "https://\udcff", "https://xn--/", "https://a b/", "http://1.2.3.4:x/"),
        *("http://127.0.0.1:65536/", "http://localhost:99999/"),
    ],
)
async def test_senseless_url_is_the_end_of_nothing_but_its_login(server: ProtectedServer, url: str) -> None:
    """Also where a running portal looks for the authorization server by itself."""

    async def challenge(request: Request) -> Response:
        said = f'Bearer resource_metadata="{url}"'.encode("utf-8", "surrogateescape")
        return Response(status_code=401, headers={"www-authenticate": said.decode("latin-1")})

    server.answers["/mcp"] = challenge
    await refused(server.spec())
    spec = server.client_spec("its-secret")
    async with http_peer(Peer().server.streamable_http_app()) as plain:
        other = HttpUpstream(url=f"http://127.0.0.1:{plain.port}/mcp")
        async with fleet_of(tickets=spec, other=other) as fleet:
            assert fleet["tickets"].state.status == "down"
            await fleet["other"].call("echo", {}, seconds=DEADLINE_SECONDS)
