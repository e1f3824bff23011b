"""`${NAME}` in a manifest: what it stands for, where its values come from, and which of them are secrets."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.errors import ManifestError
from manifests.json_value import Json
from manifests.loader import load_manifest
from manifests.manifest import Manifest
from manifests.references import MAX_BYTES, env_text, holds_token, read_env
from tests.manifests.conftest import Load, Problems


@pytest.mark.parametrize(("text", "value"), [
    ("x${A}y${A}", "x1y1"), ("${A:-2}", "1"), ("${NOT:-2}", "2"), ("${NOT:-}", ""),
    ("${NOT:-a: b, {c}", "a: b, {c"), ("${EMPTY}", ""), ("${EMPTY:-2}", "2"), ("$${A}", "${A}"),
    ("$A $$ $ {A}", "$A $$ $ {A}"), ("${HOSTILE}", "x'}]\n  b: {command: evil}\n# ${A} $${A}"),
])  # fmt: skip
def test_reference_is_filled_in_and_its_value_never_read_again(load: Load, text: str, value: str) -> None:
    manifest = load(f"upstreams: {{a: {{command: x, args: ['{text}']}}}}\n", A="1", EMPTY="", HOSTILE=value)
    assert manifest.portal.upstreams["a"].model_dump()["args"] == (value,)


def test_references_work_in_every_string_of_upstreams_and_server(load: Load) -> None:
    portal = load(
        'upstreams:\n  a: {url: "http://${H}/mcp", headers: {A: "Bearer ${T}"}, transport: "${S}"}\n'
        '  b: {command: "${H}", args: ["${T}"], cwd: "${H}", env: {X: "${T}"}, tools: {deny: ["${T}"]}}\n'
        'server: {token: "${T}", check: "${C:-warn}", allowed_hosts: ["${H}"]}\n',
        H="host",
        T="token",
        S="sse",
    ).portal
    a, b = (each.model_dump() for each in portal.upstreams.values())
    assert (a["url"], a["headers"], a["transport"]) == ("http://host/mcp", {"A": "Bearer token"}, "sse")
    assert (b["command"], b["args"], b["cwd"], b["env"]) == ("host", ("token",), "host", {"X": "token"})
    assert portal.upstreams["b"].tools.deny == ("token",)
    assert portal.server.token and portal.server.token.get_secret_value() == "token"
    assert (portal.server.check, portal.server.allowed_hosts) == ("warn", ("host",))


def test_environment_of_scripts_is_filled_in_and_nothing_else_that_they_may_do(load: Load) -> None:
    text = 'capabilities: {environment: {STAGE: "${A}", PLAIN: b}, tools: {allow: ["${A}"]}}\n'
    capabilities = load(text, A="1").portal.capabilities
    assert capabilities.environment == {"STAGE": "1", "PLAIN": "b"}
    assert capabilities.tools.allow == ("${A}",)


def test_literal_default_is_what_a_reference_falls_back_to(load: Load) -> None:
    text = 'upstreams: {a: {command: "${CA}"}}\ndefaults: {env: {CA: /default, B: "${NOT:-}"}}\n'
    for environ, command in ({}, "/default"), ({"CA": "/set"}, "/set"):
        assert load(text, **environ).portal.upstreams["a"].model_dump()["command"] == command


@pytest.mark.parametrize("section", ["[]", "{env: x}", "{env: {A: 1}}", "{evn: {}}"])
def test_wrong_defaults_are_a_problem(problems: Problems, section: str) -> None:
    assert [problem.line for problem in problems(f"defaults: {section}")] == [1]


def test_all_missing_variables_are_reported_with_their_places(problems: Problems) -> None:
    found = problems(
        "upstreams:\n"
        "  a:\n"
        "    url: https://${HOST}/mcp\n"
        "    headers: {Authorization: 'Bearer ${TOKEN}'}\n"
        "server: {token: '${PORTAL}'}\n"
    )
    assert [(p.line, p.column, p.key) for p in found] == [
        (3, 10, "upstreams.a.url"),
        (4, 30, "upstreams.a.headers.Authorization"),
        (5, 17, "server.token"),
    ]
    assert all(name in p.message for p, name in zip(found, ("HOST", "TOKEN", "PORTAL"), strict=True))


@pytest.mark.parametrize("text", ["${}", "${A-b}", "${A", "${1A}", "${A:-${B}}", "${command:x}", "${ A }"])
def test_what_looks_like_a_reference_and_is_none_is_a_problem(problems: Problems, text: str) -> None:
    [problem] = problems(f"upstreams:\n  a:\n    command: '{text}'\n", A="1", B="2")
    assert (problem.line, problem.column) == (3, 14)


def test_values_from_the_environment_are_never_shown(load: Load, problems: Problems) -> None:
    found = problems(
        "upstreams:\n"
        "  a: {url: '${S}', headers: {A: '${S}\\n', B: '${LINES}'}, call_seconds: '${S}', transport: '${S}'}\n"
        "  b: {command: x, args: '${S}', env: '${S}', tools: '${S}', connect_seconds: '${S}'}\n"
        "  c: '${S}'\n"
        "capabilities: {environment: {A: '${S}', 'B-${S}': '${S}', C: ['${S}']}}\n"
        "server: {token: '${S} ${S}', check: '${S}', workers: '${S}', allowed_origins: ['${S}']}\n",
        S="hunter2",
        LINES="hunter2\n",
    )
    assert len(found) >= 12
    assert not [p for p in found if "hunter2" in f"{p.message}{p.hint}{p.key}"]
    manifest = load(
        "upstreams: {a: {command: x, args: ['--token=${S}'], env: {S: '${S}'}},\n"
        "  b: {url: 'https://user:${S}@host/?key=${S}', headers: {A: '${S}'}}}\nserver: {token: '${S}'}\n",
        S="hunter2",
    )
    assert "hunter2" not in repr(manifest) + str(manifest.portal)


def test_secrets_written_into_the_file_are_not_shown_either(problems: Problems) -> None:
    found = problems(
        "upstreams:\n"
        "  a: {command: x, env: {KEY: 9876543}, args: [9876543, [9876543]]}\n"
        "  b: {url: 'htp://user:9876543@host', headers: {K: 9876543}}\n"
        "server: {token: 9876543}\n"
    )
    assert len(found) == 6
    assert not [p for p in found if "9876543" in f"{p.message}{p.hint}"]


def loaded(folder: Path, upstreams: Json, more: Json = None, **environ: str) -> Manifest:
    """A command gives its own line."""
    path = folder / "portal.yaml"
    path.write_text(json.dumps({"upstreams": upstreams, **(more or {})}))
    return load_manifest(path, environ, lambda references, *_: {each: each.text for each in references})


def test_value_of_a_variable_or_a_command_is_a_secret_of_its_upstream(tmp_path: Path) -> None:
    upstreams = {
        "a": {
            "command": "x",
            "args": ["postgres://app:${PASSWORD}@db/x"],
            "env": {"KEY": "${command:get key}"},
        },
        "b": {"url": "https://b.example/mcp", "headers": {"X-Key": "${TOKEN}"}},
    }
    more = {"server": {"token": "${MINE}"}, "defaults": {"env": {"PROXY": "http://me:${PW}@proxy"}}}
    secrets = {name: f"of-{name}" for name in ("PASSWORD", "TOKEN", "MINE", "PW")}
    manifest = loaded(tmp_path, upstreams, more, **secrets)
    assert manifest.credentials == {"a": {"of-PASSWORD", "get key", "of-PW"}, "b": {"of-TOKEN"}}
    assert manifest.hidden == {*secrets.values(), "get key"}
    assert manifest.portal.defaults.env == {"PROXY": "http://me:of-PW@proxy"}


def test_variable_with_a_default_home_and_path_are_no_secrets(tmp_path: Path) -> None:
    env = {"STAGE": "${STAGE:-production}", "KEY": "${KEY:-}", "PATH": "/opt/bin:${PATH}"}
    environ = {"STAGE": "staging", "KEY": "of-key", "HOME": "/home/me", "PATH": "/usr/bin"}
    manifest = loaded(tmp_path, {"a": {"command": "x", "args": ["${HOME}/notes"], "env": env}}, **environ)
    assert manifest.hidden == {"of-key"}


CREDENTIALS = [
    "ghp_0123456789abcdefghijklmnopqrstuvwxyz", "Bearer github_pat_11ABCDEFG0123456789",
    "--token=glpat-abcdefghij0123456789", "sk-proj-abcdefghijklmnop", "AKIAIOSFODNN7EXAMPLE",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIE", "sbp_0102030405060708090a0b0c0d0e0f1011121314",
    "--api-key=tvly-dev-0123456789abcdef", "fc-0123456789abcdef0123456789abcdef",
    "apify_api_0123456789abcdefABCDEF", "sntrys_eyJpYXQiOjE3MDA", "postgresql://bob:s3cret@db/x",
    "--dsn=mysql+pymysql://root:pw!@db", "redis://:hunter2@cache:6379/0",
    "redis://${CACHE_USER:-bob}:hunter2@cache",
]  # fmt: skip
ORDINARY = [
    "ghp_", "production", "task-oriented-programming", "desk-lamp-in-the-kitchen", "${GITHUB_TOKEN}",
    "postgresql://bob:${DB_PASSWORD}@db/x", "postgresql://bob@db:5432/x",
    "postgresql://${DB_USER:-bob}:${DB_PASSWORD}@db/x", "https://host:8443/path@2",
    "fc-application-name-of-somebody", "git+ssh://git@github.com/a/b", "-----BEGIN CERTIFICATE-----",
]  # fmt: skip


def test_credentials_of_known_services_are_told_from_ordinary_text() -> None:
    assert [text for text in (*CREDENTIALS, *ORDINARY) if holds_token(text)] == CREDENTIALS


def owned(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    path.chmod(0o600)
    return path


def refusal(path: Path) -> list[tuple[int | None, str]]:
    with pytest.raises(ManifestError) as refused:
        read_env(path)
    assert refused.value.file == path.name
    return [(problem.line, problem.message) for problem in refused.value.problems]


def test_what_the_environment_lacks_is_taken_from_beside_the_manifest(tmp_path: Path) -> None:
    path = tmp_path / "pi.yaml"
    path.write_text('upstreams: {a: {command: "${TOKEN}"}}\n')
    with pytest.raises(ManifestError) as refused:
        load_manifest(path, {})
    assert "pi.env" in refused.value.problems[0].hint
    owned(tmp_path / "pi.env", "TOKEN=kept\n")
    for environ, command in ({}, "kept"), ({"TOKEN": "set"}, "set"):
        assert load_manifest(path, environ).portal.upstreams["a"].model_dump()["command"] == command


@pytest.mark.parametrize(("line", "value"), [
    ("A=b", "b"), ("export A = b c ", "b c"), ("A=", ""), ("A=b#c=d", "b#c=d"),
    (r'A="b\n\"c\" \u00e9"', 'b\n"c" é'), ("A='b\\n$c'", "b\\n$c"), ("\ufeffA=b\r", "b"),
])  # fmt: skip
def test_a_line_of_the_env_file_is_a_name_and_its_value(tmp_path: Path, line: str, value: str) -> None:
    assert read_env(owned(tmp_path / "portal.env", f"{line}\n# B=c\n\n")) == {"A": value}


ENVIRONMENTS = st.dictionaries(
    st.from_regex(r"[A-Za-z_][A-Za-z0-9_]*", fullmatch=True),
    st.text(st.characters(codec="utf-8", exclude_characters="\0")),
)


@given(ENVIRONMENTS)
def test_env_file_is_read_as_written(
    tmp_path_factory: pytest.TempPathFactory, values: dict[str, str]
) -> None:
    path = tmp_path_factory.getbasetemp() / "written.env"
    assert read_env(owned(path, env_text(values))) == values


def test_env_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = owned(tmp_path / "portal.env", "A=b\n")
    assert read_env(path) == {"A": "b"}
    path.chmod(0o640)
    assert "owner" in refusal(path)[0][1]


def test_every_line_that_says_nothing_is_named_and_never_shown(tmp_path: Path) -> None:
    content = 'A=b\nhunter2\nB=\'x\nA=c\nC="\\q"\nD="\\u0000"\n2E=x\nF="\\ud800"\n'
    told = refusal(owned(tmp_path / "portal.env", content))
    assert [line for line, _ in told] == [2]
    assert "hunter2" not in str(told)


@pytest.mark.parametrize("content", [b"A=\xff\n", b"#" * (MAX_BYTES + 1), b"x\n" * 5000])
def test_hostile_env_file_is_refused(tmp_path: Path, content: bytes) -> None:
    assert 1 <= len(refusal(owned(tmp_path / "portal.env", content))) <= 100


def test_env_file_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.env").mkdir()
    os.mkfifo(tmp_path / "pipe.env", 0o600)
    assert refusal(tmp_path / "folder.env") and refusal(tmp_path / "pipe.env")
