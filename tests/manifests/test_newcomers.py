"""Tools that an upstream adds or takes away change the names of others: no restriction falls with a name, and no grant
goes along with one.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.decision import Decision, decide, decide_arguments
from manifests.json_value import Json
from manifests.manifest import Manifest
from manifests.names import SUFFIX, function_names, identifier, name_hash
from manifests.portal_manifest import Capabilities, PortalManifest
from manifests.rule_slips import ListedTool, unmatched_rules
from manifests.tool_names import ToolNames
from manifests.tool_rules import NO_HINTS, Hints, ToolRules
from manifests.upstream_sections import HttpUpstream, RetryRules, may_repeat
from tests.manifests.conftest import Load

DESTRUCTIVE = Hints(destructive=True, is_silent=False)

FAMILIES = [
    ["a-b", "a.b", "a_b"],
    ["class", "class_"],
    ["__a__", "__a___"],
    ["\u00c9", "E\u0301", "\u00c8"],
    ["A-b", "a-b", "A_b"],
    ["a b" * 100, "a-b" * 100],
]


@dataclass(frozen=True)
class Family:
    """Tools whose functions take each other's names, and what a rule may call them."""

    tools: list[str]
    functions: list[str]

    @classmethod
    def of(cls, tools: list[str]) -> "Family":
        """Also with tools that are called as the functions of these are, when they are listed together."""
        together = function_names(tools)
        tools = [*dict.fromkeys([*tools, *together.values()])]
        functions = {*function_names(tools).values(), *together.values(), *map(identifier, tools)}
        return cls(tools, sorted(functions))

    @property
    def a_tool(self) -> st.SearchStrategy[str]:
        return st.sampled_from(self.tools)

    @property
    def a_listing(self) -> st.SearchStrategy[list[str]]:
        return st.lists(self.a_tool, unique=True)

    @property
    def a_pattern(self) -> st.SearchStrategy[str]:
        return self.a_spelled_pattern | self.a_wild_pattern

    @property
    def a_wild_pattern(self) -> st.SearchStrategy[str]:
        """Of which no wildcard leaves the end of a name to be spelled."""
        wild = [f"{name[:-1]}?" for name in self.functions] + [f"*{name[1:]}_*" for name in self.functions]
        return st.sampled_from([each for each in wild if not SUFFIX.search(each)])

    @property
    def a_spelled_pattern(self) -> st.SearchStrategy[str]:
        """Without a wildcard in what it calls a tool."""
        behind = [f"my-up.{tool}" for tool in self.tools] + [f"my_up.{name}" for name in self.functions]
        wild = [f"*.{name}" for name in self.functions] + [
            f"{name}*" for name in self.functions if SUFFIX.search(name)
        ]
        return st.sampled_from([*self.tools, *self.functions, *behind, *wild])

    @property
    def conditions(self) -> st.SearchStrategy[list[Json]]:
        rule = st.tuples(self.a_pattern, st.sampled_from("xyz"))
        return st.lists(
            rule.map(lambda each: {"tool": each[0], "where": {"p": {"equals": each[1]}}}), max_size=3
        )


families = st.sampled_from([*map(Family.of, FAMILIES)])


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


@given(st.data(), families)
def test_denied_tool_stays_denied(data: st.DataObject, family: Family) -> None:
    tool, before, after = (data.draw(each) for each in (family.a_tool, family.a_listing, family.a_listing))
    manifest = manifest_of(deny=[data.draw(family.a_spelled_pattern)])
    assert ask(manifest, tool, before).granted is ask(manifest, tool, after).granted


@given(st.data(), families)
def test_budget_counts_a_tool_under_all_its_names(data: st.DataObject, family: Family) -> None:
    tool, before, after = (data.draw(each) for each in (family.a_tool, family.a_listing, family.a_listing))
    manifest = manifest_of(budgets=[{"tool": data.draw(family.a_spelled_pattern), "calls": 1}])
    assert len(ask(manifest, tool, before).budgets) == len(ask(manifest, tool, after).budgets)


@given(st.data(), families)
def test_wildcard_restricts_by_the_names_that_are_the_tools_own_and_by_that_of_the_moment(
    data: st.DataObject, family: Family
) -> None:
    tool, listing, pattern = (
        data.draw(each) for each in (family.a_tool, family.a_listing, family.a_wild_pattern)
    )
    names = names_of(tool, listing)
    means = any(
        fnmatchcase(name, pattern) for name in (*names.now, identifier(tool), f"my_up.{identifier(tool)}")
    )
    assert ask(manifest_of(deny=[pattern]), tool, listing).granted is not means
    assert bool(ask(manifest_of(budgets=[{"tool": pattern, "calls": 1}]), tool, listing).budgets) is means
    assert may_repeat(RetryRules(deny=(pattern,)), names, {"readOnlyHint": True}) is not means
    refused = met(manifest_of(allow=["*", {"tool": pattern, "where": {"p": {"equals": "x"}}}]), tool, listing)
    assert (refused == {"x"}) is means


@given(st.data(), families)
def test_what_conditions_refuse_of_a_tool_alone_they_refuse_beside_others(
    data: st.DataObject, family: Family
) -> None:
    tool, listing = data.draw(family.a_tool), data.draw(family.a_listing)
    manifest = manifest_of(allow=["*", *data.draw(family.conditions)])
    assert met(manifest, tool, listing) <= met(manifest, tool, [])


@given(st.data(), families)
def test_conditions_of_other_names_never_widen_those_of_its_own(data: st.DataObject, family: Family) -> None:
    tool, listing, rules = (data.draw(each) for each in (family.a_tool, family.a_listing, family.conditions))
    names = names_of(tool, listing).now
    own = [each for each in rules if any(fnmatchcase(name, each["tool"]) for name in names)]
    wanted = met(manifest_of(allow=["*", *own]), tool, listing)
    assert met(manifest_of(allow=["*", *rules]), tool, listing) <= wanted


@given(st.data(), families)
def test_grant_of_a_name_goes_to_who_has_it(data: st.DataObject, family: Family) -> None:
    tool, listing, pattern = (data.draw(each) for each in (family.a_tool, family.a_listing, family.a_pattern))
    has_it = any(fnmatchcase(name, pattern) for name in names_of(tool, listing).now)
    assert ask(manifest_of(allow=[pattern]), tool, listing).granted is has_it
    is_named = ask(manifest_of(allow=["*", pattern]), tool, listing, DESTRUCTIVE).granted
    assert is_named is (has_it and any(map(str.isalnum, pattern)))


@given(st.data(), families)
def test_what_is_never_repeated_stays_so(data: st.DataObject, family: Family) -> None:
    tool, before, after = (data.draw(each) for each in (family.a_tool, family.a_listing, family.a_listing))
    pattern = data.draw(family.a_pattern)
    never = RetryRules(allow=("*",), deny=(data.draw(family.a_spelled_pattern),))
    assert may_repeat(never, names_of(tool, before), {}) is may_repeat(never, names_of(tool, after), {})
    now = names_of(tool, after)
    has_it = any(fnmatchcase(name, pattern) for name in now.now)
    assert may_repeat(RetryRules(allow=(pattern,)), now, {}) is has_it


def test_refusal_by_another_name_tells_the_name() -> None:
    manifest = manifest_of(deny=["my-up.a?b", "my_up.c_d"])
    assert "by my_up.c_d," in ask(manifest, "c-d", ["c_d"]).grant
    for tool, listing in (("c-d", []), ("c_d", ["c-d"]), ("a-b", ["a_b"])):
        assert "could be called" not in ask(manifest, tool, listing).grant


LINEAR = ["get-issue", "get-issue-comments", "list-issues", "list-issue-labels"]


def test_wildcard_takes_no_tool_by_a_suffix_that_nobody_wrote() -> None:
    """The rules are for tools with longer names, and none of these has a suffix."""
    condition: Json = {"tool": "my_up.get_issue_*", "where": {"p": {"equals": "x"}}}
    denies = manifest_of(deny=["my_up.get_issue_*"])
    conditional = manifest_of(allow=["*", condition], budgets=[{"tool": "my_up.list_*_*", "calls": 1}])
    assert [ask(denies, tool, LINEAR).granted for tool in LINEAR] == [True, False, True, True]
    assert [len(ask(conditional, tool, LINEAR).conditions) for tool in LINEAR] == [0, 1, 0, 0]
    assert [len(ask(conditional, tool, LINEAR).budgets) for tool in LINEAR] == [0, 0, 0, 1]
    # The harmless twin: a suffix of the moment is a name as any other.
    assert not ask(denies, "get-issue", ["get_issue"]).granted


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


@pytest.mark.parametrize("first", ["my_up.a_b", "my-up.a-b", "a-b"])
@pytest.mark.parametrize("second", ["my_up.a*", "my_up.a_b", "my-up.a-b"])
def test_either_of_two_conditions_is_enough_for_a_tool_whose_name_needs_a_change(
    first: str, second: str
) -> None:
    rules: list[Json] = [
        {"tool": first, "where": {"p": {"equals": "x"}}},
        {"tool": second, "where": {"p": {"equals": "y"}}},
    ]
    assert met(manifest_of(allow=rules), "a-b", []) == {"x", "y"}


def test_rule_of_a_cut_name_holds_of_the_tool_that_is_called_as_its_own_next_name() -> None:
    starts = (f"x{n}_{'x' * 200}"[:195] for n in count())
    start = next(each for each in starts if name_hash(f"{each}_abcd_abcd") == "abcd")
    tool, plain = f"{start}_abcd_abcd", f"{start}_abcd"
    assert identifier(tool) == plain and function_names([tool, plain])[tool] == tool
    manifest = manifest_of(deny=[f"my_up.{plain}"])
    assert not ask(manifest, tool, []).granted and not ask(manifest, tool, [plain]).granted


@pytest.mark.parametrize("pattern", ["up.a_b", "a_b_*", "up.a_b_c"])
def test_method_has_no_other_names(load: Load, pattern: str) -> None:
    manifest = load(f"upstreams: {{up: {{command: x}}}}\ncapabilities: {{tools: {{deny: ['{pattern}']}}}}\n")
    assert decide(manifest, upstream="up", tool="a/b", function="a/b", hints=NO_HINTS).granted


def test_rule_of_a_name_that_a_newcomer_took_is_not_said_to_mean_nothing(load: Load) -> None:
    manifest = load(
        "upstreams: {up: {command: x, retries: {deny: [up.a_b]}}}\n"
        "capabilities:\n"
        "  tools:\n"
        "    allow: ['*', up.a_b, {tool: up.a_b, where: {p: {equals: x}}}]\n"
        "    deny: [up.a_b]\n"
        "    budgets: [{tool: up.a_b, calls: 1}]\n"
    )
    names = function_names(["a-b", "a.b"])
    listed = [ListedTool(tool, function, NO_HINTS, None) for tool, function in names.items()]
    assert [(each.key, each.column) for each in unmatched_rules(manifest, {"up": listed})] == [
        ("capabilities.tools.allow", 18)
    ]
