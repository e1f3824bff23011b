"""People sign in with tokens of an identity provider, which misbehaves, is slow or down, or strangers want it to be."""

import asyncio
import base64
import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.lowlevel
import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from starlette.responses import JSONResponse, Response

from manifests.errors import ManifestError
from manifests.loader import load_manifest
from portal.base.caller import claim
from portal.base.errors import SignInError
from portal.identity import sign_in
from tests.portal.issuer import AUDIENCE, CLIENT, Issuer, refused, rsa_key, signing_in
from tests.portal.peers import http_app, opened, write_manifest
from tests.upstreams.peers import DEADLINE_SECONDS


@pytest.mark.parametrize("alg", ["RS256", "ES256"])
async def test_a_token_says_whose_it_is(issuer: Issuer, alg: str) -> None:
    signing = signing_in(issuer, scopes=["mcp"])
    bearer = await signing.bearer(issuer.token(alg=alg))
    assert (bearer.name, bearer.tenant, bearer.profile) == ("person ann", None, None)
    renewed = await signing.bearer(issuer.token(alg=alg, iat=time.time() - 5))
    assert renewed.run_owner == bearer.run_owner


REFUSED: list[dict[str, Any]] = [
    {"exp": "x"}, {"exp": -1e300}, {"exp": 10**400}, {"exp": float("inf")}, {"exp": float("nan")}, {"iss": None},
    {"aud": None}, {"aud": []}, {"aud": f"{AUDIENCE}/"}, {"aud": {"x": AUDIENCE}}, {"at_hash": "x"}, {"cnf": {}},
    {"sub": None}, {"sub": None, "azp": "a-client"}, {"sub": 7}, {"sub": ""}, {"sub": "ann\n"}, {"sub": "x" * 256},
    {"typ": "ID"}, {"alg": "RS512"}, {"alg": "PS256"},
]  # fmt: skip


async def test_a_token_that_is_not_for_the_portal_is_refused(issuer: Issuer) -> None:
    signing = signing_in(issuer)
    for claims in (*REFUSED, {"kid": "unknown", "key": rsa_key()}):
        assert await refused(signing, issuer.token(**claims)) == (401, "invalid_token"), claims
    assert (await signing.bearer(issuer.token())).name == "person ann"


async def test_a_signature_that_is_not_the_issuers_is_refused(issuer: Issuer) -> None:
    signing, good = signing_in(issuer), issuer.token()
    head, body, signature = good.split(".")
    key = issuer.keys["first-rsa"].public_key()
    public = key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)

    def part(value: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    def with_head(**fields: Any) -> str:
        return f"{part(fields)}.{body}.{signature}"

    claims = jwt.decode(good, options={"verify_signature": False})
    other = rsa_key()
    for token in (
        f"{head}.{body}.",
        f"{head}.{body}.{signature[:-4]}AAAA",
        f"{head}.{part({**claims, 'sub': 'bob'})}.{signature}",
        f"{head}.{body}.{base64.urlsafe_b64encode(public).decode()}",
        f"{part({'alg': 'none', 'kid': 'first-rsa'})}.{body}.",
        with_head(alg="HS256", kid="first-rsa"),
        with_head(alg="ES256", kid="first-rsa"),
        with_head(alg=["RS256"], kid="first-rsa"),
        with_head(alg="RS256", kid=["first-rsa"]),
        with_head(alg="RS256", jwk={"kty": "oct", "k": "eA"}),
        jwt.encode(claims, b"x" * 64, algorithm="HS256", headers={"kid": "first-rsa"}),
        issuer.token(key=other),
        *("..", "a.b.c", "é.b.c", "opaque", good * 40, "\xe9" * 16_000),
    ):
        assert await refused(signing, token) == (401, "invalid_token"), token[:100]
    assert await signing.bearer(good)


async def test_reason_of_a_refusal_is_told_in_plain_words(issuer: Issuer) -> None:
    good = issuer.token()
    for token, reason in (
        (good[:-5], "damaged"),
        (f"x{good}", "damaged"),
        (issuer.token(iat="x"), "a value that is not valid"),
        (issuer.token(exp=1), "has expired"),
        (issuer.token(nbf=1e12), "not valid yet"),
        (issuer.token(exp=None), "lacks one of the claims exp, iss and aud"),
        (issuer.token(iss="https://other.example"), "of another issuer"),
        (
            issuer.token(aud="https://other.example"),
            "for another audience, 'https://other.example', and server.auth",
        ),
        (issuer.token(key=rsa_key()), "not signed with the key that it names"),
    ):
        with pytest.raises(SignInError, match=reason):
            await signing_in(issuer).bearer(token)


async def test_clocks_may_differ_a_little(issuer: Issuer) -> None:
    late, early = issuer.token(exp=time.time() - 20), issuer.token(nbf=time.time() + 20)
    assert await signing_in(issuer).bearer(late)
    assert await signing_in(issuer).bearer(early)
    for token in (late, early):
        assert await refused(signing_in(issuer, leeway_seconds=1), token) == (401, "invalid_token")


async def test_a_token_is_checked_once_a_minute(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    signing, now = signing_in(issuer, introspection=CLIENT), time.time()
    issuer.active["opaque"] = {"sub": "ann", "aud": [AUDIENCE, "x"], "exp": now + 3_000}
    for _ in range(5):
        assert (await signing.bearer("opaque")).name == "person ann"
    assert issuer.asked.count("/introspect") == 1
    del issuer.active["opaque"]
    monkeypatch.setattr(sign_in.time, "time", lambda: now + 61)
    assert await refused(signing, "opaque") == (401, "invalid_token")


@pytest.mark.parametrize(
    "given", [{"scope": "mcp:read other"}, {"scope": None, "scp": ["other", "mcp:read"]}, {"scp": "mcp:read"}]
)
async def test_scopes_are_read_as_providers_write_them(issuer: Issuer, given: dict[str, Any]) -> None:
    assert await signing_in(issuer, scopes=["mcp:read"]).bearer(issuer.token(**given))
    signing = signing_in(issuer, scopes=["mcp:read", "mcp:write"])
    assert await refused(signing, issuer.token(**given)) == (403, "insufficient_scope")


async def test_scopes_are_read_as_entra_id_writes_them(issuer: Issuer) -> None:
    """It announces them with the audience in front. Those of another audience are others."""
    for audience in ("api://portal", "portal"):
        url = {"audience": audience, "url": AUDIENCE}
        token = issuer.token(aud=audience, scope=None, scp="mcp.read")
        assert await signing_in(issuer, **url, scopes=["api://portal/mcp.read"]).bearer(token)
        for scope in ("api://other/mcp.read", "api://portal/mcp", "api://portal/", "x/api://portal/mcp.read"):
            signing = signing_in(issuer, **url, scopes=[scope])
            assert await refused(signing, token) == (403, "insufficient_scope")


async def test_scopes_choose_a_profile(issuer: Issuer) -> None:
    signing = signing_in(issuer, {"profiles": {"scope:mcp.admin": "admin", "*": "reader"}})
    for scope, profile in (("mcp mcp.admin", "admin"), ("mcp", "reader"), ("mcp.admins", "reader")):
        assert (await signing.bearer(issuer.token(scope=scope))).profile == profile


TENANTS = {
    "claim": "org",
    "profiles": [
        {"claim": "realm_access.roles", "value": "urn:x:admin", "profile": "admin"},
        {"claim": "https://a.example/r", "value": "ops", "profile": "ops"},
    ],
}


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ({"org": "blue", "realm_access": {"roles": ["x", "urn:x:admin"]}}, ("blue", "admin")),
        ({"org": "red", "https://a.example/r": "ops"}, ("red", "ops")),
        ({"org": "red", "https://a.example/r": "opsy"}, None),
        ({"org": "red"}, None),
        ({"https://a.example/r": "ops"}, None),
        ({"org": ["red"], "https://a.example/r": "ops"}, None),
        ({"org": "../red", "https://a.example/r": "ops"}, None),
        ({"org": "", "https://a.example/r": "ops"}, None),
    ],
)  # fmt: skip
async def test_claims_choose_tenant_and_profile_or_nothing_is_allowed(
    issuer: Issuer, claims: dict[str, Any], expected: tuple[str, str] | None
) -> None:
    signing, token = signing_in(issuer, TENANTS), issuer.token(**claims)
    if expected is None:
        assert await refused(signing, token) == (403, "access_denied")
    else:
        bearer = await signing.bearer(token)
        assert (bearer.tenant, bearer.profile) == expected
        assert bearer.name == "person ann of {} as {}".format(*expected)


async def test_the_first_fitting_profile_counts_and_a_star_is_for_all_others(issuer: Issuer) -> None:
    signing = signing_in(issuer, {"profiles": {"*": "rest", "groups:a": "one", "groups:b": "two"}})
    for groups, profile in ((["b", "a"], "one"), (["b"], "two"), ([], "rest"), (None, "rest")):
        assert (await signing.bearer(issuer.token(groups=groups))).profile == profile


def test_a_claim_is_named_or_reached_by_a_path() -> None:
    assert claim({"a.b": 1, "a": {"b": 2}}, "a.b") == 1
    assert claim({"a": {"b": [2]}}, "a.b") == [2]
    assert claim({"a": "x"}, "a.b") is None


def with_auth(**sections: Any) -> dict[str, Any]:
    own = {"issuer": "https://id.example", "audience": AUDIENCE, **sections.pop("auth", {})}
    return {"server": {"auth": own}, **sections}


@pytest.mark.parametrize(
    ("sections", "word"),
    [
        (with_auth(auth={"issuer": "http://id.example"}), "issuer"),
        *(
            (with_auth(auth={"audience": each}), "audience")
            for each in ("portal", "https://", "https://xn--/")
        ),
        (with_auth(auth={"introspection": {**CLIENT, "url": "http://id.example/i"}}), "https://"),
        (with_auth(auth={"algorithms": ["HS256"]}), "HS256"),
        (with_auth(auth={"algorithms": ["none"]}), "none"),
        ({"tenants": {"claim": "org"}}, "server.auth"),
        (with_auth(tenants={"profiles": {"g:a": "nobody"}}), "nobody"),
        (with_auth(profiles={"p": {}}, tenants={"profiles": {"g": "p"}}), "claim"),
        (with_auth(capabilities={"files": {"workspace": ".", "share": "tenant"}}), "tenant"),
    ],
)
def test_settings_that_let_in_too_much_are_refused(
    tmp_path: Path, sections: dict[str, Any], word: str
) -> None:
    with pytest.raises(ManifestError) as caught:
        load_manifest(write_manifest(tmp_path, {}, **sections), {})
    assert word in str(caught.value)


async def test_challenge_names_the_claim_or_the_scope_that_a_token_lacks(
    issuer: Issuer, tmp_path: Path
) -> None:
    sections: dict[str, Any] = {
        "server": {"auth": {"issuer": issuer.url, "audience": AUDIENCE, "scopes": ["mcp"]}},
        "profiles": {"reader": {}},
        "tenants": {"claim": "ŏrg", "profiles": {"*": "reader"}},
    }
    async with opened(tmp_path, bound=["reader"], **sections) as portal:
        transport = httpx2.ASGITransport(http_app(portal.portal))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:

            async def challenge(status: int, **claims: Any) -> str:
                headers = {"Authorization": f"Bearer {issuer.token(**claims)}"} if claims else {}
                refusal = await http.get("/runs", headers=headers)
                assert refusal.status_code == status
                return str(refusal.headers["www-authenticate"])

            told = await challenge(401)
            assert 'scope="mcp"' in told and "error=" not in told
            assert "the claim '?rg' of the token" in await challenge(403, sub="ann")
            assert 'error="insufficient_scope"' in await challenge(403, ŏrg="x", scope="other")
            assert (await http.get("/healthz")).status_code == 200
            where = httpx2.URL(told.partition('resource_metadata="')[2].partition('"')[0])
            metadata = (await http.get(where.path)).json()
    assert metadata.items() >= {"resource": AUDIENCE, "scopes_supported": ["mcp"]}.items()


KEY = {"kty": "RSA", "kid": "first-rsa"}
METADATA = "/.well-known/openid-configuration"


async def test_keys_are_rotated_without_a_restart(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    signing = signing_in(issuer)
    await signing.bearer(issuer.token())
    before = issuer.token(sub="bob")
    issuer.rotate("second")
    monkeypatch.setattr(sign_in, "COOLDOWN_SECONDS", 0)
    assert (await signing.bearer(issuer.token())).name == "person ann"
    assert await refused(signing, before) == (401, "invalid_token")


async def test_an_operator_is_told_why_nobody_can_sign_in(issuer: Issuer) -> None:
    async def fault(at: Issuer = issuer, **settings: Any) -> str:
        return await signing_in(at, **settings)._provider.fault()

    assert await fault() == await fault(introspection=CLIENT) == ""
    assert "client_secret" in await fault(introspection={**CLIENT, "client_secret": "wrong"})
    assert "ConnectError" in await fault(Issuer("http://127.0.0.1:1"))
    issuer.named = "https://id.example"
    assert "calls itself 'https://id.example'" in await fault()
    assert await refused(signing_in(issuer), issuer.token()) == (503, "temporarily_unavailable")


async def test_unknown_keys_do_not_let_strangers_flood_the_issuer(issuer: Issuer) -> None:
    signing = signing_in(issuer)
    await signing.bearer(issuer.token())
    key = rsa_key()
    for number in range(50):
        await refused(signing, issuer.token(kid=f"k{number}", key=key))
    assert len(issuer.asked) <= 3


BROKEN = [
    *(("/jwks", Response(body)) for body in ("<html>", "[" * 100_000, " " * (2 << 20), "[]", "{}")),
    *(("/jwks", JSONResponse({"keys": keys})) for keys in ([], 7, {"a": "b"})),
    ("/jwks", JSONResponse({"keys": [{"kty": "RSA", "kid": "first-rsa", "n": 5, "e": {}}]})),
    ("/jwks", JSONResponse({"keys": [{**KEY, "n": "AQAB", "e": "AQAB", "use": "enc"}]})),
    ("/jwks", Response(status_code=302, headers={"location": METADATA})),
    ("/jwks", Response(status_code=404)),
    (METADATA, Response(status_code=500)),
]


async def test_a_broken_answer_is_the_issuers_fault_and_asked_for_once(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path, answer in BROKEN:
        monkeypatch.setattr(sign_in, "PAUSE_SECONDS", 1_000)
        signing = signing_in(issuer)
        issuer.answers = {path: answer}
        issuer.asked.clear()
        for token in ("s1", "s2", "s3"):
            assert await refused(signing, issuer.token(sub=token)) == (503, "temporarily_unavailable"), (
                answer.body
            )
        assert issuer.asked.count(path) == 1
    issuer.answers.clear()
    assert (await signing_in(issuer).bearer(issuer.token())).name == "person ann"


async def test_a_broken_key_does_not_spoil_the_others(issuer: Issuer) -> None:
    [listed] = [key for key in issuer.listed() if key["kid"] == "first-rsa"]
    others: list[Any] = [7, {}, {"kty": "oct", "k": "eA"}, {"kty": "new"}, {**listed, "n": 5, "kid": "x"}]
    issuer.answers["/jwks"] = JSONResponse({"keys": [*others, listed]})
    assert (await signing_in(issuer).bearer(issuer.token())).name == "person ann"


async def test_strangers_at_a_slow_issuer_delay_nobody_whose_key_is_known(issuer: Issuer) -> None:
    signing = signing_in(issuer, introspection=CLIENT)
    await signing.bearer(issuer.token())
    issuer.lets_go = anyio.Event()
    told: list[tuple[int, str]] = []
    some = anyio.Event()

    async def junk(number: int) -> None:
        told.append(await refused(signing, f"junk{number}"))
        some.set()

    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as tasks:
            for number in range(sign_in.MAX_WAITING + 10):
                tasks.start_soon(junk, number)
            await some.wait()
            assert (await signing.bearer(issuer.token(sub="bob"))).name == "person bob"
            assert told == [(503, "temporarily_unavailable")] * len(told)
            issuer.lets_go.set()
    assert sorted(set(told)) == [(401, "invalid_token"), (503, "temporarily_unavailable")]
    assert told.count((401, "invalid_token")) >= sign_in.MAX_WAITING


async def test_the_issuer_is_asked_about_a_token_once_for_many_requests(issuer: Issuer) -> None:
    signing = signing_in(issuer, introspection=CLIENT)
    issuer.active["opaque"] = {"sub": "ann", "aud": AUDIENCE, "exp": time.time() + 300}
    async with anyio.create_task_group() as tasks:
        for _ in range(2 * sign_in.MAX_WAITING):
            tasks.start_soon(signing.bearer, "opaque")
            tasks.start_soon(refused, signing, "junk")
    assert issuer.asked.count("/introspect") == 2


async def test_request_that_ends_while_it_asks_leaves_the_asking_to_others(issuer: Issuer) -> None:
    signing = signing_in(issuer, introspection=CLIENT)
    issuer.active["opaque"] = {"sub": "ann", "aud": AUDIENCE, "exp": time.time() + 300}
    issuer.lets_go = anyio.Event()
    asking, waiting = (asyncio.create_task(signing.bearer("opaque")) for _ in range(2))
    await anyio.lowlevel.checkpoint()
    asking.cancel()
    issuer.lets_go.set()
    assert (await waiting).name == "person ann"


async def test_strangers_keep_nobody_out_who_was_there_before(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    signing, now = signing_in(issuer, introspection=CLIENT), time.time()
    issuer.active["opaque"] = {"sub": "ann", "aud": AUDIENCE, "exp": now + 3_000}
    await signing.bearer("opaque")
    monkeypatch.setattr(sign_in, "time", SimpleNamespace(time=lambda: now + 61, monotonic=time.monotonic))
    async with anyio.create_task_group() as tasks:
        for number in range(sign_in.MAX_WAITING + 1):
            tasks.start_soon(refused, signing, f"junk{number}")
        await anyio.lowlevel.checkpoint()
        assert (await signing.bearer("opaque")).name == "person ann"
    assert issuer.asked.count("/introspect") == sign_in.MAX_WAITING + 2


@pytest.mark.parametrize(
    "answer", [*(Response(status_code=code) for code in (400, 403, 429, 500)), Response("<html>")]
)
async def test_an_issuer_that_refuses_the_portal_says_nothing_about_the_token(
    issuer: Issuer, answer: Response
) -> None:
    """And one token for which it answers so, perhaps a stranger's, does not keep others from being checked."""
    signing = signing_in(issuer, introspection=CLIENT)
    issuer.active["opaque"] = {"sub": "ann", "aud": AUDIENCE, "exp": time.time() + 300}
    issuer.answers["/introspect"] = answer
    assert await refused(signing, "opaque") == (503, "temporarily_unavailable")
    del issuer.answers["/introspect"]
    assert (await signing.bearer("opaque")).name == "person ann"


async def test_the_portals_own_name_and_secret_may_have_any_characters(issuer: Issuer) -> None:
    issuer.client = ("por:tal", "s3 +%é:/")
    client = dict(zip(CLIENT, issuer.client, strict=True))
    issuer.active["opaque"] = {"sub": "ann", "aud": AUDIENCE, "exp": time.time() + 300}
    assert (await signing_in(issuer, introspection=client).bearer("opaque")).name == "person ann"


async def test_an_issuer_that_is_too_slow_is_not_asked_by_everybody(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sign_in, "REQUEST_SECONDS", 0.1)
    monkeypatch.setattr(sign_in, "PAUSE_SECONDS", 1_000)
    signing = signing_in(issuer, introspection={**CLIENT, "url": f"{issuer.url}/introspect"})
    issuer.lets_go = anyio.Event()
    assert await refused(signing, "junk") == (503, "temporarily_unavailable")
    issuer.lets_go.set()
    assert await refused(signing, "other") == (503, "temporarily_unavailable")


async def test_known_keys_serve_while_the_issuer_is_down(issuer: Issuer) -> None:
    signing = signing_in(issuer)
    await signing.bearer(issuer.token())
    issuer.is_down = True
    key = rsa_key()
    await refused(signing, issuer.token(kid="unknown", key=key))
    assert (await signing.bearer(issuer.token(sub="bob"))).name == "person bob"


async def test_what_the_issuer_says_about_a_token_has_to_be_enough(issuer: Issuer) -> None:
    signing = signing_in(issuer, introspection=CLIENT)
    for lacking in (
        {"aud": None}, {"aud": "other"}, {"exp": None}, {"exp": 1}, {"exp": True}, {"nbf": 1e12}, {"sub": None},
        {"iss": "https://other.example"}, {"active": False}, {"active": "true"}, {"cnf": {}}, {"typ": "Refresh"}, {},
    ):  # fmt: skip
        issuer.active["opaque"] = {"sub": "ann", "aud": AUDIENCE, "exp": time.time() + 300, **lacking}
        if lacking:
            assert await refused(signing, "opaque") == (401, "invalid_token"), lacking
    assert (await signing.bearer("opaque")).name == "person ann"
