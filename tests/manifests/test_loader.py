"""Loading portal.yaml: accepted content, and the messages about the rest."""

import base64
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.errors import ManifestError
from manifests.grants import Limits
from manifests.loader import MAX_BYTES, check_written, find_manifest, load_manifest, read_files
from manifests.portal_manifest import HttpUpstream, RunsSettings, ServerSettings, StdioUpstream
from manifests.references import stand_in
from tests.manifests.conftest import Load, Problems

UPSTREAM = "upstreams:\n  a:\n    command: x\n"
URL = "upstreams:\n  a:\n    url: https://a.example/mcp\n"
HEADER = 'upstreams: {a: {url: "http://x", headers: {a: '
MISSPELT = ("comand", "commnd", "urll", "Command")
NO_MIDDLEWARE = ("mask", "'own-module:mask'", "'own:mask()'", "'a..b:c'")
KEY = "a-key-of-32-characters-in-all-ok"
WEBHOOK = "runs: {{webhooks: [{{url: {}, secret: {}, events: [{}]}}]}}"

DESIGN = """\
upstreams:
  files:
    command: npx
    args: ["-y", "@modelcontextprotocol/server-filesystem", "."]
    env: {TOKEN: "${FILES_TOKEN}"}
  tickets:
    url: https://tickets.example/mcp
    headers: {Authorization: "Bearer ${TICKETS_TOKEN}"}
    tools: {allow: ["*"], deny: ["delete_*"]}
capabilities:
  tools: {allow: ["*"], deny: ["files.write_*"]}
  limits: {wall_seconds: 60, cpu_seconds: 10, memory_mib: 256, tool_calls: 200, parallel_calls: 64,
           argument_bytes: 1048576, outcome_bytes: 10485760, result_bytes: 10485760, stdout_bytes: 262144,
           background_seconds: 3600}
server: {output_tokens: 6000, start_seconds: 10, check: strict}
"""


def test_complete_manifest_is_loaded_and_its_numbers_are_the_defaults(load: Load) -> None:
    manifest = load(DESIGN, FILES_TOKEN="f", TICKETS_TOKEN="t")
    files, tickets = manifest.portal.upstreams.values()
    assert isinstance(files, StdioUpstream) and isinstance(tickets, HttpUpstream)
    assert files.args == ("-y", "@modelcontextprotocol/server-filesystem", ".")
    assert tickets.tools.deny == ("delete_*",)
    assert (manifest.portal.capabilities.limits, manifest.portal.server) == (Limits(), ServerSettings())
    assert manifest.path and manifest.folder == manifest.path.parent
    assert manifest.namespaces == {"files": "files", "tickets": "tickets"}


def test_no_manifest_at_all_is_one_without_upstreams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    manifest = load_manifest(None, {})
    assert not manifest.portal.upstreams
    assert manifest.folder == tmp_path
    assert manifest.where("server", "check") == "server.check (default)"


@pytest.mark.parametrize("text", [
    "", "# nothing\n", "---\n...\n", "upstreams: {}\ncapabilities: {tools: , limits: }\n",
    "upstreams: {a.b: {command: x}, größe: {command: x}, 'my files': {command: x}, '2fa': {command: x}}\n",
    "\ufeffserver: {}\n", "%YAML 1.2\n---\nserver: {}\n",
    '{"upstreams": {"a": {"command": "x", "args": []}}}',
])  # fmt: skip
def test_sparse_and_unusual_manifests_are_fine(problems: Problems, text: str) -> None:
    assert problems(text) == []


@pytest.mark.parametrize(
    ("text", "key", "line", "column", "words"),
    [
        ("limitz: 1", "limitz", 1, 1, ["unknown key", "Allowed here: upstreams, capabilities, profiles"]),
        ("upstream: {}", "upstream", 1, 1, ["Did you mean upstreams?"]),
        ("- a", "", 1, 1, ["mapping"]),
        ("upstreams: [a]", "upstreams", 1, 12, ["a list", "mapping"]),
        ("upstreams: {a: npx}", "upstreams.a", 1, 16, ["mapping", "command"]),
        ("upstreams: {a: {args: [x]}}", "upstreams.a", 1, 16, ["command or a url"]),
        *((f"upstreams: {{a: {{{key}: x}}}}", "upstreams.a", 1, 16, ["Did you mean"]) for key in MISSPELT),
        ("mcpServers: {a: {command: x}}", "mcpServers", 1, 1, ["`upstreams`", "mcp-code-portal import"]),
        (URL + "    type: http", "upstreams.a.type", 4, 5, ["Allowed here: "]),
        ("upstreams: {a: {command: x, url: 'http://x'}}", "upstreams.a", 1, 16, ["both"]),
        ("upstreams: {a: {url: 'http://x', args: []}}", "upstreams.a.args", 1, 34, ["unknown key"]),
        ("upstreams: {a: {command: x, headers: {}}}", "upstreams.a.headers", 1, 29, ["unknown key"]),
        (UPSTREAM + "    args: [1]", "upstreams.a.args.0", 4, 12, ["item 1 of args", "string", "quotes"]),
        (UPSTREAM + "    args: x", "upstreams.a.args", 4, 11, ["a list"]),
        (UPSTREAM + "    env: {PORT: 80}", "upstreams.a.env.PORT", 4, 17, ["string", "quotes"]),
        (UPSTREAM + "    env: {A: ~}", "upstreams.a.env.A", 4, 14, ["empty", '""']),
        (UPSTREAM + '    env: {A: "\\0"}', "upstreams.a.env.A", 4, 14, ["NUL"]),
        (UPSTREAM + "    call_seconds: -1", "upstreams.a.call_seconds", 4, 19, ["-1", "greater than 0"]),
        (UPSTREAM + "    tools: {alow: []}", "upstreams.a.tools.alow", 4, 13, ["Did you mean allow?"]),
        ("upstreams: {a: {url: 'ftp://x'}}", "upstreams.a.url", 1, 22, ["http://"]),
        ("upstreams: {a: {url: 'http://x/ y'}}", "upstreams.a.url", 1, 22, ["space"]),
        ("upstreams: {a: {url: 'http://10.0.0.256/mcp'}}", "upstreams.a.url", 1, 22, ["http://"]),
        ("upstreams: {a: {url: 'https://a\u200b.example/mcp'}}", "upstreams.a.url", 1, 22, ["http://"]),
        (HEADER + '"b\\r\\nc: d"}}}', "upstreams.a.headers.a", 1, 47, ["line break"]),
        (HEADER + '"Zoë"}}}', "upstreams.a.headers.a", 1, 47, ["line break"]),
        ("upstreams: {'': {command: x}}", "upstreams.", 1, 13, ["upstream"]),
        ('upstreams: {"a\\nb": {command: x}}', "upstreams.a\nb", 1, 13, ["upstream"]),
        (f"upstreams: {{{'a' * 101}: {{command: x}}}}", f"upstreams.{'a' * 101}", 1, 13, ["at most 100"]),
        ("upstreams:\n  a-b: {command: x}\n  a.b: {command: x}", "upstreams.a.b", 3, 8, ["'a-b'", "a_b"]),
        ("upstreams:\n  a: {command: x}\n  a: {command: y}", "upstreams.a", 3, 3, ["twice", "2:3"]),
        ("capabilities: {limits: {tool_calls: -1}}", "capabilities.limits.tool_calls", 1, 37, ["-1", "0"]),
        ("capabilities: {limits: {tool_calls: '9'}}", "capabilities.limits.tool_calls", 1, 37, ["'9'", "integer"]),
        ("capabilities: {environment: {A-B: x}}", "capabilities.environment.A-B", 1, 30, ["A-B", "0-9_"]),
        ("capabilities: {files: {workspace: a, share: run}}", "capabilities.files", 1, 23, ["start empty", "write"]),
        ("capabilities: {network: {}}", "capabilities.network", 1, 25, ["no host", "allow"]),
        ("capabilities: {network: {allow: ['http://a.b']}}", "capabilities.network.allow.0", 1, 34, ["host"]),
        ("capabilities: {tools: {deny: x}}", "capabilities.tools.deny", 1, 30, ["a list"]),
        ("capabilities: {tools: {budgets: [{tool: a, calls: x}]}}", "capabilities.tools.budgets.0.calls", 1, 51, ["x"]),
        *((f"middleware: [{name}]", "middleware.0", 1, 14, ["module:name"]) for name in NO_MIDDLEWARE),
        ("server: {check: maybe}", "server.check", 1, 17, ["'maybe'", "strict", "warn", "off"]),
        ("server: {kernels: {ruby: true}}", "server.kernels.ruby", 1, 20, ["ruby", "'python' or 'javascript'"]),
        ("server: {kernels: {python: false}}", "server.kernels", 1, 19, ["python", "always on", "{javascript: true}"]),
        ("audit: {to: stderr, sinc: true}", "audit.sinc", 1, 21, ["Did you mean sync?", "to, sync"]),
        ("server: {token: 'a b'}", "server.token", 1, 17, ["spaces"]),
        ("server: {allowed_origins: [x]}", "server.allowed_origins.0", 1, 28, ["origin"]),
        ("server: {trusted_proxies: [10.0.0.1/8]}", "server.trusted_proxies.0", 1, 28, ["network"]),
        ("server: {trusted_proxies: ['0.0.0.0/0']}", "server.trusted_proxies.0", 1, 28, ["network"]),
        ("runs: {key: short-hunter2}", "runs.key", 1, 13, ["at least 16 characters"]),
        ("runs: {key: 'hunter2 with spaces in it'}", "runs.key", 1, 13, ["without spaces"]),
        ("runs: {key: 1234567890123456}", "runs.key", 1, 13, ["not a string"]),
        ("runs: {keep_days: 0}", "runs.keep_days", 1, 19, ["greater than 0"]),
        ("runs: {public_url: portal.example}", "runs.public_url", 1, 20, ["https://"]),
        (WEBHOOK.format("http://hooks.example/hunter2", KEY, ""), "runs.webhooks.0.url", 1, 25, ["https://"]),
        (WEBHOOK.format("https://a", "hunter2", ""), "runs.webhooks.0.secret", 1, 44, ["16"]),
        (WEBHOOK.format("https://a", "whsec_hunter2hunter2", ""), "runs.webhooks.0.secret", 1, 44, ["24"]),
        (WEBHOOK.format("https://a", "whsec_hunter2_hunter2", ""), "runs.webhooks.0.secret", 1, 44, ["24"]),
        (WEBHOOK.format("https://a", KEY, "run.done"), "runs.webhooks.0.events.0", 1, 87, ["run.ok"]),
    ],
)  # fmt: skip
def test_problem_says_what_where_and_what_is_allowed(
    problems: Problems, text: str, key: str, line: int, column: int, words: list[str]
) -> None:
    [problem] = problems(text)
    assert (problem.key, problem.line, problem.column) == (key, line, column)
    told = f"{problem.message} {problem.hint}"
    assert all(word in told for word in words)
    assert "hunter2" not in told, "a secret"


def test_everything_wrong_is_said_at_once_in_the_files_order(load: Load) -> None:
    with pytest.raises(ManifestError) as caught:
        load(
            "serverr: {}\n"
            "upstreams:\n"
            "  a: {command: '${MISSING}', args: 5}\n"
            "  a: {command: x}\n"
            "  b-c: {url: 'gopher://x'}\n"
            "capabilities: {limits: {tool_calls: no, memory_mib: 1}}\n"
        )
    error = caught.value
    assert [problem.line for problem in error.problems] == [1, 3, 3, 4, 5, 6, 6]
    for place in ("1:1", "3:16", "3:36", "4:3", "5:14", "6:37", "6:53"):
        assert f"portal.yaml:{place}: " in str(error)


def test_file_that_cannot_be_read_is_told_with_its_whole_path(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.yaml", tmp_path, Path()):
        with pytest.raises(ManifestError) as caught:
            load_manifest(path, {})
        assert str(path.absolute()) in str(caught.value)


def test_file_that_is_too_large_or_not_text_is_a_problem(problems: Problems) -> None:
    assert len(problems(b"#" * (MAX_BYTES + 1))) == 1
    [problem] = problems(b"a: 1\nb: \xff\n")
    assert (problem.line, problem.column) == (2, 4)
    assert problems(b"#" * MAX_BYTES) == []


def test_manifest_is_looked_for_in_three_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    named = {"MCP_CODE_PORTAL_CONFIG": "named.yaml"}
    assert find_manifest(None, {}) is None
    assert find_manifest(None, named) == Path("named.yaml")
    Path("portal.yaml").touch()
    assert find_manifest(None, {}) == Path("portal.yaml")
    assert find_manifest(None, named) == Path("named.yaml")
    Path("portal.yaml").unlink()
    Path("portal.yaml").symlink_to("x" * 300)
    assert find_manifest(None, {}) == Path("portal.yaml"), "a link to nothing is not an empty manifest"
    assert find_manifest(Path("asked.yaml"), named) == Path("asked.yaml")


keys = st.sampled_from(
    ["upstreams", "capabilities", "server", "tools", "limits", "a", "command", "url", "env", "x"]
)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.just("${A}")
)
documents = st.recursive(
    scalars, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=4))
)


yaml_like = st.text(st.sampled_from("ab01:-{}[],&*!|>'\"%@` \n\t#?$<.~"), max_size=60)


@given(documents.map(repr) | st.dictionaries(keys, documents, max_size=4).map(repr) | st.text() | yaml_like)
def test_any_file_loads_or_is_refused_with_problems(load: Load, text: str) -> None:
    try:
        load(text.encode("utf-8", "replace"), A="1")
    except ManifestError as error:
        assert error.problems
        assert all(problem.message and problem.line for problem in error.problems)


def test_what_is_written_can_be_checked_without_what_it_refers_to(tmp_path: Path) -> None:
    path = tmp_path / "portal.yaml"
    path.write_text("""\
upstreams:
  a: {url: "${command:touch ran}", headers: {Authorization: "Bearer ${TOKEN}"}}
  b: {url: "https://${HOST}/mcp", oauth: {issuer: "${ISSUER}"}}
  c: {command: "${command:touch ran}"}
server: {token: "${command:touch ran}", reload: watch}
runs: {store: "${keyring:a/b}", key: "${KEY}"}
telemetry: {otlp: "${OTLP}"}
""")
    assert load_manifest(path, {}, stand_in).portal.server.reload == "watch"
    assert not (tmp_path / "ran").exists()
    with pytest.raises(ManifestError, match="TOKEN is not set"):
        load_manifest(path, {})


UNKNOWN = [
    "server: {tokens: [{token: '${command:a}', name: a}, {token: '${command:b}', name: b}]}",
    "server: {token: '${A}', tokens: [{token: '${B}', name: b}]}",
    "server: {tokens: [{token: '${A}', tenant: '${command:a}', profile: '${B}'}]}",
    "server: {allowed_origins: ['${command:a}'], trusted_proxies: ['${A}'], reload: '${A}'}",
    "upstreams: {u: {url: 'https://a.example:${command:a}/mcp'}}",
    "server: {component: '${A}'}",
]
CODE = "middleware: ['guard:guard']"


@pytest.mark.parametrize(
    "text", [f"{CODE}\n{each}" for each in UNKNOWN] + ['"middlew\\x61re": [guard:guard]']
)
def test_code_is_among_the_files_whatever_references_stand_for(tmp_path: Path, text: str) -> None:
    (tmp_path / "guard.py").write_text("")
    (tmp_path / "portal.yaml").write_text(text)
    assert "guard.py" in read_files(tmp_path / "portal.yaml", {}).contents


@pytest.mark.parametrize("text", UNKNOWN[:-1])
def test_reference_that_is_not_resolved_is_no_problem_of_what_is_written(tmp_path: Path, text: str) -> None:
    path = tmp_path / "portal.yaml"
    path.write_text(text)
    check_written(read_files(path, {}), {})
    path.write_text(f"{text}\nunknown: 1")
    with pytest.raises(ManifestError):
        check_written(read_files(path, {}), {})


@pytest.mark.parametrize(
    ("text", "environ"),
    [
        ("server: {reload: '${A}'}", {"A": "often"}),
        ("server: {component: '${A}'}", {}),
        ("server: {component: '${command:a}'}", {}),
        ("server: {allowed_hosts: ['${1}']}", {}),
        ("server: {component: own.wasm}", {}),
    ],
)
def test_what_is_known_of_a_reference_has_to_fit(tmp_path: Path, text: str, environ: dict[str, str]) -> None:
    (tmp_path / "own.wasm").mkdir()
    (tmp_path / "portal.yaml").write_text(text)
    with pytest.raises(ManifestError):
        check_written(read_files(tmp_path / "portal.yaml", environ), environ)


def test_folder_instead_of_a_manifest_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ManifestError, match=r"^\.: "):
        read_files(Path("."), {})


def test_middleware_is_as_large_as_a_manifest_at_most(tmp_path: Path) -> None:
    (tmp_path / "portal.yaml").write_text(CODE)
    for size, is_refused in ((MAX_BYTES, False), (MAX_BYTES + 1, True)):
        with open(tmp_path / "guard.py", "wb") as file:
            file.truncate(size)
        files = read_files(tmp_path / "portal.yaml", {})
        assert len(files.contents["guard.py"]) <= MAX_BYTES
        assert (files.problem is not None) is is_refused


def test_program_beside_middleware_of_its_name_is_no_problem(tmp_path: Path) -> None:
    (tmp_path / "portal.yaml").write_text(CODE)
    for name in ("guard", "guard.py"):
        (tmp_path / name).touch()
    files = read_files(tmp_path / "portal.yaml", {})
    assert ({*files.contents}, files.problem) == ({"portal.yaml", "guard.py"}, None)


@pytest.mark.parametrize(
    ("kernels", "on"),
    [
        ("", ("python",)),
        ("{javascript: true}", ("javascript", "python")),
        ("{python: true, javascript: true}", ("python", "javascript")),
        ("{javascript: false}", ("python",)),
    ],
)
def test_python_is_always_on_and_others_in_the_order_in_which_they_are_written(
    load: Load, kernels: str, on: tuple[str, ...]
) -> None:
    assert load(f"server: {{kernels: {kernels}}}").portal.server.switched_on == on


def test_section_runs_has_its_defaults_and_its_secrets(load: Load) -> None:
    assert load("runs:\n").portal.runs == RunsSettings()
    numbers = {"keep_days": 7, "max_age_days": 30, "park_after_seconds": 2, "quota_mib": 1024}
    assert RunsSettings().model_dump() == {
        **numbers,
        "trail": "calls",
        "store": None,
        "key": None,
        "public_url": None,
        "ask_in": "client",
        "webhooks": (),
    }
    signing = "whsec_" + base64.b64encode(bytes(24)).decode()
    text = "runs: {key: '${KEY}', public_url: '${PUBLIC:-https://portal.example}', webhooks: [%s]}\n"
    some = "{url: 'https://hooks.example/x', secret: '${S}', events: [run.ok]}"
    manifest = load(text % f"{some}, {{url: 'http://127.0.0.1', secret: '${{S}}'}}", KEY=KEY, S=signing)
    runs = manifest.portal.runs
    assert runs.key and runs.key.get_secret_value() == KEY
    assert runs.public_url == "https://portal.example"
    one, other = runs.webhooks
    assert (one.secret.get_secret_value(), one.events) == (signing, ("run.ok",))
    assert {*other.events} == {
        f"run.{end}" for end in ("waiting", "ok", "error", "cancelled", "expired", "stuck")
    }
    assert manifest.hidden == {KEY, signing}
    assert not [each for each in (KEY, signing, "hooks.example") if each in repr(runs)]
