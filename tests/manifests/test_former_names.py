"""Rules with the names of tools from when names had ASCII letters only still mean the same tools."""

from pathlib import Path

import pytest

from manifests.decision import ListedTool, decide, decide_arguments, unmatched_rules
from manifests.grants import Hints, ToolRules
from manifests.json_value import Json
from manifests.manifest import Manifest
from manifests.names import ToolNames, function_names, namespace_of
from manifests.portal_manifest import Capabilities, HttpUpstream, PortalManifest, RetryRules, may_repeat

QUERY = "数据查询"
LISTING = [QUERY, "创建订单", "größe", "gr__e", "plain"]
NO_HINTS = Hints()


def manifest_of(upstream: str = "up", **rules: Json) -> Manifest:
    portal = PortalManifest(
        upstreams={upstream: HttpUpstream(url="http://localhost")},
        capabilities=Capabilities(tools=ToolRules.model_validate(rules)),
    )
    return Manifest(portal, Path.cwd())


def granted(manifest: Manifest, listing: list[str], upstream: str = "up") -> set[str]:
    names = function_names(listing)
    return {
        tool
        for tool in listing
        if decide(manifest, upstream=upstream, tool=tool, function=names[tool], hints=NO_HINTS).granted
    }


@pytest.mark.parametrize("pattern", ["up._____f740", "_____f740", "*f740", "up.数据查询", "数据*"])
def test_deny_and_allow_match_by_both_names(pattern: str) -> None:
    assert granted(manifest_of(deny=[pattern]), LISTING) == {*LISTING} - {QUERY}
    assert granted(manifest_of(allow=[pattern]), LISTING) == {QUERY}


def test_deny_of_a_former_name_holds_whatever_else_is_listed() -> None:
    assert granted(manifest_of(deny=["up.____"]), [QUERY]) == set()
    assert granted(manifest_of(deny=["up._____f740"]), [QUERY]) == set()


@pytest.mark.parametrize("upstream", ["größe", "my-größe"])
def test_former_namespaces_match(upstream: str) -> None:
    former = namespace_of(upstream, is_former=True)
    assert former.isascii()
    assert granted(manifest_of(upstream, deny=[f"{former}.plain"]), LISTING, upstream) == {*LISTING} - {
        "plain"
    }
    assert granted(manifest_of(upstream, allow=[f"{former}.plain"]), LISTING, upstream) == {"plain"}


def test_ask_budgets_and_conditions_match_by_both_names() -> None:
    for name in ("up._____f740", "up.数据查询"):
        manifest = manifest_of(
            ask=[name],
            budgets=[{"tool": name, "calls": 1}],
            allow=["*", {"tool": name, "where": {"p": {"equals": "x"}}}],
        )
        function = function_names(LISTING)[QUERY]
        decision = decide(manifest, upstream="up", tool=QUERY, function=function, hints=NO_HINTS)
        assert (bool(decision.asks), len(decision.budgets)) == (True, 1)
        met = {word for word in "xyz" if decide_arguments(manifest, decision, {"p": word}).granted}
        assert met == {"x"}


def test_one_condition_of_those_by_either_name_is_enough() -> None:
    rules: list[Json] = [
        {"tool": name, "where": {"p": {"equals": word}}} for name, word in (("up.____", "x"), (QUERY, "y"))
    ]
    manifest = manifest_of(allow=rules)
    function = function_names([QUERY])[QUERY]
    decision = decide(manifest, upstream="up", tool=QUERY, function=function, hints=NO_HINTS)
    assert {word for word in "xyz" if decide_arguments(manifest, decision, {"p": word}).granted} == {"x", "y"}


def test_retries_match_by_both_names() -> None:
    names = ToolNames("up", "up", QUERY, function_names(LISTING)[QUERY])
    readonly: Json = {"readOnlyHint": True}
    for pattern in ("up._____f740", "up.数据查询"):
        assert may_repeat(RetryRules(allow=[pattern]), names, {})
        assert not may_repeat(RetryRules(deny=[pattern]), names, readonly)


def test_check_names_what_to_write_now() -> None:
    names = function_names(LISTING)
    listed = {"up": [ListedTool(tool, names[tool], NO_HINTS, None) for tool in LISTING]}
    manifest = manifest_of(
        deny=["up._____f740", "up.plain", "up.*"], budgets=[{"tool": "up._____f740", "calls": 1}]
    )
    found = [problem.message for problem in unmatched_rules(manifest, listed)]
    assert ["up._____f740" in each and "up.数据查询" in each for each in found] == [True, True]
