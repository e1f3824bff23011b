"""`${NAME}` in a manifest."""

import pytest

from manifests.portal_manifest import HttpUpstream, StdioUpstream
from tests.manifests.conftest import Load, Problems


def argument(load: Load, text: str, **environ: str) -> str:
    upstream = load(f"upstreams:\n  a: {{command: x, args: ['{text}']}}\n", **environ).portal.upstreams["a"]
    assert isinstance(upstream, StdioUpstream)
    return upstream.args[0]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${A}", "1"),
        ("x${A}y${A}", "x1y1"),
        ("${A:-2}", "1"),
        ("${NOT:-2}", "2"),
        ("${NOT:-}", ""),
        ("${NOT:-a: b, {c}", "a: b, {c"),
        ("${EMPTY}", ""),
        ("${EMPTY:-2}", "2"),
        ("$${A}", "${A}"),
        ("$A $$ $", "$A $$ $"),
        ("{A}", "{A}"),
    ],
)
def test_reference_is_filled_in(load: Load, text: str, value: str) -> None:
    assert argument(load, text, A="1", EMPTY="") == value


def test_value_is_never_read_as_yaml_or_as_a_reference(load: Load) -> None:
    hostile = "x'}]\n  b: {command: evil}\n# ${SECRET} $${A}"
    assert argument(load, "${A}", A=hostile, SECRET="s") == hostile


def test_references_work_in_every_string_of_upstreams_and_server(load: Load) -> None:
    portal = load(
        'upstreams:\n  a: {url: "http://${H}/mcp", headers: {A: "Bearer ${T}"}, transport: "${S}"}\n'
        '  b: {command: "${H}", cwd: "${H}", env: {X: "${T}"}, tools: {deny: ["${T}"]}}\n'
        'server: {token: "${T}", check: "${C:-warn}", allowed_hosts: ["${H}"]}\n',
        H="host",
        T="token",
        S="sse",
    ).portal
    a, b = portal.upstreams["a"], portal.upstreams["b"]
    assert isinstance(a, HttpUpstream) and isinstance(b, StdioUpstream)
    assert (a.url, a.headers, a.transport) == ("http://host/mcp", {"A": "Bearer token"}, "sse")
    assert (b.command, b.cwd, b.env, b.tools.deny) == ("host", "host", {"X": "token"}, ("token",))
    assert portal.server.token and portal.server.token.get_secret_value() == "token"
    assert (portal.server.check, portal.server.allowed_hosts) == ("warn", ("host",))


def test_environment_of_scripts_is_filled_in_and_nothing_else_that_they_may_do(load: Load) -> None:
    capabilities = load(
        'capabilities: {environment: {STAGE: "${A}", PLAIN: b}, tools: {allow: ["${A}"]}}\n', A="1"
    ).portal.capabilities
    assert capabilities.environment == {"STAGE": "1", "PLAIN": "b"}
    assert capabilities.tools.allow == ("${A}",)


def test_all_missing_variables_are_reported_with_their_places(problems: Problems) -> None:
    found = problems(
        "upstreams:\n"
        "  a:\n"
        "    url: https://${HOST}/mcp\n"
        "    headers: {Authorization: 'Bearer ${TOKEN}'}\n"
        "server:\n"
        "  token: ${PORTAL}\n"
    )
    assert [(p.line, p.column, p.key) for p in found] == [
        (3, 10, "upstreams.a.url"),
        (4, 30, "upstreams.a.headers.Authorization"),
        (6, 10, "server.token"),
    ]
    for problem, name in zip(found, ("HOST", "TOKEN", "PORTAL"), strict=True):
        assert name in problem.message


@pytest.mark.parametrize("text", ["${}", "${A-b}", "${A", "${1A}", "${A:-${B}}", "${command:x}", "${ A }"])
def test_what_looks_like_a_reference_and_is_none_is_a_problem(problems: Problems, text: str) -> None:
    [problem] = problems(f"upstreams:\n  a:\n    command: '{text}'\n", A="1", B="2")
    assert (problem.line, problem.column) == (3, 14)


def test_values_from_the_environment_are_never_shown(load: Load, problems: Problems) -> None:
    text = (
        "upstreams:\n"
        "  a: {url: '${S}', headers: {A: '${S}\\n', B: '${LINES}'}, call_seconds: '${S}', transport: '${S}'}\n"
        "  b: {command: x, args: '${S}', env: '${S}', tools: '${S}', connect_seconds: '${S}'}\n"
        "  c: '${S}'\n"
        "capabilities: {environment: {A: '${S}', 'B-${S}': '${S}', C: ['${S}']}}\n"
        "server: {token: '${S} ${S}', check: '${S}', workers: '${S}', allowed_origins: ['${S}']}\n"
    )
    found = problems(text, S="hunter2", LINES="hunter2\n")
    assert len(found) >= 12
    assert not [p for p in found if "hunter2" in f"{p.message}{p.hint}{p.key}"]
    assert "hunter2" not in repr(load("upstreams: {a: {command: x, env: {S: '${S}'}}}", S="hunter2"))


def test_secrets_written_into_the_file_are_not_shown_either(problems: Problems) -> None:
    found = problems(
        "upstreams:\n"
        "  a: {command: x, env: {KEY: 9876543}, args: [9876543, [9876543]]}\n"
        "  b: {url: 'htp://user:9876543@host', headers: {K: 9876543}}\n"
        "server: {token: 9876543}\n"
    )
    assert len(found) == 6
    assert not [p for p in found if "9876543" in f"{p.message}{p.hint}"]
