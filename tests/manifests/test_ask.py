"""Rules that ask a person: which tools they match, where they stand, and what they let through."""

import pytest

from manifests.decision import Decision, ListedTool, decide, decide_arguments, decide_fetch, unmatched_rules
from manifests.grants import Hints
from manifests.manifest import Manifest, narrowed
from manifests.names import identifier
from tests.manifests.conftest import Load, Problems

DESTRUCTIVE = Hints(destructive=True, is_silent=False)
MANIFEST = """\
upstreams:
  github: {command: x, tools: {ask: [close_issue]}}
  mail: {command: x}
capabilities:
  tools:
    ask:
      - github.merge_*
      - {annotation: open_world}
profiles:
  careful:
    tools: {ask: [mail.send]}
"""


def about(manifest: Manifest, name: str, **hints: bool) -> Decision:
    upstream, _, tool = name.partition(".")
    return decide(
        manifest,
        upstream=upstream,
        tool=tool,
        function=identifier(tool),
        hints=Hints(**hints, is_silent=False),
    )


@pytest.mark.parametrize(
    ("tool", "hints", "asks", "where"),
    [
        ("github.merge_pull", {}, "capabilities.tools.ask: github.merge_*", "portal.yaml:7:9"),
        ("github.close_issue", {}, "upstreams.github.tools.ask: close_issue", "portal.yaml:2:38"),
        ("mail.search", {"open_world": True}, "capabilities.tools.ask: open_world tools", "portal.yaml:8:9"),
        ("mail.send", {}, "profiles.careful.tools.ask: mail.send", "portal.yaml:11:19"),
        ("mail.close_issue", {}, "", ""),
        ("github.read", {"readonly": True}, "", ""),
    ],
)
def test_granted_tool_asks_by_the_rule_that_matches_it(
    load: Load, tool: str, hints: dict[str, bool], asks: str, where: str
) -> None:
    decision = about(narrowed(load(MANIFEST), "careful"), tool, **hints)
    assert (decision.verdict, decision.asks, decision.asks_where) == ("allow", asks, where)
    assert decide_arguments(load(MANIFEST), decision, {}).asks == asks


def test_rule_of_a_profile_asks_only_its_callers(load: Load) -> None:
    assert about(load(MANIFEST), "mail.send").asks == ""


def test_tool_added_later_does_not_lift_the_question(load: Load) -> None:
    manifest = load("upstreams: {up: {command: x}}\ncapabilities: {tools: {ask: [drop_table]}}\n")
    decision = decide(manifest, upstream="up", tool="drop-table", function="drop_table_1a2b", hints=Hints())
    assert decision.asks


def test_denied_tool_does_not_ask(load: Load) -> None:
    manifest = load("upstreams: {up: {command: x}}\ncapabilities: {tools: {ask: [a], deny: [a]}}\n")
    decision = about(manifest, "up.a")
    assert (decision.verdict, decision.asks) == ("deny", "")


@pytest.mark.parametrize(
    ("tools", "own", "profile", "granted"),
    [
        ("{ask: [{annotation: destructive}]}", "", "", True),
        ("{ask: ['wipe']}", "", "", True),
        ("", "{ask: ['up.*']}", "", True),
        ("{ask: ['*']}", "", "", False),
        ("{ask: [{annotation: open_world}]}", "", "", False),
        ("{allow: [read], ask: [wipe]}", "", "", False),
        ("{ask: [wipe], deny: [wipe]}", "", "", False),
        ("", "", "{ask: [wipe]}", False),
        ("{ask: [wipe]}", "", "{destructive: refuse}", False),
        ("{ask: [wipe]}", "", "{destructive: refuse, ask: ['w*']}", True),
    ],
)
def test_destructive_tool_is_granted_if_a_rule_that_asks_names_it(
    load: Load, tools: str, own: str, profile: str, granted: bool
) -> None:
    manifest = load(
        f"upstreams: {{up: {{command: x, tools: {own}}}}}\ncapabilities: {{tools: {tools}}}\n"
        f"profiles: {{p: {{tools: {profile}}}}}\n"
    )
    decision = about(narrowed(manifest, "p") if profile else manifest, "up.wipe", destructive=True)
    assert (decision.granted, bool(decision.asks)) == (granted, granted)


def test_upstream_cannot_name_its_destructive_tool_like_one_that_asks(load: Load) -> None:
    manifest = load(
        "upstreams: {mail: {command: x}, evil: {command: x}}\ncapabilities: {tools: {ask: [mail.drop]}}\n"
    )
    assert about(manifest, "mail.drop", destructive=True).granted
    assert not about(manifest, "evil.mail.drop", destructive=True).granted
    assert about(manifest, "evil.mail.drop").asks


@pytest.mark.parametrize(
    ("pattern", "asks"), [("portal.fetch", True), ("portal.*", True), ("'*'", False), ("fetch", False)]
)
def test_fetching_asks_if_a_rule_means_it(load: Load, pattern: str, asks: bool) -> None:
    network = "network: {allow: [a.example]}"
    manifest = load(f"capabilities: {{{network}, tools: {{ask: [{pattern}]}}}}\n")
    decision = decide_fetch(manifest)
    assert (decision.granted, bool(decision.asks)) == (True, asks)
    of_profile = load(f"capabilities: {{{network}}}\nprofiles: {{p: {{tools: {{ask: [{pattern}]}}}}}}\n")
    assert bool(decide_fetch(narrowed(of_profile, "p")).asks) is asks
    assert decide_fetch(of_profile).asks == ""


def test_method_of_resources_asks_like_a_tool(load: Load) -> None:
    manifest = load("upstreams: {up: {command: x}}\ncapabilities: {tools: {ask: [up.resources/read]}}\n")
    reading = Hints(readonly=True, is_silent=False)
    asks = [
        decide(manifest, upstream="up", tool=each, function=each, hints=reading).asks
        for each in ("resources/read", "resources/list")
    ]
    assert asks == ["capabilities.tools.ask: up.resources/read", ""]


def test_rule_that_asks_about_no_tool_is_reported(load: Load) -> None:
    manifest = load(
        "upstreams: {up: {command: x}}\n"
        "capabilities: {tools: {ask: [up.raed, up.read, portal.fetch, {annotation: destructive}]}}\n"
    )
    tools = [ListedTool("read", "read", Hints(), None)]
    assert [(each.column, each.key) for each in unmatched_rules(manifest, {"up": tools})] == [
        (30, "capabilities.tools.ask"),
        (62, "capabilities.tools.ask"),
    ]
    tools.append(ListedTool("raed", "raed", DESTRUCTIVE, None))
    assert [*unmatched_rules(manifest, {"up": tools})] == []


def test_rule_that_asks_takes_no_condition(problems: Problems) -> None:
    [problem] = problems("capabilities: {tools: {ask: [{tool: a, where: {b: {equals: 1}}}]}}\n")
    assert (problem.line, problem.key) == (1, "capabilities.tools.ask.0.where")
