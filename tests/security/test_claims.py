"""A profile goes to the claim that the operator named, and to no other one whose name and value look alike."""

from pathlib import Path

import pytest

from manifests.errors import ManifestError
from manifests.json_value import Json
from manifests.loader import load_manifest
from manifests.portal_manifest import PortalManifest
from tests.portal.issuer import Issuer, issuing
from tests.portal.test_sign_in import signing_in

pytestmark = pytest.mark.anyio

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
    [
        "scope:urn:x",
        "urn:roles:boss",
        "https://id:8443/roles:boss",
        "https://id/roles:urn:boss",
        "a::b",
        "a:b:c",
    ],
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
async def test_a_claim_that_looks_like_the_named_one_gives_nothing(profiles: Json) -> None:
    async with issuing() as issuer:
        assert await profile_of(issuer, profiles, {CLAIM: "boss"}) == "admin"
        assert await profile_of(issuer, profiles, {CLAIM: ["x", "boss"]}) == "admin"
        assert [await profile_of(issuer, profiles, each) for each in LIKE_IT] == ["reader"] * len(LIKE_IT)


async def profile_of(issuer: Issuer, profiles: Json, claims: dict[str, Json]) -> str | None:
    return (await signing_in(issuer, {"profiles": profiles}).bearer(issuer.token(**claims))).profile
