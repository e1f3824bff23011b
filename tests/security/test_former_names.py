"""A grant of a former name means the tool that had it, and no tool that an upstream lists to get under it."""

from tests.manifests.test_former_names import LISTING, QUERY, granted, manifest_of

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
