"""May this call happen, by which rule, and where is that rule?"""

import pytest

from manifests.decision import decide, decide_fetch, unmatched_rules
from manifests.grants import Hints
from manifests.json_value import Json
from manifests.manifest import Manifest, narrowed
from tests.manifests.conftest import DESTRUCTIVE, OPEN_WORLD, READ_ONLY, Load, ask, listed

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


@pytest.mark.parametrize(
    ("tool", "granted", "rule", "where"),
    [
        ("files.read_file", True, "capabilities.tools.allow: *", "portal.yaml:9:13"),
        ("files.write_file", False, "capabilities.tools.deny: files.write_*", "portal.yaml:11:9"),
        ("files.write-file", False, "capabilities.tools.deny: files.write_*", "portal.yaml:11:9"),
        ("tickets.write_file", True, "capabilities.tools.allow: *", "portal.yaml:9:13"),
        ("tickets.delete_ticket", False, "upstreams.tickets.tools.deny: delete_*", "portal.yaml:5:34"),
        ("files.drop-table", False, "capabilities.tools.deny: drop-*", "portal.yaml:12:9"),
        ("files.drop_table", True, "capabilities.tools.allow: *", "portal.yaml:9:13"),
        ("time.get_time", True, "capabilities.tools.allow: *", "portal.yaml:9:13"),
        ("time.set_time", False, "upstreams.time.tools.allow has no matching pattern", "portal.yaml:6:30"),
        ("mail.send", False, "the manifest has no upstream 'mail'", "portal.yaml:1:1"),
    ],
)
def test_decision_names_its_rule_and_place(
    load: Load, tool: str, granted: bool, rule: str, where: str
) -> None:
    decision = ask(load(MANIFEST), tool)
    assert (decision.granted, decision.rule, decision.where) == (granted, rule, where)


def test_without_rules_everything_is_granted_by_default(rules: Load) -> None:
    assert ask(rules(), "files.rm").where == "capabilities.tools.allow (default)"


@pytest.mark.parametrize(
    "pattern", ["read-file", "read_file", "my-files.read-file", "my_files.read_file", "read?file"]
)
def test_each_of_a_tools_names_can_be_allowed_and_denied(load: Load, pattern: str) -> None:
    text = "upstreams: {my-files: {command: x}}\ncapabilities: {tools: {%s: ['%s']}}\n"
    assert ask(load(text % ("allow", pattern)), "my-files.read-file").granted
    assert not ask(load(text % ("deny", pattern)), "my-files.read-file").granted


@pytest.mark.parametrize("pattern", ["'READ_file'", "'files.Read_*'", "files.read-file.x", "read", ""])
def test_pattern_must_match_a_whole_name_in_its_case(rules: Load, pattern: str) -> None:
    assert not ask(rules(f"{{allow: [{pattern}]}}"), "files.read_file").granted


def test_upstream_neither_lets_itself_in_nor_spends_a_budget_by_the_name_of_its_tool(load: Load) -> None:
    upstreams = "files: {command: x}, evil: {command: x}, my: {command: x}, my.notes: {command: x}"
    rules = "allow: ['files.*', 'my.notes.*', '*.spend'], budgets: [{tool: files.spend, calls: 1}]"
    manifest = load(f"upstreams: {{{upstreams}}}\ncapabilities: {{tools: {{{rules}}}}}\n")
    assert ask(manifest, "files.read").granted
    assert decide(manifest, upstream="my.notes", tool="read", function="read", hints=Hints()).granted
    assert not ask(manifest, "evil.files.read").granted
    assert not ask(manifest, "my.notes.read").granted
    assert ask(manifest, "files.spend").budgets
    decision = ask(manifest, "evil.files.spend")
    assert decision.granted and not decision.budgets


def test_patterns_that_match_nothing_are_reported(load: Load) -> None:
    manifest = load(MANIFEST.replace("files.write_*", "file.write_*").replace("delete_*", "remove_*"))
    found = listed("write_file", "drop-it"), listed("delete_ticket"), listed("get_time")
    problems = unmatched_rules(manifest, dict(zip(("files", "tickets", "time"), found, strict=True)))
    assert [(p.line, p.column, p.key) for p in problems] == [
        (11, 9, "capabilities.tools.deny"),
        (5, 34, "upstreams.tickets.tools.deny"),
    ]


def test_pattern_that_names_an_upstream_is_reported_also_while_another_one_is_silent(load: Load) -> None:
    denied = "{tools: {deny: [a.dlete, b.dlete, dlete]}}"
    manifest = load(f"upstreams: {{a: {{command: x}}, b: {{command: x}}}}\ncapabilities: {denied}\n")
    (problem,) = unmatched_rules(manifest, {"a": listed("get")})
    assert problem.message.startswith("'a.dlete'")


@pytest.mark.parametrize(("prefix", "is_open"), [
    ("https://api.example.com", True), ("https://api.example.com:8443", True),
    ("https://api.example.com/", False), ("https://", False), ("reports", False),
])  # fmt: skip
def test_prefix_that_ends_within_a_host_is_reported(rules: Load, prefix: str, is_open: bool) -> None:
    manifest = rules(f"{{allow: [{{tool: get, where: {{url: {{prefix: '{prefix}'}}}}}}]}}")
    assert [p.line for p in unmatched_rules(manifest, {"files": listed("get")})] == ([2] if is_open else [])


@pytest.mark.parametrize("pattern", ["resources/read", "files.resources/read", "resources/*", "*/read"])
def test_rule_for_a_method_lets_no_tool_in(rules: Load, pattern: str) -> None:
    def method(manifest: Manifest) -> bool:
        name = "resources/read"
        return decide(
            manifest, upstream="files", tool=name, function=name, hints=Hints(readonly=True)
        ).granted

    allowing, denying = rules(f"{{allow: ['{pattern}']}}"), rules(f"{{deny: ['{pattern}']}}")
    tool = ask(allowing, "files.resources/read")
    assert (tool.granted, method(allowing), method(denying)) == (False, True, False)
    assert tool.grant.startswith('Add "files.resources_read" to capabilities.tools.allow')
    assert ask(rules("{allow: [files.resources_read]}"), "files.resources/read").granted
    assert not ask(denying, "files.resources/read").granted


@pytest.mark.parametrize("pattern", ["portal.fetch", "portal.*", '{tool: "portal.f*"}'])
@pytest.mark.parametrize("section", ["capabilities", "profile"])
def test_deny_ask_and_budget_of_the_portals_fetch_hold_for_it(load: Load, pattern: str, section: str) -> None:
    def of(deny: str, budget: str = "", ask: str = "", *, is_narrowed: bool = True) -> Manifest:
        tools = f"tools: {{deny: [{deny}], ask: [{ask}], budgets: [{budget}]}}"
        text = "upstreams: {files: {command: x}}\ncapabilities: {network: {allow: [a.example]}"
        if section == "profile":
            manifest = load(f"{text}}}\nprofiles: {{r: {{{tools}}}}}\n")
            return narrowed(manifest, "r") if is_narrowed else manifest
        return load(f"{text},\n  {tools}}}\n")

    refused = decide_fetch(of(pattern))
    assert (refused.granted, refused.where.rpartition(":")[0]) == (False, "portal.yaml:3")
    assert [*unmatched_rules(of(pattern), {"files": []})] == []
    budget = f"{{tool: {pattern}, calls: 1}}" if "{" not in pattern else "{tool: portal.fetch, calls: 1}"
    granted = decide_fetch(of('"*", fetch', budget, ask='"*", fetch'))
    assert (granted.granted, granted.asks, [each.calls for each in granted.budgets]) == (True, "", [1])
    asking = decide_fetch(of("", ask=pattern))
    assert asking.granted and asking.asks
    assert bool(decide_fetch(of("", ask=pattern, is_narrowed=False)).asks) is (section == "capabilities")


@pytest.mark.parametrize(("annotations", "granted"), [
    ({}, True), ({"destructiveHint": False}, True), ({"destructiveHint": None}, True),
    ({"destructiveHint": "true"}, False), ({"destructiveHint": 0}, False), (DESTRUCTIVE, False),
    ({**DESTRUCTIVE, **READ_ONLY}, False),
])  # fmt: skip
def test_tool_that_calls_itself_destructive_is_refused(rules: Load, annotations: Json, granted: bool) -> None:
    assert ask(rules(), "files.delete_file", annotations).granted is granted


@pytest.mark.parametrize("allow", [
    "files.delete_file", "'files.*'", "'*_file'", "'[d]elete*'", "{annotation: destructive}",
    "{tool: 'files.*', annotation: destructive}", "{tool: delete_file, where: {path: {prefix: tmp/}}}",
])  # fmt: skip
def test_pattern_with_a_letter_of_its_own_names_the_tool(rules: Load, allow: str) -> None:
    assert ask(rules(f"{{allow: [{allow}]}}"), "files.delete_file", DESTRUCTIVE).granted


@pytest.mark.parametrize(
    ("tools", "own", "granted"),
    [
        ("{destructive: allow}", "", True),
        ("{destructive: refuse}", "", False),
        ("", "{destructive: allow}", True),
        ("{destructive: allow}", "{destructive: refuse}", False),
        ("{destructive: refuse}", "{destructive: allow}", True),
        ("{destructive: allow, deny: ['delete_*']}", "", False),
    ],
)
def test_manifest_may_allow_or_refuse_all_of_them(rules: Load, tools: str, own: str, granted: bool) -> None:
    assert ask(rules(tools, own), "files.delete_file", DESTRUCTIVE).granted is granted


def test_refusal_of_a_destructive_tool_says_what_to_write(rules: Load) -> None:
    bare = ask(rules(), "files.delete_file", DESTRUCTIVE)
    assert 'write capabilities.tools.allow: ["*", "files.delete_file"]' in bare.grant
    assert "capabilities.tools.destructive: allow" in bare.grant
    by_star = ask(rules("{allow: ['*']}"), "files.delete_file", DESTRUCTIVE)
    assert 'add "files.delete_file" to capabilities.tools.allow' in by_star.grant
    assert by_star.where == "portal.yaml:2:24"


@pytest.mark.parametrize(
    ("tools", "is_shown"),
    [
        ("", True),
        ("{deny: [delete_file]}", False),
        ("{deny: [{annotation: destructive}]}", False),
        ("{allow: [{annotation: readonly}]}", False),
    ],
)
def test_explicit_deny_hides_and_the_default_shows(rules: Load, tools: str, is_shown: bool) -> None:
    assert ask(rules(tools), "files.delete_file", DESTRUCTIVE).is_shown is is_shown


@pytest.mark.parametrize(
    ("tools", "annotations", "granted"),
    [
        ("{allow: [{annotation: readonly}]}", READ_ONLY, True),
        ("{allow: [{annotation: readonly}]}", {}, False),
        ("{allow: [{annotation: readonly}]}", {**READ_ONLY, **DESTRUCTIVE}, False),
        ("{deny: [{annotation: open_world}]}", OPEN_WORLD, False),
        ("{deny: [{annotation: open_world}]}", {}, True),
        ("{deny: [{tool: 'files.*', annotation: open_world}]}", OPEN_WORLD, False),
    ],
)
def test_annotations_allow_and_deny(rules: Load, tools: str, annotations: Json, granted: bool) -> None:
    assert ask(rules(tools), "files.get", annotations).granted is granted
