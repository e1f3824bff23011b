"""Tools that an upstream adds or takes away change the names of others: no restriction falls with a name, and no grant
goes along with one.
"""

from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from manifests.decision import Decision, decide, decide_arguments
from manifests.grants import Hints, ToolRules
from manifests.json_value import Json
from manifests.manifest import Manifest
from manifests.names import ToolNames, function_names
from manifests.portal_manifest import Capabilities, HttpUpstream, PortalManifest, RetryRules, may_repeat

NO_HINTS = Hints()

DESTRUCTIVE = Hints(destructive=True, is_silent=False)


def manifest_of(**rules: Json) -> Manifest:
    portal = PortalManifest(
        upstreams={"my-up": HttpUpstream(url="http://localhost")},
        capabilities=Capabilities(tools=ToolRules.model_validate(rules)),
    )
    return Manifest(portal, Path.cwd())


def ask(manifest: Manifest, tool: str, listing: list[str], hints: Hints = NO_HINTS) -> Decision:
    function = names_of(tool, listing).function
    return decide(manifest, upstream="my-up", tool=tool, function=function, hints=hints)


def names_of(tool: str, listing: list[str]) -> ToolNames:
    return ToolNames("my-up", "my_up", tool, function_names([tool, *listing])[tool])


def met(manifest: Manifest, tool: str, listing: list[str]) -> set[str]:
    """The arguments with which a tool may be called beside others."""
    decision = ask(manifest, tool, listing)
    if not decision.granted:
        return set()
    return {word for word in "xyz" if decide_arguments(manifest, decision, {"p": word}).granted}


CASES = [
    # the tool, its pattern, and the newcomer that takes its name
    ("a-b", "my_up.a_b", "a_b"),
    ("a-b", "my-up.a-b", "a_b"),
    ("a-b", "a_*", "a_b"),
    ("class", "class_", "class_"),
    ("\u00c9", "*._", "_"),
]


@pytest.mark.parametrize(("tool", "pattern", "newcomer"), CASES)
def test_no_restriction_falls_with_a_name(tool: str, pattern: str, newcomer: str) -> None:
    condition: Json = {"tool": pattern, "where": {"p": {"equals": "x"}}}
    for listing in ([], [newcomer]):
        assert not ask(manifest_of(deny=[pattern]), tool, listing).granted
        assert ask(manifest_of(budgets=[{"tool": pattern, "calls": 1}]), tool, listing).budgets
        assert met(manifest_of(allow=["*", condition]), tool, listing) == {"x"}
        never = RetryRules(allow=("*",), deny=(pattern,))
        assert not may_repeat(never, names_of(tool, listing), {})


@pytest.mark.parametrize(("tool", "pattern", "newcomer"), CASES)
def test_grant_of_a_name_goes_to_who_has_it(tool: str, pattern: str, newcomer: str) -> None:
    for asked, listing in ((tool, []), (tool, [newcomer]), (newcomer, [tool])):
        has_it = any(fnmatchcase(name, pattern) for name in names_of(asked, listing).current)
        assert ask(manifest_of(allow=[pattern]), asked, listing).granted is has_it
        is_named = ask(manifest_of(allow=["*", pattern]), asked, listing, DESTRUCTIVE).granted
        assert is_named is (has_it and any(map(str.isalnum, pattern)))


@pytest.mark.parametrize("pattern", ["my_up.a_b_{}", "*_{}", "a?b_{}*"])
def test_pattern_that_spells_a_suffix_means_who_could_get_it(pattern: str) -> None:
    suffixed = function_names(["a-b", "a_b"])["a-b"]
    manifest = manifest_of(deny=[pattern.format(suffixed[-4:])])
    assert not ask(manifest, "a-b", []).granted
    assert ask(manifest, "a.b", []).granted and ask(manifest, "a_b", []).granted
    condition: Json = {"tool": pattern.format(suffixed[-4:]), "where": {"p": {"equals": "x"}}}
    conditional = manifest_of(
        allow=["*", condition, {"tool": "my_up.a_b_*", "where": {"q": {"equals": "x"}}}]
    )
    for listing in ([], ["a_b"]):
        assert not decide_arguments(conditional, ask(conditional, "a-b", listing), {"p": "y"}).granted
    assert len(ask(conditional, "a-b", []).conditions) == 1 and not ask(conditional, "a.b", []).conditions
