"""May this call happen, by which rule, and where is that rule?"""

from pathlib import Path

import pytest
from hypothesis import strategies as st

from manifests.decision import Decision, ListedTool, decide, decide_fetch, unmatched_rules
from manifests.grants import Hints, ToolRules
from manifests.manifest import Manifest, narrowed
from manifests.names import identifier
from manifests.portal_manifest import Capabilities, HttpUpstream, PortalManifest
from tests.manifests.conftest import Load

NO_HINTS = Hints()

MANIFEST = """\
upstreams:
  files: {command: x}
  tickets:
    command: x
    tools: {allow: ["*"], deny: ["delete_*"]}
  time: {command: x, tools: {allow: [time_.get_*]}}
capabilities:
  tools:
    allow: ["*"]
    deny:
      - files.write_*
      - drop-*
"""


def ask(manifest: Manifest, upstream: str, tool: str) -> Decision:
    return decide(manifest, upstream=upstream, tool=tool, function=identifier(tool), hints=Hints())


def summary(decision: Decision) -> tuple[bool, str, str]:
    return decision.granted, decision.rule, decision.where


def listed(*tools: str) -> list[ListedTool]:
    return [ListedTool(tool, identifier(tool), Hints(), None) for tool in tools]


def rules(allow: list[str], deny: list[str], *upstreams: str) -> Manifest:
    tools = ToolRules(allow=tuple(allow), deny=tuple(deny))
    portal = PortalManifest(
        upstreams={name: HttpUpstream(url="http://localhost") for name in upstreams or ("files",)},
        capabilities=Capabilities(tools=tools),
    )
    return Manifest(portal, Path.cwd())


@pytest.mark.parametrize(
    ("upstream", "tool", "granted", "rule", "where"),
    [
        ("files", "read_file", True, "capabilities.tools.allow: *", "portal.yaml:9:13"),
        ("files", "write_file", False, "capabilities.tools.deny: files.write_*", "portal.yaml:11:9"),
        ("files", "write-file", False, "capabilities.tools.deny: files.write_*", "portal.yaml:11:9"),
        ("tickets", "write_file", True, "capabilities.tools.allow: *", "portal.yaml:9:13"),
        ("tickets", "delete_ticket", False, "upstreams.tickets.tools.deny: delete_*", "portal.yaml:5:34"),
        ("files", "delete_file", True, "capabilities.tools.allow: *", "portal.yaml:9:13"),
        ("files", "drop-table", False, "capabilities.tools.deny: drop-*", "portal.yaml:12:9"),
        ("files", "drop_table", True, "capabilities.tools.allow: *", "portal.yaml:9:13"),
        ("time", "get_time", True, "capabilities.tools.allow: *", "portal.yaml:9:13"),
        ("time", "set_time", False, "upstreams.time.tools.allow has no matching pattern", "portal.yaml:6:30"),
        ("mail", "send", False, "the manifest has no upstream 'mail'", "portal.yaml:1:1"),
    ],
)
def test_decision_names_its_rule_and_the_rules_place(
    load: Load, upstream: str, tool: str, granted: bool, rule: str, where: str
) -> None:
    assert summary(ask(load(MANIFEST), upstream, tool)) == (granted, rule, where)


def test_without_rules_everything_is_granted_by_default() -> None:
    portal = PortalManifest(upstreams={"files": HttpUpstream(url="http://localhost")})
    decision = ask(Manifest(portal, Path.cwd()), "files", "rm")
    assert summary(decision) == (True, "capabilities.tools.allow: *", "capabilities.tools.allow (default)")


@pytest.mark.parametrize(
    "pattern", ["read-file", "read_file", "my-files.read-file", "my_files.read_file", "read?file"]
)
def test_each_of_a_tools_names_can_be_allowed_and_denied(pattern: str) -> None:
    assert ask(rules([pattern], [], "my-files"), "my-files", "read-file").granted
    assert not ask(rules(["*"], [pattern], "my-files"), "my-files", "read-file").granted


@pytest.mark.parametrize("pattern", ["READ_file", "files.Read_*", "my_files.read-file.x", "read", ""])
def test_pattern_must_match_a_whole_name_in_its_case(pattern: str) -> None:
    assert not ask(rules([pattern] if pattern else [], [], "files"), "files", "read_file").granted


def test_upstream_cannot_let_itself_in_by_the_name_of_its_tool() -> None:
    manifest = rules(["files.*", "my.notes.*"], [], "files", "evil", "my", "my.notes")
    assert ask(manifest, "files", "read").granted
    assert ask(manifest, "my.notes", "read").granted
    assert not ask(manifest, "evil", "files.read").granted
    assert not ask(manifest, "my", "notes.read").granted


names = st.text(st.sampled_from("ab.-_*?[]!"), max_size=6)


def test_patterns_that_match_nothing_are_reported(load: Load) -> None:
    manifest = load(MANIFEST.replace("files.write_*", "file.write_*").replace("delete_*", "remove_*"))
    tools = {
        "files": listed("write_file", "drop-it"),
        "tickets": listed("delete_ticket"),
        "time": listed("get_time"),
    }
    found = [*unmatched_rules(manifest, tools)]
    assert [(p.line, p.column, p.key) for p in found] == [
        (11, 9, "capabilities.tools.deny"),
        (5, 34, "upstreams.tickets.tools.deny"),
    ]


def test_pattern_that_names_an_upstream_is_reported_also_while_another_one_is_silent(load: Load) -> None:
    rules = "{tools: {deny: [a.dlete, b.dlete, dlete]}}"
    manifest = load(f"upstreams: {{a: {{command: x}}, b: {{command: x}}}}\ncapabilities: {rules}\n")
    assert [
        str(p)[:9] for p in (each.message for each in unmatched_rules(manifest, {"a": listed("get")}))
    ] == ["'a.dlete'"]


def test_tool_that_is_named_like_one_of_another_upstream_spends_none_of_its_budget(load: Load) -> None:
    rules = "{tools: {budgets: [{tool: mail.send, calls: 1}]}}"
    manifest = load(f"upstreams: {{mail: {{command: x}}, files: {{command: x}}}}\ncapabilities: {rules}\n")
    assert ask(manifest, "mail", "send").budgets
    assert not ask(manifest, "files", "mail.send").budgets


@pytest.mark.parametrize(
    ("prefix", "is_open"),
    [
        ("https://api.example.com", True),
        ("https://api.example.com:8443", True),
        ("https://api.example.com/", False),
        ("https://api.example.com/v1", False),
        ("https://", False),
        ("reports", False),
    ],
)
def test_prefix_that_ends_within_a_host_is_reported(load: Load, prefix: str, is_open: bool) -> None:
    rule = f"{{tool: get, where: {{url: {{prefix: '{prefix}'}}}}}}"
    manifest = load(f"upstreams: {{a: {{command: x}}}}\ncapabilities: {{tools: {{allow: [{rule}]}}}}\n")
    assert [p.line for p in unmatched_rules(manifest, {"a": listed("get")})] == ([2] if is_open else [])


def of_method(manifest: Manifest, tool: str, hints: Hints = NO_HINTS) -> tuple[Decision, Decision]:
    """What is said of a tool that an upstream calls as a method, and of the method."""
    named = {"upstream": "files", "tool": tool}
    return (
        decide(manifest, **named, function=identifier(tool), hints=hints),
        decide(manifest, **named, function=tool, hints=Hints(readonly=True, is_silent=False)),
    )


@pytest.mark.parametrize(
    "pattern", ["resources/read", "files.resources/read", "resources/*", "*/read", "files.r*/*"]
)
def test_rule_for_a_method_lets_no_tool_in(pattern: str) -> None:
    tool, method = of_method(rules([pattern], []), "resources/read")
    assert (tool.granted, method.granted) == (False, True)
    assert tool.grant.startswith('Add "files.resources_read" to capabilities.tools.allow')
    assert of_method(rules(["files.resources_read"], []), "resources/read")[0].granted
    assert not any(each.granted for each in of_method(rules(["*"], [pattern]), "resources/read"))


@pytest.mark.parametrize("pattern", ["portal.fetch", "portal.*", '{tool: "portal.f*"}'])
@pytest.mark.parametrize("profile", [False, True])
def test_deny_and_budget_of_the_portals_fetch_hold_for_it(load: Load, pattern: str, profile: bool) -> None:
    def of(deny: str, budget: str = "") -> Manifest:
        rules = f"{{tools: {{deny: [{deny}], budgets: [{budget}]}}%s}}"
        network = ", network: {allow: [a.example]}"
        text = f"upstreams: {{files: {{command: x}}}}\ncapabilities: {rules % network}\n"
        if profile:
            text = f"upstreams: {{files: {{command: x}}}}\ncapabilities: {{{network[2:]}}}\n"
            text += f"profiles: {{r: {rules % ''}}}\n"
        return narrowed(load(text), "r") if profile else load(text)

    refused = decide_fetch(of(pattern))
    assert (refused.granted, refused.where.split(":")[:2]) == (
        False,
        ["portal.yaml", "3" if profile else "2"],
    )
    assert [*unmatched_rules(of(pattern), {"files": []})] == []
    budget = f"{{tool: {pattern}, calls: 1}}" if "{" not in pattern else "{tool: portal.fetch, calls: 1}"
    granted = decide_fetch(of('"*", fetch', budget))
    assert granted.granted and [each.calls for each in granted.budgets] == [1]
