"""An upstream without a kind, or with two: what else is wrong in it is told at the same time."""

import pytest

from tests.manifests.conftest import Problems


@pytest.mark.parametrize(
    ("upstream", "keys"),
    [
        ("{comand: uvx, args: mcp-server-git, call_seconds: soon}", ["", ".args", ".call_seconds"]),
        ("{url: 7, command: x, args: [1]}", ["", ".args.0", ".url"]),
        ("{headers: 5, tools: {allow: 7}, env: no}", ["", ".env", ".headers", ".tools.allow"]),
        ("{url: 'https://x', command: x, oauth: {}, headers: {Authorization: x}}", ["", ""]),
        ("{comand: uvx, args: [mcp-server-git], headers: {}, unheard: 1}", [""]),
        ("{}", [""]),
    ],
)
def test_everything_wrong_is_told_with_the_missing_kind(
    problems: Problems, upstream: str, keys: list[str]
) -> None:
    found = problems(f"upstreams: {{git: {upstream}}}\n")
    assert sorted(problem.key for problem in found) == [f"upstreams.git{key}" for key in keys]


def test_no_value_that_may_be_a_secret_is_shown(problems: Problems) -> None:
    found = problems("upstreams: {git: {args: hunter2, env: {A: [hunter2]}, headers: hunter2}}\n")
    assert len(found) == 4
    assert "hunter2" not in str(found)
