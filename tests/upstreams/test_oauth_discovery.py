"""The documents that a login reads: challenges, metadata, tokens and registrations, as servers write them."""

import gzip
import json
import zlib
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any, TypeAlias

import httpx2
import pytest
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from manifests.json_value import Json
from manifests.portal_manifest import HttpUpstream, OAuthSettings
from upstreams.http_client import MAX_ANSWER_BYTES
from upstreams.oauth.authorization_server import (
    MAX_REDIRECTS,
    Client,
    Discovered,
    GuardedHttp,
    OAuthError,
    OAuthRefusedError,
    OAuthUnreachableError,
    discover,
    request_token,
)
from upstreams.oauth.documents import Registration, Token
from upstreams.oauth.tokens import Login

URL, ISSUER = "https://tickets.example/mcp", "https://login.example"
PRM, ROOT_PRM = "/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource"
ASM, OIDC = "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"
NAMED: dict[str, Json] = {"resource": URL, "authorization_servers": [ISSUER]}
SERVER: dict[str, Json] = {
    "issuer": ISSUER,
    "authorization_endpoint": f"{ISSUER}/authorize",
    "token_endpoint": f"{ISSUER}/token",
    "code_challenge_methods_supported": ["S256"],
}
OWN = {"grant": "client_credentials", "client_id": "a", "client_secret": "b", "issuer": ISSUER}
CLIENT = Client(client_id="portal", client_secret="canary-s3cret", auth_method="client_secret_basic")

NONE = Response(status_code=404)
Answers: TypeAlias = Mapping[str, Json | Response]
"""By path, on every host: a JSON document, or a whole response. All else is 404."""


def saying(answers: Answers, asked: list[str] | None = None) -> GuardedHttp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if asked is not None:
            asked.append(f"{request.method} {request.url}")
        answer = answers.get(request.url.path, NONE)
        response = answer if isinstance(answer, Response) else JSONResponse(answer)
        await response(scope, receive, send)

    client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app))
    return GuardedHttp(client, may_be_local=False)


async def found(answers: Answers, url: str = URL, asked: Any = None, **oauth: Json) -> Discovered:
    spec = HttpUpstream.model_validate({"url": url, "oauth": oauth})
    return await discover(spec, saying({PRM: NAMED, ASM: SERVER, **answers}, asked))


async def refused(answers: Answers, url: str = URL, **oauth: Json) -> OAuthError:
    with pytest.raises(OAuthError) as caught:
        await found(answers, url, **oauth)
    return caught.value


def challenge(text: str) -> Response:
    return Response(status_code=401, headers={"www-authenticate": text})


def coded(value: Json, coding: str, pack: object = gzip.compress) -> Response:
    return Response(pack(json.dumps(value).encode()), headers={"content-encoding": coding})  # type: ignore[operator]


@pytest.mark.parametrize(
    ("url", "resource"),
    [
        ("https://tickets.example:443/mcp", "https://tickets.example/mcp"),
        ("https://Tickets.Example/mcp", "HTTPS://tickets.EXAMPLE:443/mcp/"),
        ("https://tickets.example/mcp", "https://tickets.example"),
        ("https://tickets.example:8443/mcp#x", "https://TICKETS.example:8443/"),
    ],
)
async def test_equal_forms_of_a_resource_match_and_the_written_one_is_sent(url: str, resource: str) -> None:
    assert (await found({PRM: {**NAMED, "resource": resource}}, url)).resource == resource


@pytest.mark.parametrize("resource", [
    "https://tickets.example:80/mcp", "http://tickets.example/mcp",
    "https://tickets.example.evil.example/mcp", "https://tickets.example/v1/mcp",
    "https://tickets.example/mc", "https://tickets.example:444/mcp",
])  # fmt: skip
async def test_metadata_of_another_resource_is_refused_and_both_are_named(resource: str) -> None:
    error = await refused({PRM: {**NAMED, "resource": resource}})
    assert isinstance(error, OAuthRefusedError)
    assert resource in str(error) and URL in str(error)


@pytest.mark.parametrize("url", ["https://Tickets.example:443/mcp", URL])
async def test_resource_that_nobody_names_is_the_url_of_the_manifest(url: str) -> None:
    answers = {PRM: NONE, ASM: {**SERVER, "issuer": url.removesuffix("/mcp")}}
    assert (await found(answers, url)).resource == url


@pytest.mark.parametrize("issuer", [ISSUER, f"{ISSUER}:443", "https://Login.example", f"{ISSUER}/"])
async def test_issuer_is_kept_as_it_is_written(issuer: str) -> None:
    answers = {PRM: {**NAMED, "authorization_servers": [issuer]}, ASM: {**SERVER, "issuer": issuer}}
    assert (await found(answers)).server.issuer == issuer


@pytest.mark.parametrize(("named", "told"), [
    ("https://login.example:443", ISSUER), (ISSUER, "https://LOGIN.example"),
    (f"{ISSUER}/t", f"{ISSUER}/t/"), (f"{ISSUER}/t/", f"{ISSUER}/t"),
    (ISSUER, "https://idp.example/realms/x"),
])  # fmt: skip
async def test_issuer_that_is_another_text_is_refused_and_both_are_named(named: str, told: str) -> None:
    asm = {**SERVER, "issuer": told}
    error = await refused({PRM: {**NAMED, "authorization_servers": [named]}, ASM: asm, f"{ASM}/t": asm})
    assert isinstance(error, OAuthRefusedError)
    assert repr(named) in str(error) and repr(told) in str(error)
    assert ("slash" in str(error)) is ("/t" in named)


@pytest.mark.parametrize("odd", [None, "", "not a url", 5])
async def test_odd_fields_without_a_decision_cost_no_document(odd: Json) -> None:
    fields = ["service_documentation", "scopes_supported", "revocation_endpoint", "registration_endpoint"]
    fields += ["authorization_response_iss_parameter_supported", "client_id_metadata_document_supported"]
    server = (await found({ASM: {**SERVER, **dict.fromkeys(fields, odd)}})).server
    assert (server.revocation_endpoint, server.client_id_metadata_document_supported) == (None, False)


@pytest.mark.parametrize("field", ["issuer", "token_endpoint"])
async def test_faulty_field_with_a_decision_is_named(field: str) -> None:
    for value in (None, "", 5, ["x"], "https://login.example/\x1b[2J", "https://x\\@login.example"):
        error = await refused({ASM: {**SERVER, field: value}})
        assert isinstance(error, OAuthRefusedError)
        assert field in str(error) and "\x1b" not in str(error)


async def test_server_without_an_authorization_endpoint_gives_client_credentials() -> None:
    told = {"issuer": ISSUER, "token_endpoint": f"{ISSUER}/token", "response_types_supported": []}
    assert (await found({ASM: told}, **OWN)).server.token_endpoint == f"{ISSUER}/token"


@pytest.mark.parametrize("first", [
    Response(status_code=500), Response(status_code=429), Response("<html>", media_type="text/html"),
    RedirectResponse("https://elsewhere.example/"), {**SERVER, "issuer": "https://other.example"},
    {key: value for key, value in SERVER.items() if key != "code_challenge_methods_supported"},
    {key: value for key, value in SERVER.items() if key != "token_endpoint"},
])  # fmt: skip
async def test_place_after_a_faulty_one_is_asked(first: Json | Response) -> None:
    assert (await found({ASM: first, OIDC: SERVER})).server.code_challenge_methods_supported == ("S256",)


async def test_error_names_each_place_and_what_was_wrong_there() -> None:
    answers = {ASM: Response(status_code=503), OIDC: RedirectResponse("https://elsewhere.example/x")}
    error = await refused(answers)
    assert isinstance(error, OAuthUnreachableError)
    for part in (ISSUER + ASM, "503", ISSUER + OIDC, "https://elsewhere.example/x"):
        assert part in str(error)


HINTS = [
    f'="{ROOT_PRM}"', '="None/.well-known/oauth-protected-resource"', '="ftp://tickets.example/prm"',
    '="http://tickets.example/prm"', '="https://tickets.example/gone"', '=""',
]  # fmt: skip


@pytest.mark.parametrize("answers", [
    {PRM: {**NAMED, "authorization_servers": ["", None, "https://away.example/t", ISSUER]}},
    {ASM: Response(b"\xef\xbb\xbf" + json.dumps(SERVER).encode())},
    {"/mcp": challenge("Bearer")},
    *({"/mcp": challenge(f"Bearer resource_metadata{hint}")} for hint in HINTS),
], ids=["second server", "byte order mark", "no hint", *HINTS])  # fmt: skip
async def test_document_is_found_all_the_same(answers: Answers) -> None:
    assert (await found(answers)).server.issuer == ISSUER


@pytest.mark.parametrize(("path", "moved", "origin"), [
    (PRM, NAMED, ""), (PRM, NAMED, "https://TICKETS.example:443"), (ASM, SERVER, ISSUER),
])  # fmt: skip
async def test_document_behind_a_redirect_of_its_origin_is_found(path: str, moved: Json, origin: str) -> None:
    for status in (301, 302, 303, 307, 308):
        answers = {path: RedirectResponse(f"{origin}/moved", status_code=status), "/moved": moved}
        assert (await found(answers)).server.issuer == ISSUER


@pytest.mark.parametrize(("status", "is_followed"), [(307, True), (308, True), (302, False)])
async def test_probe_follows_a_redirect_to_the_challenge(status: int, is_followed: bool) -> None:
    answers = {
        "/mcp": RedirectResponse("/mcp/", status_code=status),
        "/mcp/": challenge('Bearer resource_metadata="https://tickets.example/prm"'),
        "/prm": NAMED,
        PRM: NONE,
    }
    with nullcontext() if is_followed else pytest.raises(OAuthError):
        assert (await found(answers)).server.issuer == ISSUER


async def test_redirects_without_end_are_given_up() -> None:
    asked: list[str] = []
    with pytest.raises(OAuthError):
        await found({"/mcp": RedirectResponse("/mcp", 307), ASM: RedirectResponse(ASM)}, asked=asked)
    assert asked.count(f"POST {URL}") == asked.count(f"GET {ISSUER}{ASM}") == MAX_REDIRECTS + 1


@pytest.mark.parametrize(
    "target",
    ["https://user@login.example/x", "http://login.example/x", "https://login.example:444/x", "//10.0.0.5/x"],
)
async def test_redirect_away_from_the_origin_is_not_followed(target: str) -> None:
    asked: list[str] = []
    with pytest.raises(OAuthRefusedError):
        await found({ASM: RedirectResponse(target), "/x": SERVER}, asked=asked)
    assert not any(each.endswith("/x") for each in asked)


@pytest.mark.parametrize(
    ("text", "scope"),
    [
        ('Bearer error_description="try scope=everything", scope="mcp:read"', "mcp:read"),
        ('Bearer error_description="a \\"scope=x, scope=y\\" b"', "listed"),
        ('Basic realm="scope=x", Bearer Scope = "a b"', "a b"),
        ("Bearer scope=mcp:read, error=x", "mcp:read"),
        ('Bearer scope="a \x07 b"', "a b"),
        ('Bearer scope=""', "listed"),
        ("Bearer scope, error=x, scope=a", "a"),
        ("Bearer " + "a" * 60_000 + " scope=a", "a"),  # in linear time
        ("Bearer " + 'a="' * 20_001 + ", scope=a", "listed"),
        ('Bearer x-scope="x", error="scope=', "listed"),
    ],
)
async def test_scope_is_a_parameter_of_the_challenge_and_not_read_out_of_prose(text: str, scope: str) -> None:
    answers = {"/mcp": challenge(text), PRM: {**NAMED, "scopes_supported": ["listed"]}}
    assert (await found(answers)).scope == scope


async def test_offline_access_is_for_people_alone() -> None:
    offered = {"scopes_supported": ["offline_access"]}
    answers = {PRM: {**NAMED, "scopes_supported": ["a"]}, ASM: {**SERVER, **offered}}
    assert (await found(answers)).scope == "a offline_access"
    assert (await found(answers, **OWN)).scope == "a"


@pytest.mark.parametrize(
    ("coding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress), ("", bytes)]
)
async def test_compressed_answers_are_read(coding: str, pack: object) -> None:
    answers = {PRM: coded(NAMED, coding, pack), ASM: coded(SERVER, coding, pack)}
    assert (await found(answers)).server.issuer == ISSUER
    token = await token_of(coded({"access_token": "t"}, coding, pack))
    assert token.access_token == "t"


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip", "gzip,deflate"])
async def test_other_encodings_are_told(coding: str) -> None:
    assert coding.split(",")[0] in str(await refused({ASM: coded(SERVER, coding)}))


async def test_what_decompresses_without_end_is_given_up() -> None:
    bomb = coded({"access_token": "t" * 4 * MAX_ANSWER_BYTES}, "gzip")
    with pytest.raises(OAuthUnreachableError, match=str(MAX_ANSWER_BYTES)):
        await token_of(bomb)


async def test_endpoints_of_the_manifest_are_taken_without_a_question() -> None:
    asked: list[str] = []
    oauth = {"authorize_url": f"{ISSUER}/a", "token_url": f"{ISSUER}:443/t", "scope": "s"}
    got = await found({}, asked=asked, **oauth)
    assert (asked, got.resource, got.scope) == ([], URL, "s")
    endpoints = got.server.authorization_endpoint, got.server.token_endpoint
    assert (*endpoints, got.server.issuer) == (f"{ISSUER}/a", f"{ISSUER}:443/t", ISSUER)
    assert (await found({}, URL.replace("//", "//me:p@ss@"), **oauth)).resource == URL  # no password
    assert (await found({}, issuer="https://own.example/t", **oauth)).server.issuer == "https://own.example/t"


async def test_login_ends_when_the_manifest_names_another_issuer_or_token_endpoint() -> None:
    oauth = {"authorize_url": f"{ISSUER}/a", "token_url": f"{ISSUER}/t"}
    login = Login.first(URL, await found({}, **oauth), CLIENT, Token(access_token="t"))
    other = {**oauth, "token_url": "https://x.example/t"}
    for same in (oauth, {"issuer": ISSUER}, {"issuer": f"{ISSUER}/"}):
        assert login.as_configured(OAuthSettings.model_validate(same)) == login
    for each in (other, {"issuer": "https://x.example"}):
        assert login.as_configured(OAuthSettings.model_validate(each)) is None


@pytest.mark.parametrize(
    ("oauth", "is_usable"),
    [
        ({"authorize_url": f"{ISSUER}/a"}, False),
        ({"token_url": f"{ISSUER}/t"}, False),
        ({"authorize_url": f"{ISSUER}/a", "token_url": "http://login.example/t"}, False),
        ({"authorize_url": f"{ISSUER}/a", "token_url": "http://127.0.0.1:1/t"}, True),
        ({**OWN, "issuer": None, "token_url": f"{ISSUER}/t"}, True),
    ],
)
def test_endpoints_of_the_manifest_are_whole_and_safe(oauth: dict[str, Json], is_usable: bool) -> None:
    with nullcontext() if is_usable else pytest.raises(ValidationError):
        OAuthSettings.model_validate(oauth)


async def token_of(answer: Json | Response, **form: str) -> Token:
    return await request_token(saying({"/token": answer}), f"{ISSUER}/token", CLIENT, form)


@pytest.mark.parametrize(
    ("odd", "field", "value"),
    [
        ({"token_type": 5}, "access_token", "t"),
        *[({"expires_in": each}, "expires_in", 3599.75) for each in (3599.75, "3599.75")],
        *[({"expires_in": each}, "expires_in", None) for each in (None, "soon", "nan", "1e999")],
        ({"expires_in": 0}, "expires_in", 0),
        *[({"scope": each}, "scope", ("a", "b")) for each in ("a b", ["a", "b"], ["a b"])],
        *[({"scope": each}, "scope", ()) for each in ("", None, 5)],
        ({"refresh_token": 5}, "refresh_token", None),
    ],
)
async def test_token_is_read_whatever_is_beside_it(odd: dict[str, Json], field: str, value: object) -> None:
    token = await token_of({"access_token": "t", **odd})
    assert getattr(token, field) == value
    assert Login.first(URL, await found({}), CLIENT, token).access_token == "t"


@pytest.mark.parametrize(
    ("description", "shown"),
    [
        ("AADSTS65001: no consent", "AADSTS65001: no consent"),
        ("evil \x1b[2J\n\u202e", "evil  [2J"),
        ("x" * 10_000, "x" * 300 + "…"),
        ("you sent c0de-123456, v3rifier and canary-s3cret", "you sent [hidden], [hidden] and [hidden]"),
        ("cG9ydGFsOmNhbmFyeS1zM2NyZXQ= is wrong", "[hidden]"),
    ],
)
async def test_refusal_says_where_and_why_but_no_secret(description: str, shown: str) -> None:
    answer = JSONResponse({"error": "invalid_grant", "error_description": description}, 400)
    with pytest.raises(OAuthRefusedError) as caught:
        await token_of(answer, code="c0de-123456", code_verifier="v3rifier", resource=URL)
    assert caught.value.code == "invalid_grant"
    assert shown in str(caught.value) and f"{ISSUER}/token" in str(caught.value)
    assert not any(secret in str(caught.value) for secret in ("c0de", "s3cret", "v3rifier", "\x1b", "\u202e"))


@pytest.mark.parametrize(
    ("code", "setting"), [("invalid_target", "send_resource"), ("consent_required", "authorize_parameters")]
)
async def test_refusal_that_a_setting_mends_names_it(code: str, setting: str) -> None:
    with pytest.raises(OAuthRefusedError, match=code) as refused:
        await token_of({"error": code, "error_description": "no"})
    assert setting in refused.value.remedy


async def test_refusal_with_an_odd_description_is_a_refusal() -> None:
    for description in (None, 5, [], {}, "", " "):
        with pytest.raises(OAuthRefusedError):
            await token_of({"error": "invalid_grant", "error_description": description})


def test_registration_is_read_whatever_stands_beside_it() -> None:
    nothing = dict.fromkeys(("redirect_uris", "client_secret", "token_endpoint_auth_method", "contacts"))
    odd = {"client_id_issued_at": "2026-11-28T10:00:00Z", "scope": ["a"], "client_uri": ""}
    read = Registration.model_validate({"client_id": "c", **nothing, **odd})
    assert (read.client_id, read.client_secret, read.token_endpoint_auth_method) == ("c", None, None)
