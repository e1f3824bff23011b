"""People sign in with tokens of an identity provider, which say what they may do and what is theirs."""

import base64
import json
import time
from pathlib import Path
from typing import Any

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from manifests.errors import ManifestError
from manifests.loader import load_manifest
from portal.base.caller import claim
from portal.identity import sign_in
from tests.portal.issuer import AUDIENCE, CLIENT, Issuer, refused, signing_in
from tests.portal.peers import Peer, http_app, opened, tool, write_manifest
from tests.upstreams.peers import http_peer

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("alg", ["RS256", "ES256"])
async def test_a_token_says_whose_it_is(issuer: Issuer, alg: str) -> None:
    bearer = await signing_in(issuer, scopes=["mcp"]).bearer(issuer.token(alg=alg))
    assert (bearer.name, bearer.tenant, bearer.profile) == ("person ann", None, None)


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": 1}, {"exp": None}, {"exp": "x"}, {"exp": -1e300}, {"nbf": 1e12}, {"iss": None},
        {"iss": "https://other.example"}, {"aud": None}, {"aud": "https://other.example"}, {"aud": []},
        {"exp": 10**400}, {"sub": None, "azp": "a-client"}, {"sub": "ann\n"}, {"at_hash": "x"}, {"cnf": {}},
        {"typ": "ID"},
        {"exp": float("inf")}, {"exp": float("nan")}, {"sub": "x" * 256},
        {"aud": f"{AUDIENCE}/"}, {"aud": {"x": AUDIENCE}}, {"sub": None}, {"sub": 7}, {"sub": ""},
        {"alg": "RS512"}, {"alg": "PS256"}, {"kid": "unknown"},
    ],
    ids=repr,
)  # fmt: skip
async def test_a_token_that_is_not_for_the_portal_now_is_refused(
    issuer: Issuer, claims: dict[str, Any]
) -> None:
    if claims.get("kid"):
        claims = {**claims, "key": rsa.generate_private_key(public_exponent=65537, key_size=2048)}
    assert await refused(signing_in(issuer), issuer.token(**claims)) == (401, "invalid_token")
    assert (await signing_in(issuer).bearer(issuer.token())).name == "person ann"


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
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
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


async def test_people_tenants_and_profiles_own_different_runs(issuer: Issuer) -> None:
    signing = signing_in(issuer, {"claim": "org", "profiles": {"groups:a": "one", "*": "rest"}})
    given = [{"org": "x"}, {"org": "y"}, {"org": "x", "sub": "bob"}, {"org": "x", "groups": ["a"]}]
    owners = [(await signing.bearer(issuer.token(**claims))).run_owner for claims in given]
    assert len(set(owners)) == 4
    again = await signing.bearer(issuer.token(org="x", iat=time.time() - 5))
    assert again.run_owner == owners[0]


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


async def test_two_people_of_two_tenants_use_one_portal_and_see_only_their_own(
    issuer: Issuer, tmp_path: Path
) -> None:
    peer = Peer(tool("look", annotations={"readOnlyHint": True}), tool("push"))
    sections: dict[str, Any] = {
        "server": {"auth": {"issuer": issuer.url, "audience": AUDIENCE, "scopes": ["mcp"]}},
        "profiles": {"admin": {}, "reader": {"tools": {"deny": ["push"]}}},
        "tenants": {"claim": "ŏrg", "profiles": {"groups:admins": "admin", "*": "reader"}},
        "runs": {"store": "runs.sqlite"},
    }
    async with (
        opened(tmp_path, {"git": peer}, bound=["admin", "reader"], **sections) as portal,
        http_peer(http_app(portal.portal)) as served,
    ):
        url = f"http://127.0.0.1:{served.port}"

        def as_person(**claims: Any) -> httpx2.AsyncClient:
            headers = {"Authorization": f"Bearer {issuer.token(**claims)}"}
            return httpx2.AsyncClient(headers=headers, base_url=url, timeout=20)

        async with httpx2.AsyncClient(base_url=url) as nobody:
            asked = await nobody.post("/mcp", json={})
            told = asked.headers["www-authenticate"]
            assert asked.status_code == 401 and 'scope="mcp"' in told and "error=" not in told
            where = told.partition('resource_metadata="')[2].partition('"')[0]
            assert where == "https://portal.example/.well-known/oauth-protected-resource/mcp"
            metadata = (await nobody.get("/.well-known/oauth-protected-resource/mcp")).json()
            assert metadata["resource"] == AUDIENCE
            assert metadata["authorization_servers"] == [issuer.url]
            assert metadata["scopes_supported"] == ["mcp"]
            assert (await nobody.get("/healthz")).status_code == 200
            assert (await nobody.get("/runs")).status_code == 401
        async with as_person() as stranger:
            refusal = await stranger.get("/runs")
            assert refusal.status_code == 403
            assert "the claim '?rg' of the token" in refusal.headers["www-authenticate"]
        async with as_person(ŏrg="x", scope="other") as ann:
            refusal = await ann.get("/runs")
            assert refusal.status_code == 403
            assert 'error="insufficient_scope"' in refusal.headers["www-authenticate"]
        ann = as_person(ŏrg="x", groups=["admins"])
        bob = as_person(ŏrg="y", sub="bob")
        for mode in ("legacy", "auto"):
            for person, status in ((ann, "ok"), (bob, "refused")):
                async with Client(
                    streamable_http_client(f"{url}/mcp", http_client=person), mode=mode
                ) as client:
                    answer = await client.call_tool("execute_code", {"code": "await git.push(n=1)"})
                    assert answer.structured_content["status"] == status
        runs = (await ann.get("/runs")).json()["runs"]
        assert len(runs) == 2
        assert (await bob.get("/runs")).json()["runs"] == []
        assert (await bob.get(f"/runs/{runs[0]['run_id']}")).status_code == 404
        # bob with ann's name in his own tenant is not ann
        async with as_person(ŏrg="y", groups=["admins"]) as other:
            assert (await other.get("/runs")).json()["runs"] == []
        for person in (ann, bob):
            await person.aclose()
    assert not any("Bearer" in str(call) for call in peer.calls)
