"""A tool that an upstream adds takes the name of another one, or a former name, and no rule that was written for that.
The harmless twin: a tool without such a rule is called by its new name. For the rules alone see
tests/manifests/test_former_names.py.
"""

from pathlib import Path

import pytest

from manifests.json_value import Json
from manifests.names import function_names
from tests.manifests.test_former_names import LISTING, QUERY, granted, manifest_of
from tests.portal.peers import Opened, Peer, opened, schema, tool
from tests.portal.pinning import accept

pytestmark = pytest.mark.anyio

TEXT = schema("path", path={"type": "string"})
OLD = ("wipe-all", "read-all")
SUFFIXED = function_names(["wipe-all", "wipe_all"])["wipe-all"]

# Each upstream is under the rule that it is called after.
UPSTREAMS = ("denied", "matched", "denying", "conditional", "used_up", "used_up_for_all")
RULES: Json = {
    "allow": ["*", {"tool": "conditional.wipe_all", "where": {"path": {"equals": "mine"}}}],
    "deny": ["denied.wipe_all", "matched.w?pe_all"],
    "budgets": [
        {"tool": "used_up.wipe_all", "calls": 0},
        {"tool": "used_up_for_all.wipe_all", "per_minute": 0},
    ],
}
SECTIONS: Json = {
    "own": {"deny": ["denying.wipe_all"]},
    "capabilities": {"tools": RULES},
    "server": {"check": "off"},
}


async def reached(portal: Opened, peers: dict[str, Peer]) -> dict[str, set[str]]:
    """The tools that scripts reach, by whatever names their functions may have."""
    for peer in peers.values():
        peer.calls.clear()
    tools = {each.name for peer in peers.values() for each in peer.tools}
    names = {*function_names(sorted(tools)).values(), "wipe_all", "read_all", SUFFIXED}
    await portal.run(
        f"for upstream in ({', '.join(peers)}):\n"
        f"    for name in {sorted(names)!r}:\n"
        "        try:\n"
        "            await getattr(upstream, name)(path='x')\n"
        "        except Exception:\n"
        "            pass\n"
    )
    return {upstream: {name for name, _ in peer.calls} for upstream, peer in peers.items()}


NEWCOMERS = {
    "of that very name": ["wipe_all", "read_all"],
    "that leave nobody the name": ["wipe.all", "read.all"],
    "of the next name, too": ["wipe_all", SUFFIXED, "read_all"],
}


@pytest.mark.parametrize("is_locked", [False, True])
async def test_newcomers_lift_no_rule(tmp_path: Path, is_locked: bool) -> None:
    old = [tool(name, TEXT) for name in OLD]
    peers = {upstream: Peer(*old) for upstream in UPSTREAMS}
    if is_locked:
        await accept(tmp_path, {**peers}, **SECTIONS)
    async with opened(tmp_path, {**peers}, **SECTIONS) as portal:
        assert await reached(portal, peers) == {key: {"read-all"} for key in UPSTREAMS}
    for newcomers in NEWCOMERS.values():
        for peer in peers.values():
            peer.tools = [*old, *(tool(name, TEXT) for name in newcomers)]
        async with opened(tmp_path, {**peers}, **SECTIONS) as portal:
            for upstream, found in (await reached(portal, peers)).items():
                assert "wipe-all" not in found and "read-all" in found, upstream
                assert not is_locked or found == {"read-all"}, upstream
            listed = (await portal.search("wipe all", limit=50))["functions"]
        shown = {row["upstream"] for row in listed if row["tool"] == "wipe-all"}
        assert shown == {"conditional", "used_up", "used_up_for_all"}


FORMER = "up._____f740"


def test_tool_that_takes_the_former_name_takes_the_grant_as_it_always_did() -> None:
    manifest = manifest_of(allow=[FORMER])
    assert granted(manifest, LISTING) == {QUERY}
    assert granted(manifest, [*LISTING, "_____f740"]) == {"_____f740"}


def test_a_second_tool_of_the_same_former_name_leaves_the_grant_to_neither() -> None:
    manifest = manifest_of(allow=["up.____"])
    assert granted(manifest, [QUERY, "plain"]) == {QUERY}
    assert granted(manifest, [QUERY, "创建订单"]) == set()


def test_grant_of_a_namespace_is_not_for_another_upstream_of_that_former_name() -> None:
    assert granted(manifest_of("größe", allow=["gr__e.*"]), LISTING, "größe") == {*LISTING}
    both = manifest_of("größe", allow=["gr__e.*"])
    both.portal.upstreams["gr__e"] = both.portal.upstreams["größe"]
    assert granted(both, LISTING, "größe") == set()
    assert granted(both, LISTING, "gr__e") == {*LISTING}
