"""Rules by names of tools: those from when names had ASCII letters only still mean the same tools; and where tools come
and go and so change the names of others, no restriction falls with a name, and no grant goes along with one.
"""

from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from manifests.decision import Decision, ListedTool, decide, decide_arguments, unmatched_rules
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


def decided(
    manifest: Manifest, tool: str, listing: list[str], upstream: str = "up", hints: Hints = NO_HINTS
) -> Decision:
    function = function_names([*dict.fromkeys([tool, *listing])])[tool]
    return decide(manifest, upstream=upstream, tool=tool, function=function, hints=hints)


def granted(manifest: Manifest, listing: list[str], upstream: str = "up") -> set[str]:
    return {tool for tool in listing if decided(manifest, tool, listing, upstream).granted}


def met(manifest: Manifest, tool: str, listing: list[str], upstream: str = "up") -> set[str]:
    """The arguments with which a tool may be called beside others."""
    decision = decided(manifest, tool, listing, upstream)
    words = "xyz" if decision.granted else ""
    return {word for word in words if decide_arguments(manifest, decision, {"p": word}).granted}


def where(tool: str, word: str, argument: str = "p") -> Json:
    """A rule that grants the tool with this argument only."""
    return {"tool": tool, "where": {argument: {"equals": word}}}


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


def test_ask_budgets_conditions_and_retries_match_by_both_names() -> None:
    names, readonly = ToolNames("up", "up", QUERY, function_names(LISTING)[QUERY]), {"readOnlyHint": True}
    for name in ("up._____f740", "up.数据查询"):
        assert may_repeat(RetryRules(allow=[name]), names, {})
        assert not may_repeat(RetryRules(deny=[name]), names, readonly)
        budgets: Json = [{"tool": name, "calls": 1}]
        manifest = manifest_of(ask=[name], budgets=budgets, allow=["*", where(name, "x")])
        decision = decided(manifest, QUERY, LISTING)
        assert (bool(decision.asks), len(decision.budgets)) == (True, 1)
        assert met(manifest, QUERY, LISTING) == {"x"}


def test_one_condition_of_those_by_either_name_is_enough() -> None:
    assert met(manifest_of(allow=[where("up.____", "x"), where(QUERY, "y")]), QUERY, []) == {"x", "y"}


def test_check_names_what_to_write_now() -> None:
    names = function_names(LISTING)
    listed = {"up": [ListedTool(tool, names[tool], NO_HINTS, None) for tool in LISTING]}
    manifest = manifest_of(
        deny=["up._____f740", "up.plain", "up.*"], budgets=[{"tool": "up._____f740", "calls": 1}]
    )
    found = [problem.message for problem in unmatched_rules(manifest, listed)]
    assert ["up._____f740" in each and "up.数据查询" in each for each in found] == [True, True]


UP = "my-up"
DESTRUCTIVE = Hints(destructive=True, is_silent=False)


def names_of(tool: str, listing: list[str]) -> ToolNames:
    return ToolNames(UP, "my_up", tool, function_names([tool, *listing])[tool])


# A tool, its pattern, and the newcomer that takes its name.
CASES = [
    ("a-b", "my_up.a_b", "a_b"),
    ("a-b", "my-up.a-b", "a_b"),
    ("a-b", "a_*", "a_b"),
    ("class", "class_", "class_"),
    ("\u00c9", "*._", "_"),
]


@pytest.mark.parametrize(("tool", "pattern", "newcomer"), CASES)
def test_no_restriction_falls_with_a_name(tool: str, pattern: str, newcomer: str) -> None:
    for listing in ([], [newcomer]):
        assert not decided(manifest_of(UP, deny=[pattern]), tool, listing, UP).granted
        assert decided(manifest_of(UP, ask=[pattern]), tool, listing, UP).asks
        assert decided(manifest_of(UP, budgets=[{"tool": pattern, "calls": 1}]), tool, listing, UP).budgets
        assert met(manifest_of(UP, allow=["*", where(pattern, "x")]), tool, listing, UP) == {"x"}
        never = RetryRules(allow=("*",), deny=(pattern,))
        assert not may_repeat(never, names_of(tool, listing), {})


@pytest.mark.parametrize(("tool", "pattern", "newcomer"), CASES)
def test_grant_of_a_name_goes_to_who_has_it(tool: str, pattern: str, newcomer: str) -> None:
    for asked, listing in ((tool, []), (tool, [newcomer]), (newcomer, [tool])):
        has_it = any(fnmatchcase(name, pattern) for name in names_of(asked, listing).current)
        assert decided(manifest_of(UP, allow=[pattern]), asked, listing, UP).granted is has_it
        is_named = decided(manifest_of(UP, allow=["*", pattern]), asked, listing, UP, DESTRUCTIVE).granted
        assert is_named is (has_it and any(map(str.isalnum, pattern)))


@pytest.mark.parametrize("pattern", ["my_up.a_b_{}", "*_{}", "a?b_{}*"])
def test_pattern_that_spells_a_suffix_means_who_could_get_it(pattern: str) -> None:
    suffix = function_names(["a-b", "a_b"])["a-b"][-4:]
    denying = manifest_of(UP, deny=[pattern.format(suffix)])
    assert [decided(denying, each, [], UP).granted for each in ("a-b", "a.b", "a_b")] == [False, True, True]
    others = where("my_up.a_b_*", "x", argument="q")
    conditional = manifest_of(UP, allow=["*", where(pattern.format(suffix), "x"), others])
    for listing in ([], ["a_b"]):
        assert met(conditional, "a-b", listing, UP) <= {"x"}
    assert [len(decided(conditional, each, [], UP).conditions) for each in ("a-b", "a.b")] == [1, 0]
