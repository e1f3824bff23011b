"""Two tenants with equal names at one identity provider try to be each other, and strangers to be one of them."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from manifests.errors import ManifestError
from manifests.json_value import Json
from manifests.loader import load_manifest
from manifests.portal_manifest import PortalManifest
from tests.portal.app.test_signed_in_streams import HELLO
from tests.portal.identity.test_sign_in import signing_in
from tests.portal.issuer import AUDIENCE, Issuer, issuing
from tests.portal.peers import http_app, opened
from tests.portal.server.test_callers import visitor
from tests.security.hostile import words
from tests.upstreams.peers import http_peer

pytestmark = pytest.mark.anyio

ANN = {"sub": "ann", "org": "red"}
OTHERS: list[dict[str, Any]] = [
    {"sub": "ann", "org": "blue"},
    {"sub": "bob", "org": "red"},
    {"sub": "ann", "org": "red", "groups": ["admins"]},
    {"sub": "ann of red as reader", "org": "red"},
]


@pytest.fixture(scope="module")
async def issuer(anyio_backend: str) -> AsyncIterator[Issuer]:
    async with issuing() as issuer:
        yield issuer


@pytest.fixture(scope="module")
async def url(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    auth, folder = {"issuer": issuer.url, "audience": AUDIENCE}, tmp_path_factory.mktemp("neighbours")
    tenants = {"claim": "org", "profiles": {"groups:admins": "admin", "*": "reader"}}
    profiles: Any = {"admin": {}, "reader": {}}
    sections: dict[str, Any] = {"server": {"auth": auth}, "tenants": tenants, "profiles": profiles}
    async with (
        opened(folder, bound=profiles, **sections) as portal,
        http_peer(http_app(portal.portal)) as peer,
    ):
        yield f"http://127.0.0.1:{peer.port}/mcp"


def headers(issuer: Issuer, **claims: Any) -> dict[str, str]:
    accept = "application/json, text/event-stream"
    return {"Authorization": f"Bearer {issuer.token(**claims)}", "Accept": accept}


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_nobody_uses_the_session_of_another(issuer: Issuer, url: str, mode: str) -> None:
    async with visitor(url, mode, headers(issuer, **ANN)) as ann:
        session = await ann.begin("x = 1")
        for claims in OTHERS:
            async with visitor(url, mode, headers(issuer, **claims)) as other:
                assert (await other.error_of("x", session))[0] == "unknown_session"
        assert (await ann.run("x", session=session))["result"] == 1


async def test_nobody_joins_the_mcp_session_of_another(issuer: Issuer, url: str) -> None:
    async with httpx2.AsyncClient() as http:
        own = headers(issuer, **ANN)
        begun = (await http.post(url, json=HELLO, headers=own)).headers["mcp-session-id"]
        ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        for claims in OTHERS:
            for method, body in (("POST", ping), ("GET", None), ("DELETE", None)):
                joined = {**headers(issuer, **claims), "mcp-session-id": begun}
                assert (await http.request(method, url, json=body, headers=joined)).status_code == 404
        assert (await http.post(url, json=ping, headers={**own, "mcp-session-id": begun})).status_code == 200


async def test_a_request_with_two_tokens_has_none(issuer: Issuer, url: str) -> None:
    """A proxy in front of the portal may have read the other one."""
    good, bad = headers(issuer, **ANN)["Authorization"], "Bearer x"
    async with httpx2.AsyncClient() as http:
        for values in ((good, bad), (bad, good), (f"{good}, {bad}",), (f"{good} {bad}",), ("",), ("Bearer",)):
            many = [("Authorization", value) for value in values]
            assert (await http.post(url, json={}, headers=many)).status_code == 401, values
        assert (await http.post(url, json={}, headers=[("Authorization", good)])).status_code != 401


async def test_a_challenge_says_nothing_that_a_stranger_sent(url: str) -> None:
    async with httpx2.AsyncClient() as http:
        sent = {
            "Authorization": "Bearer evil",
            "X-Forwarded-Host": "evil.test",
            "Forwarded": "host=evil.test",
        }
        answer = await http.post(f"{url}?evil", json={}, headers=sent)
        assert answer.status_code == 401 and "evil" not in answer.headers["www-authenticate"] + answer.text
        assert (await http.post(url, json={}, headers={**sent, "Host": "evil.test"})).status_code == 421


MANIFEST = """
server: {{auth: {{issuer: https://id.example, audience: https://portal.example/mcp}}}}
profiles: {{admin: {{}}, reader: {{}}}}
tenants:
  profiles: {}
"""


def loaded(folder: Path, profiles: str) -> PortalManifest:
    (folder / "portal.yaml").write_text(MANIFEST.format(profiles).strip())
    return load_manifest(folder / "portal.yaml", {}).portal


@pytest.mark.parametrize(
    ("profiles", "entries"),
    [
        ('{"groups:admins": admin, "*": reader}', [("groups", "admins"), ("*", "")]),
        ('{"https://id/roles:boss": admin}', [("https://id/roles", "boss")]),
        ('{"groups:https://id/admins": admin}', [("groups", "https://id/admins")]),
        (
            '[{claim: "a:b", value: "urn:c", profile: admin}, {claim: "*", profile: reader}]',
            [("a:b", "urn:c"), ("*", "")],
        ),
    ],
)
def test_an_entry_that_can_be_read_in_one_way_is(
    tmp_path: Path, profiles: str, entries: list[tuple[str | None, str | None]]
) -> None:
    assert (tenants := loaded(tmp_path, profiles).tenants) is not None
    assert [(each.claim, each.value) for each in tenants.entries.values()] == entries


@pytest.mark.parametrize(
    "fitting",
    words("scope:urn:x urn:roles:boss https://id:8443/roles:boss https://id/roles:urn:boss a::b a:b:c"),
)
def test_an_entry_that_can_be_read_in_two_ways_is_refused_with_its_line(tmp_path: Path, fitting: str) -> None:
    with pytest.raises(ManifestError) as refused:
        loaded(tmp_path, f'\n    "*": reader\n    "{fitting}": admin')
    (problem,) = refused.value.problems
    assert (problem.line, "profiles as a list" in problem.hint) == (6, True)


@pytest.mark.parametrize(
    "profiles", ["[{value: a, profile: admin}]", "[{claim: a, value: b, profile: none}]", "[x]", "x"]
)
def test_an_entry_that_says_too_little_is_refused(tmp_path: Path, profiles: str) -> None:
    with pytest.raises(ManifestError):
        loaded(tmp_path, profiles)


CLAIM = "https://id/roles"
LIKE_IT: list[dict[str, Json]] = [
    {"https": "//id/roles:boss"},
    {f"{CLAIM}:boss": True},
    {f"{CLAIM}:boss": "boss"},
    {"https": {"//id/roles": "boss"}},
    {CLAIM: "Boss"},
]


@pytest.mark.parametrize(
    "profiles",
    [
        {f"{CLAIM}:boss": "admin", "*": "reader"},
        [{"claim": CLAIM, "value": "boss", "profile": "admin"}, {"claim": "*", "profile": "reader"}],
    ],
)
async def test_a_claim_that_looks_like_the_named_one_gives_nothing(issuer: Issuer, profiles: Json) -> None:
    assert await profile_of(issuer, profiles, {CLAIM: "boss"}) == "admin"
    assert await profile_of(issuer, profiles, {CLAIM: ["x", "boss"]}) == "admin"
    assert [await profile_of(issuer, profiles, each) for each in LIKE_IT] == ["reader"] * len(LIKE_IT)


async def profile_of(issuer: Issuer, profiles: Json, claims: dict[str, Json]) -> str | None:
    return (await signing_in(issuer, {"profiles": profiles}).bearer(issuer.token(**claims))).profile
