"""Conditions on arguments: what meets them, and what must not slip through."""

import pytest

from manifests.decision import Decision, decide, decide_arguments
from manifests.grants import Hints
from manifests.json_value import Json
from manifests.manifest import Manifest
from tests.manifests.conftest import Load, Problems


def manifest_of(load: Load, *rules: str) -> Manifest:
    items = ", ".join(rules)
    return load(f"upstreams: {{files: {{command: x}}}}\ncapabilities: {{tools: {{allow: [{items}]}}}}\n")


def ask(manifest: Manifest, arguments: Json) -> Decision:
    tool = decide(manifest, upstream="files", tool="write", function="write", hints=Hints())
    return decide_arguments(manifest, tool, arguments) if tool.granted else tool


def meets(load: Load, where: str, value: Json) -> bool:
    return ask(manifest_of(load, f"{{tool: write, where: {{path: {where}}}}}"), {"path": value}).granted


@pytest.mark.parametrize(
    "path",
    [
        "reports/x",
        "reports/",
        "reports/..x",
        "reports/ü%20",
        "reports/x?y=..",
        "reports/100%use",
        "reports/" + "a" * 4_000,
        "reports/%",
        "reports/100\uff05",
    ],
)
def test_value_below_the_prefix_is_granted(load: Load, path: str) -> None:
    assert meets(load, "{prefix: reports/}", path)


@pytest.mark.parametrize(
    "path",
    [
        "x",
        "",
        "Reports/x",
        "/reports/x",
        "./reports/x",
        "reports/../x",
        "reports/./x",
        "reports//x",
        "reports/%2e%2e/x",
        "reports/..%2f\u0307x",  # a slash and a mark, or a letter with a dot
        "reports/" + "\u0301\u0316" * 16,
        "reports/%252e%252e/x",
        "reports/..\\x",
        "reports/x\\..\\..\\y",
        "reports/..;/x",
        "reports/..;a=b/x",
        "reports/.. /x",
        "reports/..\t/x",
        "reports/..\u200b/x",
        "reports/\uff0e\uff0e/x",
        "reports/\u2025/x",
        "reports/..\u2215x",
        "reports/..\x00/x",
        "reports/..?x",
        "reports/%u002e%u002e/x",
        "reports/%EF%BC%852e%EF%BC%852e/x",
        "reports/%c0%ae%c0%ae/x",
        "reports/" + "a" * 5_000,
        "reports/%252541" + "\ufdfa" * 1_000,
        5,
        None,
        True,
        ["reports/x"],
        {"prefix": "reports/"},
    ],
    ids=repr,
)
def test_value_that_leads_elsewhere_is_refused(load: Load, path: Json) -> None:
    assert not meets(load, "{prefix: reports/}", path)


@pytest.mark.parametrize("url", ["https://a.example/x", "https://a.example/x?y=1", "https://a.example/"])
def test_prefix_of_a_url_has_its_two_slashes(load: Load, url: str) -> None:
    assert meets(load, "{prefix: 'https://a.example/'}", url)


@pytest.mark.parametrize(
    "url",
    [
        "https://a.example/../x",
        "https://a.example/..?x=1",
        "https://a.example/..#x",
        "https://a.example//x",
        "https://a.example.evil/x",
        "https://a.example@e/x",
    ],
)
def test_url_that_leads_elsewhere_is_refused(load: Load, url: str) -> None:
    assert not meets(load, "{prefix: 'https://a.example/'}", url)


@pytest.mark.parametrize(
    ("where", "right", "wrong"),
    [
        ("{equals: main}", "main", "Main"),
        ("{equals: 1}", 1, True),
        ("{equals: true}", True, 1),
        ("{one_of: [a, b]}", "b", "c"),
        ("{one_of: [1, 2]}", 2, True),
        ("{suffix: .md}", "a.md", "a.md\x00.sh"),
        ("{suffix: .md}", "b.md", "a.sh%00.md"),
        ("{suffix: '@example.com'}", "a b@example.com", "evil@x.com\n@example.com"),
        ("{suffix: '@example.com'}", "a@example.com", "evil@x.com\t@example.com"),
        ("{suffix: '@example.com'}", "a.b+c@example.com", "a@evil.com,b@example.com"),
        ("{suffix: '@example.com'}", "a@example.com", "root;b@example.com"),
        ("{suffix: '@example.com'}", "a@example.com", "root%2Cb@example.com"),
        ("{suffix: '@example.com'}", "a@example.com", "root%2c\u0327b@example.com"),
        ("{suffix: .md}", "a, b; c@d@e.md", "a, b; c@d@e"),
        ("{suffix: .example.com}", "a.b.example.com", "evil.example#.example.com"),
        ("{suffix: .example.com}", "a.b.example.com", "evil.example?.example.com"),
        ("{suffix: .example.com}", "a.b.example.com", "evil.example%23.example.com"),
        ("{prefix: 'Dear '}", "Dear Ada,\n\nhello", "Hello\n"),
        ("{min: 1}", 1, 0),
        ("{max: 10}", 10, 11),
        ("{min: 1, max: 10}", 5, 50),
        ("{max: 9007199254740992}", 9007199254740992, 9007199254740993),
    ],
)
def test_comparison(load: Load, where: str, right: Json, wrong: Json) -> None:
    assert meets(load, where, right)
    assert not meets(load, where, wrong)


def test_argument_that_is_missing_is_refused_whatever_the_tool_would_take(load: Load) -> None:
    decision = ask(manifest_of(load, "{tool: write, where: {path: {prefix: reports/}}}"), {})
    assert (decision.verdict, decision.where) == ("deny", "portal.yaml:2:32")
    assert "path is missing" in decision.reason


def test_rule_without_a_condition_does_not_lift_one(load: Load) -> None:
    rule = "{tool: write, where: {path: {prefix: reports/}}}"
    for others in (("'*'",), ("write",), ("files.write", "'*'")):
        manifest = manifest_of(load, *others, rule)
        assert not ask(manifest, {"path": "x"}).granted
        assert ask(manifest, {"path": "reports/x"}).granted


def test_one_of_several_conditions_is_enough(load: Load) -> None:
    rule = "{{tool: write, where: {{path: {{prefix: {}/}}}}}}"
    manifest = manifest_of(load, rule.format("a"), rule.format("b"))
    assert ask(manifest, {"path": "a/x"}).granted and ask(manifest, {"path": "b/x"}).granted
    assert not ask(manifest, {"path": "c/x"}).granted


def test_conditions_of_capabilities_and_of_the_upstream_must_both_be_met(load: Load) -> None:
    manifest = load(
        "upstreams: {files: {command: x, tools: {allow: [{tool: write, where: {n: {max: 5}}}]}}}\n"
        "capabilities: {tools: {allow: ['*', {tool: write, where: {path: {prefix: a/}}}]}}\n"
    )
    assert ask(manifest, {"path": "a/x", "n": 5}).granted
    assert not ask(manifest, {"path": "a/x", "n": 6}).granted
    assert not ask(manifest, {"path": "b/x", "n": 5}).granted


def test_schema_is_a_condition(load: Load) -> None:
    schema = "{properties: {limit: {type: integer, maximum: 100}}, required: [limit]}"
    manifest = manifest_of(load, f"{{tool: write, schema: {schema}}}")
    assert ask(manifest, {"limit": 100, "other": 1}).granted
    for wrong in ({"limit": 101}, {}, {"limit": "5"}, {"limit": True}):
        assert not ask(manifest, wrong).granted


@pytest.mark.parametrize(
    "limit",
    [
        "{type: integer, maximum: 5}",
        "{maximum: 5, allOf: [{minimum: 0}, {type: integer}]}",
        "{anyOf: [{type: integer, maximum: 5}, {const: all}]}",
        "{anyOf: [{type: integer, maximum: 5}, false]}",
    ],
)
def test_type_may_stand_in_what_a_schema_is_made_of(load: Load, limit: str) -> None:
    schema = f"{{properties: {{limit: {limit}}}, required: [limit]}}"
    manifest = manifest_of(load, f"{{tool: write, schema: {schema}}}")
    assert ask(manifest, {"limit": 5}).granted
    for wrong in (6, "6", None, [6]):
        assert not ask(manifest, {"limit": wrong}).granted


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("{}", "is empty"),
        ("{type: [[string]]}", "invalid"),
        ("{pattern: '^a'}", "no effect"),
        ("{properties: {a: {type: string, pattern: x}}, required: [a]}", "no effect"),
        ("{$ref: '#'}", "no effect"),
        ("{maximum: high}", "invalid"),
        ("{properties: {a: {maximum: 5, type: integer}}}", "not require"),
        ("{properties: {a: {maximum: 5}}, required: [a]}", "any type"),
        ("{properties: {a: {anyOf: [{type: integer}, {maximum: 5}]}}, required: [a]}", "any type"),
        ("{properties: {a: {type: array, items: {maximum: 5}}}, required: [a]}", "any type"),
        ("{additionalProperties: {maximum: 5}}", "any type"),
        ("{type: text}", "invalid"),
        ("{not: {properties: {force: {const: true}}, required: [force]}}", "not"),
        ("{oneOf: [{required: [path]}, {properties: {force: {const: true}}, required: [force]}]}", "oneOf"),
    ],
)
def test_schema_that_would_let_calls_through_is_refused_at_load(
    problems: Problems, schema: str, words: str
) -> None:
    text = f"capabilities: {{tools: {{allow: [{{tool: a, schema: {schema}}}]}}}}\n"
    [problem] = problems(text)
    assert words in problem.message
    assert (problem.line, problem.column, problem.key) == (1, 50, "capabilities.tools.allow.0.schema")


@pytest.mark.parametrize(
    ("rule", "key"),
    [
        ("allow: [{}]", "allow.0"),
        ("allow: [{tool: a, where: {b: {}}}]", "allow.0.where.b"),
        ("allow: [{tool: a, where: {b: {min: }}}]", "allow.0.where.b"),
        ("allow: [{tool: a, where: {b: {equals: [1]}}}]", "allow.0.where.b.equals"),
        ("allow: [{tool: a, where: {b: {prefx: x}}}]", "allow.0.where.b.prefx"),
        ("allow: [{tool: a, where: {b: {one_of: []}}}]", "allow.0.where.b.one_of"),
        ("allow: [{tool: a, where: {b: {prefix: ./reports/}}}]", "allow.0.where.b"),
        ("allow: [{tool: a, annotation: read_only}]", "allow.0.annotation"),
        ("allow: [5]", "allow.0"),
        ("deny: [{tool: a, where: {b: {max: 1}}}]", "deny.0.where"),
        ("budgets: [{tool: a}]", "budgets.0"),
        ("destructive: yes", "destructive"),
    ],
)
def test_rule_that_cannot_be_is_told_at_its_place(problems: Problems, rule: str, key: str) -> None:
    [problem] = problems(f"capabilities:\n  tools:\n    {rule}\n")
    assert problem.key == f"capabilities.tools.{key}"
    assert problem.line == 3 and problem.column and problem.column >= 5


def test_arguments_of_many_parts_are_refused_where_a_schema_looks_at_each(load: Load) -> None:
    items = "{type: object, properties: {a: {type: string}}, required: [a]}"
    schema = f"{{properties: {{rows: {{type: array, items: {items}}}}}, required: [rows]}}"
    manifest = manifest_of(
        load, f"{{tool: write, schema: {schema}}}", "{tool: write, where: {mode: {equals: all}}}"
    )
    many = {"rows": [{"a": "x"}] * 40_000}
    assert ask(manifest, {"rows": [{"a": "x"}]}).granted
    assert ask(manifest, {**many, "mode": "all"}).granted
    refused = ask(manifest, many)
    assert (refused.verdict, refused.where) == ("deny", "portal.yaml:2:32")
    assert "too large" in refused.reason


def test_value_of_any_size_is_shown_short(load: Load) -> None:
    manifest = manifest_of(load, "{tool: write, where: {path: {equals: x}}}")
    for value in (10**5_000, ["x"] * 10_000, {"x": "y" * 10_000}, "x" * 10_000):
        assert len(ask(manifest, {"path": value}).reason) < 200
