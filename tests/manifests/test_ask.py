"""Rules that ask a person: which tools they match, where they stand, and what they let through."""

import pytest

from manifests.decision import ListedTool, decide, decide_arguments, unmatched_rules
from manifests.grants import Hints
from manifests.json_value import Json
from manifests.manifest import narrowed
from tests.manifests.conftest import DESTRUCTIVE, OPEN_WORLD, READ_ONLY, Load, ask, listed

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


@pytest.mark.parametrize(
    ("tool", "annotations", "asks", "where"),
    [
        ("github.merge_pull", {}, "capabilities.tools.ask: github.merge_*", "portal.yaml:7:9"),
        ("github.close_issue", {}, "upstreams.github.tools.ask: close_issue", "portal.yaml:2:38"),
        ("mail.search", OPEN_WORLD, "capabilities.tools.ask: open_world tools", "portal.yaml:8:9"),
        ("mail.send", {}, "profiles.careful.tools.ask: mail.send", "portal.yaml:11:19"),
        ("mail.close_issue", {}, "", ""),
        ("github.read", READ_ONLY, "", ""),
    ],
)
def test_tool_asks_by_the_rule_that_matches_it(
    load: Load, tool: str, annotations: Json, asks: str, where: str
) -> None:
    decision = ask(narrowed(load(MANIFEST), "careful"), tool, annotations)
    assert (decision.verdict, decision.asks, decision.asks_where) == ("allow", asks, where)
    assert decide_arguments(load(MANIFEST), decision, {}).asks == asks
    of_all = "" if asks.startswith("profiles") else asks
    assert ask(load(MANIFEST), tool, annotations).asks == of_all, "a rule of a profile asks only its callers"


def test_denied_tool_does_not_ask(rules: Load) -> None:
    decision = ask(rules("{ask: [a], deny: [a]}"), "files.a")
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
    decision = ask(narrowed(manifest, "p") if profile else manifest, "up.wipe", DESTRUCTIVE)
    assert (decision.granted, bool(decision.asks)) == (granted, granted)


def test_upstream_cannot_name_its_destructive_tool_like_one_that_asks(load: Load) -> None:
    asking = "capabilities: {tools: {ask: [mail.drop]}}"
    manifest = load(f"upstreams: {{mail: {{command: x}}, evil: {{command: x}}}}\n{asking}\n")
    assert ask(manifest, "mail.drop", DESTRUCTIVE).granted
    assert not ask(manifest, "evil.mail.drop", DESTRUCTIVE).granted
    assert ask(manifest, "evil.mail.drop").asks


def test_method_of_resources_asks_like_a_tool(rules: Load) -> None:
    manifest, reading = rules("{ask: [files.resources/read]}"), Hints(readonly=True, is_silent=False)
    for name, asks in (
        ("resources/read", "capabilities.tools.ask: files.resources/read"),
        ("resources/list", ""),
    ):
        assert decide(manifest, upstream="files", tool=name, function=name, hints=reading).asks == asks


def test_rule_that_asks_about_no_tool_is_reported(rules: Load) -> None:
    manifest = rules("{ask: [files.raed, files.read, portal.fetch, {annotation: destructive}]}")
    tools = listed("read")
    found = [(each.column, each.key) for each in unmatched_rules(manifest, {"files": tools})]
    assert found == [(30, "capabilities.tools.ask"), (68, "capabilities.tools.ask")]
    tools.append(ListedTool("raed", "raed", Hints(destructive=True), None))
    assert not [*unmatched_rules(manifest, {"files": tools})]
