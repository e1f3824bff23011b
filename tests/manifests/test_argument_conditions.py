"""Conditions on arguments: what meets them, and what must not slip through."""

import pytest

from manifests.json_value import Json
from tests.manifests.conftest import Load, Problems, ask


def meeting(rules: Load, where: str, *values: Json) -> list[Json]:
    """Those of the values that meet the condition."""
    manifest = rules(f"{{allow: [{{tool: write, where: {{path: {where}}}}}]}}")
    return [each for each in values if ask(manifest, "files.write", arguments={"path": each}).granted]


BELOW = ["x", "", "..x", "ü%20", "x?y=..", "100%use", "a" * 4_000, "%", "100\uff05"]
ELSEWHERE = [
    "x", "", "Reports/x", "/reports/x", "./reports/x", "reports/../x", "reports/./x", "reports//x",
    "reports/%2e%2e/x", "reports/%252e%252e/x", "reports/%u002e%u002e/x", "reports/%c0%ae%c0%ae/x",
    "reports/%EF%BC%852e%EF%BC%852e/x", "reports/\uff0e\uff0e/x", "reports/\u2025/x", "reports/..\u2215x",
    "reports/..\\x", "reports/x\\..\\..\\y", "reports/..;/x", "reports/..;a=b/x", "reports/..?x",
    "reports/.. /x", "reports/..\t/x", "reports/..\u200b/x", "reports/..\x00/x",
    "reports/..%2f\u0307x",  # a slash and a mark, or a letter with a dot
    "reports/" + "\u0301\u0316" * 16, "reports/" + "a" * 5_000, "reports/%252541" + "\ufdfa" * 1_000,
    5, None, True, ["reports/x"], {"prefix": "reports/"},
]  # fmt: skip


def test_value_below_the_prefix_is_granted_and_one_that_leads_elsewhere_is_refused(rules: Load) -> None:
    below = [f"reports/{each}" for each in BELOW]
    assert meeting(rules, "{prefix: reports/}", *below, *ELSEWHERE) == below


@pytest.mark.parametrize(
    ("where", "right", "wrong"),
    [
        ("{prefix: 'https://a.example/'}", "https://a.example/x", "https://a.example/../x"),
        ("{prefix: 'https://a.example/'}", "https://a.example/x?y=1", "https://a.example/..#x"),
        ("{prefix: 'https://a.example/'}", "https://a.example/", "https://a.example//x"),
        ("{prefix: 'https://a.example/'}", "https://a.example/", "https://a.example.evil/x"),
        ("{prefix: 'https://a.example/'}", "https://a.example/", "https://a.example@e/x"),
        ("{prefix: 'Dear '}", "Dear Ada,\n\nhello", "Hello\n"),
        ("{equals: main}", "main", "Main"),
        ("{equals: 1}", 1, True),
        ("{equals: true}", True, 1),
        ("{one_of: [a, b]}", "b", "c"),
        ("{one_of: [1, 2]}", 2, True),
        ("{suffix: .md}", "a.md", "a.md\x00.sh"),
        ("{suffix: .md}", "b.md", "a.sh%00.md"),
        ("{suffix: .md}", "a, b; c@d@e.md", "a, b; c@d@e"),
        ("{suffix: '@example.com'}", "a b@example.com", "evil@x.com\n@example.com"),
        ("{suffix: '@example.com'}", "a.b+c@example.com", "a@evil.com,b@example.com"),
        ("{suffix: '@example.com'}", "a@example.com", "root;b@example.com"),
        ("{suffix: '@example.com'}", "a@example.com", "root%2Cb@example.com"),
        ("{suffix: '@example.com'}", "a@example.com", "root%2c\u0327b@example.com"),
        ("{suffix: .example.com}", "a.b.example.com", "evil.example#.example.com"),
        ("{suffix: .example.com}", "a.b.example.com", "evil.example?.example.com"),
        ("{suffix: .example.com}", "a.b.example.com", "evil.example%23.example.com"),
        ("{min: 1, max: 10}", 1, 0),
        ("{min: 1, max: 10}", 10, 11),
        ("{max: 9007199254740992}", 9007199254740992, 9007199254740993),
    ],
)
def test_comparison(rules: Load, where: str, right: Json, wrong: Json) -> None:
    assert meeting(rules, where, right, wrong) == [right]


def test_argument_that_is_missing_is_refused_whatever_the_tool_would_take(rules: Load) -> None:
    manifest = rules("{allow: [{tool: write, where: {path: {prefix: reports/}}}]}")
    decision = ask(manifest, "files.write", arguments={})
    assert (decision.verdict, decision.where) == ("deny", "portal.yaml:2:32")
    assert "path is missing" in decision.reason


@pytest.mark.parametrize(
    "condition",
    [
        "where: {path: {prefix: a/}}",
        "schema: {properties: {path: {enum: [a/x]}}, required: [path]}",
        "schema: {allOf: [{properties: {path: {enum: [a/x]}}, required: [path]}]}",
    ],
)
@pytest.mark.parametrize(("other", "verdict"), [("Path", "deny"), ("PATH", "deny"), ("path_", "allow")])
def test_argument_that_a_server_may_take_for_the_one_of_a_condition_is_refused(
    rules: Load, condition: str, other: str, verdict: str
) -> None:
    """Servers in Go take the last name of those that differ in case only."""
    manifest = rules(f"{{allow: [{{tool: write, {condition}}}]}}")
    assert ask(manifest, "files.write", arguments={"path": "a/x", other: "b/x"}).verdict == verdict


A, B = (f"{{tool: write, where: {{path: {{prefix: {each}/}}}}}}" for each in "ab")


@pytest.mark.parametrize(
    ("tools", "own", "granted"),
    [
        (f"{{allow: ['*', {A}]}}", "", {"a"}),
        (f"{{allow: [write, {A}]}}", "", {"a"}),
        (f"{{allow: [files.write, '*', {A}]}}", "", {"a"}),
        (f"{{allow: [{A}, {B}]}}", "", {"a", "b"}),
        (f"{{allow: [{A}, {B}]}}", f"{{allow: [{B}]}}", {"b"}),
        (f"{{allow: ['*', {A}]}}", f"{{allow: [{B}]}}", set()),
    ],
)
def test_a_condition_of_each_section_must_be_met(
    rules: Load, tools: str, own: str, granted: set[str]
) -> None:
    manifest = rules(tools, own)
    asked = {each: ask(manifest, "files.write", arguments={"path": f"{each}/x"}) for each in "abc"}
    assert {each for each, decision in asked.items() if decision.granted} == granted


@pytest.mark.parametrize(
    ("limit", "wrong"),
    [
        ("{type: integer, maximum: 5}", (6, "5", True)),
        ("{maximum: 5, allOf: [{minimum: 0}, {type: integer}]}", (6, "6", None, [6])),
        ("{anyOf: [{type: integer, maximum: 5}, {const: all}]}", (6, "6", None, [6])),
        ("{anyOf: [{type: integer, maximum: 5}, false]}", (6, "6", None, [6])),
    ],
)
def test_schema_is_a_condition(rules: Load, limit: str, wrong: tuple[Json, ...]) -> None:
    schema = f"{{properties: {{limit: {limit}}}, required: [limit]}}"
    manifest = rules(f"{{allow: [{{tool: write, schema: {schema}}}]}}")
    assert ask(manifest, "files.write", arguments={"limit": 5, "other": 1}).granted
    for arguments in ({}, *({"limit": each} for each in wrong)):
        assert not ask(manifest, "files.write", arguments=arguments).granted


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
        ("{not: {properties: {force: {const: true}}, required: [force]}}", "not"),
        ("{oneOf: [{required: [path]}, {properties: {force: {const: true}}, required: [force]}]}", "oneOf"),
    ],
)
def test_schema_that_lets_calls_through_is_refused(problems: Problems, schema: str, words: str) -> None:
    [problem] = problems(f"capabilities: {{tools: {{allow: [{{tool: a, schema: {schema}}}]}}}}\n")
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
        ("ask: [{tool: a, where: {b: {equals: 1}}}]", "ask.0.where"),
        ("budgets: [{tool: a}]", "budgets.0"),
        ("destructive: yes", "destructive"),
    ],
)
def test_rule_that_cannot_be_is_told_at_its_place(problems: Problems, rule: str, key: str) -> None:
    [problem] = problems(f"capabilities:\n  tools:\n    {rule}\n")
    assert problem.key == f"capabilities.tools.{key}"
    assert problem.line == 3 and problem.column and problem.column >= 5


def test_arguments_of_many_parts_are_refused_where_a_schema_looks_at_each(rules: Load) -> None:
    items = "{type: object, properties: {a: {type: string}}, required: [a]}"
    schema = f"{{properties: {{rows: {{type: array, items: {items}}}}}, required: [rows]}}"
    allow = f"{{tool: write, schema: {schema}}}, {{tool: write, where: {{mode: {{equals: all}}}}}}"
    manifest, many = rules(f"{{allow: [{allow}]}}"), {"rows": [{"a": "x"}] * 10_000}
    assert ask(manifest, "files.write", arguments={"rows": [{"a": "x"}]}).granted
    assert ask(manifest, "files.write", arguments={**many, "mode": "all"}).granted
    refused = ask(manifest, "files.write", arguments=many)
    assert (refused.verdict, refused.where) == ("deny", "portal.yaml:2:32")
    assert "too large" in refused.reason


def test_value_of_any_size_is_shown_short(rules: Load) -> None:
    manifest = rules("{allow: [{tool: write, where: {path: {equals: x}}}]}")
    for value in (10**5_000, ["x"] * 10_000, {"x": "y" * 10_000}, "x" * 10_000):
        assert len(ask(manifest, "files.write", arguments={"path": value}).reason) < 200
