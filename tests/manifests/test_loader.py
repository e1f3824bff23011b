"""Loading portal.yaml: what is accepted, and what an operator is told about the rest."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.errors import ManifestError
from manifests.grants import Limits
from manifests.loader import MAX_BYTES, find_manifest, load_manifest
from manifests.upstream_sections import HttpUpstream, StdioUpstream
from tests.manifests.conftest import Load, Problems

EXAMPLES = Path(__file__).parents[2] / "examples"
UPSTREAM = "upstreams:\n  a:\n    command: x\n"
URL = "upstreams:\n  a:\n    url: https://a.example/mcp\n"

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
           argument_bytes: 1048576, outcome_bytes: 10485760, result_bytes: 10485760, stdout_bytes: 262144}
server: {output_tokens: 6000, start_seconds: 10, check: strict}
"""


def test_complete_manifest_is_loaded(load: Load) -> None:
    manifest = load(DESIGN, FILES_TOKEN="f", TICKETS_TOKEN="t")
    files, tickets = manifest.portal.upstreams.values()
    assert isinstance(files, StdioUpstream) and isinstance(tickets, HttpUpstream)
    assert files.args == ("-y", "@modelcontextprotocol/server-filesystem", ".")
    assert tickets.tools.deny == ("delete_*",)
    assert manifest.portal.capabilities.limits == Limits()
    assert manifest.path and manifest.folder == manifest.path.parent
    assert manifest.namespaces == {"files": "files", "tickets": "tickets"}


def test_no_manifest_at_all_is_one_without_upstreams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    manifest = load_manifest(None, {})
    assert not manifest.portal.upstreams
    assert manifest.folder == tmp_path
    assert (
        manifest.where("capabilities", "limits", "tool_calls") == "capabilities.limits.tool_calls (default)"
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing\n",
        "{}",
        "upstreams:\ncapabilities:\nserver:\n",
        "upstreams: {}\ncapabilities: {tools: , limits: }\n",
        "server: {token: , workers: , check: off}\n",
        "upstreams: {a: {command: x, env: , tools: , cwd: }, b: {url: 'HTTP://x:80', headers: }}\n",
        "upstreams: {a.b: {command: x}, größe: {command: x}, 'my files': {command: x}, '2fa': {command: x}}\n",
        "\ufeffserver: {}\n",
        "%YAML 1.2\n---\nserver: {}\n",
        '{"upstreams": {"a": {"command": "x", "args": []}}}',
    ],
)
def test_sparse_and_unusual_manifests_are_fine(problems: Problems, text: str) -> None:
    assert problems(text) == []


def test_where_names_the_key_in_the_file_or_says_default(load: Load) -> None:
    manifest = load("capabilities:\n  limits:\n    tool_calls: 5\n  tools: {deny: [a, b]}\n")
    assert manifest.where("capabilities", "limits", "tool_calls") == "portal.yaml:3:5"
    assert manifest.where("capabilities", "tools", "deny", 1) == "portal.yaml:4:21"
    assert (
        manifest.where("capabilities", "limits", "memory_mib") == "capabilities.limits.memory_mib (default)"
    )


@pytest.mark.parametrize(
    ("text", "key", "line", "column", "words"),
    [
        (
            "limitz: 1\n",
            "limitz",
            1,
            1,
            ["unknown key", "Allowed here: upstreams, capabilities, profiles, audit, server"],
        ),
        ("upstream: {}\n", "upstream", 1, 1, ["Did you mean upstreams?"]),
        ("- a\n", "", 1, 1, ["mapping"]),
        ("upstreams: [a]\n", "upstreams", 1, 12, ["a list", "mapping"]),
        ("upstreams: {a: npx}\n", "upstreams.a", 1, 13, ["mapping", "command"]),
        ("upstreams: {a: }\n", "upstreams.a", 1, 13, ["command"]),
        ("upstreams: {a: {args: [x]}}\n", "upstreams.a", 1, 13, ["neither"]),
        ("mcpServers: {a: {command: x}}\n", "mcpServers", 1, 1, ["`upstreams`", "mcp-code-portal import"]),
        ("servers: {a: {command: x}}\n", "servers", 1, 1, ["`upstreams`", "mcp-code-portal import"]),
        ("mcp_servers: {a: {command: x}}\n", "mcp_servers", 1, 1, ["`upstreams`", "mcp-code-portal import"]),
        (UPSTREAM + "    type: stdio\n", "upstreams.a.type", 4, 5, ["Leave it out: `command`"]),
        (URL + "    type: http\n", "upstreams.a.type", 4, 5, ["Leave it out: `url`"]),
        (URL + "    type: sse\n", "upstreams.a.type", 4, 5, ["Write `transport: sse`"]),
        (
            UPSTREAM + "    disabled: true\n",
            "upstreams.a.disabled",
            4,
            5,
            ["Remove the entry", "start: lazy"],
        ),
        (UPSTREAM + "    disabled: false\n", "upstreams.a.disabled", 4, 5, ["Leave it out"]),
        (UPSTREAM + "    enabled: false\n", "upstreams.a.enabled", 4, 5, ["Remove the entry"]),
        ("upstreams: {a: {comand: x}}\n", "upstreams.a", 1, 13, ["Did you mean command"]),
        ("upstreams: {a: {command: x, url: 'http://x'}}\n", "upstreams.a", 1, 13, ["both"]),
        ("upstreams: {a: {url: 'http://x', args: []}}\n", "upstreams.a.args", 1, 34, ["reached by url"]),
        ("upstreams: {a: {command: x, headers: {}}}\n", "upstreams.a.headers", 1, 29, ["with a command"]),
        (UPSTREAM + "    args: [1]\n", "upstreams.a.args.0", 4, 12, ["item 1 of args", "string", "quotes"]),
        (UPSTREAM + "    args: x\n", "upstreams.a.args", 4, 11, ["a list"]),
        (UPSTREAM + "    env: {PORT: 80}\n", "upstreams.a.env.PORT", 4, 17, ["a string", "quotes"]),
        (UPSTREAM + "    env: {FLAG: true}\n", "upstreams.a.env.FLAG", 4, 17, ["a string", "quotes"]),
        (UPSTREAM + "    env: {A: }\n", "upstreams.a.env.A", 4, 14, ["empty", '""']),
        (UPSTREAM + "    env: {A=B: x}\n", "upstreams.a.env.A=B", 4, 11, ["environment variable"]),
        (UPSTREAM + '    env: {A: "\\0"}\n', "upstreams.a.env.A", 4, 14, ["NUL"]),
        (UPSTREAM + "    cwd: 5\n", "upstreams.a.cwd", 4, 10, ["string"]),
        (UPSTREAM + "    cwd: ''\n", "upstreams.a.cwd", 4, 10, ["at least one character"]),
        (UPSTREAM + "    call_seconds: -1\n", "upstreams.a.call_seconds", 4, 19, ["-1", "above 0", "3600"]),
        (UPSTREAM + "    call_seconds: .nan\n", "upstreams.a.call_seconds", 4, 19, ["nan", "above 0"]),
        (UPSTREAM + "    tools: [x]\n", "upstreams.a.tools", 4, 12, ["mapping"]),
        (UPSTREAM + "    retries: {alow: []}\n", "upstreams.a.retries.alow", 4, 15, ["Did you mean allow?"]),
        (UPSTREAM + "    sampling: {dept: 2}\n", "upstreams.a.sampling.dept", 4, 16, ["Did you mean depth?"]),
        (UPSTREAM + "    tools: {alow: []}\n", "upstreams.a.tools.alow", 4, 13, ["Did you mean allow?"]),
        ("upstreams: {a: {command: ''}}\n", "upstreams.a.command", 1, 26, ["at least one character"]),
        ("upstreams: {a: {url: 'ftp://x'}}\n", "upstreams.a.url", 1, 22, ["http://"]),
        ("upstreams: {a: {url: 'http://'}}\n", "upstreams.a.url", 1, 22, ["http://"]),
        ("upstreams: {a: {url: 'http://[x'}}\n", "upstreams.a.url", 1, 22, ["http://"]),
        ("upstreams: {a: {url: 'http://x:99999'}}\n", "upstreams.a.url", 1, 22, ["http://"]),
        ("upstreams: {a: {url: 'http://x/ y'}}\n", "upstreams.a.url", 1, 22, ["space"]),
        ("upstreams: {a: {url: 'http://x', transport: http}}\n", "upstreams.a.transport", 1, 45, ["sse"]),
        (
            "upstreams: {a: {url: 'http://x', headers: {a b: c}}}\n",
            "upstreams.a.headers.a b",
            1,
            44,
            ["header"],
        ),
        (
            'upstreams: {a: {url: "http://x", headers: {a: "b\\r\\nc: d"}}}\n',
            "upstreams.a.headers.a",
            *(1, 47, ["line break"]),
        ),
        ("upstreams: {'': {command: x}}\n", "upstreams.", 1, 13, ["upstream"]),
        ("upstreams: {'--': {command: x}}\n", "upstreams.--", 1, 13, ["upstream"]),
        ('upstreams: {"a\\nb": {command: x}}\n', "upstreams.a\nb", 1, 13, ["upstream"]),
        (f"upstreams: {{{'a' * 101}: {{command: x}}}}\n", f"upstreams.{'a' * 101}", 1, 13, ["at most 100"]),
        ("upstreams:\n  a-b: {command: x}\n  a.b: {command: x}\n", "upstreams.a.b", 3, 3, ["2:3", "a_b"]),
        (
            "upstreams:\n  time: {command: x}\n  time_: {command: x}\n",
            "upstreams.time_",
            3,
            3,
            ["2:3", "time_"],
        ),
        ("upstreams:\n  a: {command: x}\n  a: {command: y}\n", "upstreams.a", 3, 3, ["twice", "2:3"]),
        ("capabilities: {limits: {tool_calls: -1}}\n", "capabilities.limits.tool_calls", 1, 37, ["-1", "0"]),
        ("capabilities: {limits: {tool_calls: 1.5}}\n", "capabilities.limits.tool_calls", 1, 37, ["whole"]),
        (
            "capabilities: {limits: {tool_calls: '9'}}\n",
            "capabilities.limits.tool_calls",
            1,
            37,
            ["'9'", "whole"],
        ),
        ("capabilities: {limits: {tool_calls: true}}\n", "capabilities.limits.tool_calls", 1, 37, ["true"]),
        (
            "capabilities: {limits: {memory_mib: 8}}\n",
            "capabilities.limits.memory_mib",
            1,
            37,
            ["32", "1024"],
        ),
        (
            "capabilities: {limits: {wall_seconds: 0}}\n",
            "capabilities.limits.wall_seconds",
            1,
            39,
            ["above 0"],
        ),
        (
            "capabilities: {environment: {A: 1}}\n",
            "capabilities.environment.A",
            1,
            33,
            ["a number", "quotes"],
        ),
        ("capabilities: {environment: {A-B: x}}\n", "capabilities.environment.A-B", 1, 30, ["A-B", "digits"]),
        ("capabilities: {environment: [A]}\n", "capabilities.environment", 1, 29, ["a mapping"]),
        ("capabilities: {files: {}}\n", "capabilities.files.workspace", 1, 16, ["files needs workspace"]),
        ("capabilities: {files: data}\n", "capabilities.files", 1, 23, ["a mapping"]),
        (
            "capabilities: {files: {workspace: ''}}\n",
            "capabilities.files.workspace",
            1,
            35,
            ["one character"],
        ),
        ("capabilities: {files: {workspace: a, mod: x}}\n", "capabilities.files.mod", 1, 38, ["mode"]),
        (
            "capabilities: {files: {workspace: a, mode: rw}}\n",
            "capabilities.files.mode",
            1,
            44,
            ["'rw'", "write"],
        ),
        (
            "capabilities: {files: {workspace: a, share: run}}\n",
            "capabilities.files",
            1,
            23,
            ["nothing to read", "write"],
        ),
        (
            "capabilities: {files: {workspace: a, total_bytes: 1k}}\n",
            "capabilities.files.total_bytes",
            1,
            51,
            ["1k", "whole"],
        ),
        (
            "capabilities: {files: {workspace: a, file_bytes: 0}}\n",
            "capabilities.files.file_bytes",
            1,
            50,
            ["at least 1"],
        ),
        ("capabilities: {network: {}}\n", "capabilities.network", 1, 25, ["no host", "allow"]),
        ("capabilities: {network: {allow: a.b}}\n", "capabilities.network.allow", 1, 33, ["a list"]),
        (
            "capabilities: {network: {allow: ['http://a.b']}}\n",
            "capabilities.network.allow.0",
            1,
            34,
            ["host"],
        ),
        ("capabilities: {network: {allow: [a.b/c]}}\n", "capabilities.network.allow.0", 1, 34, ["host"]),
        (
            "capabilities: {network: {private: ['*']}}\n",
            "capabilities.network",
            1,
            25,
            ["every private", "name"],
        ),
        (
            "capabilities: {network: {allow: [a.b], seconds: 0}}\n",
            "capabilities.network.seconds",
            1,
            49,
            ["above 0"],
        ),
        ("capabilities: {network: {alow: [a.b]}}\n", "capabilities.network.alow", 1, 26, ["allow"]),
        ("capabilities: {tools: {deny: x}}\n", "capabilities.tools.deny", 1, 30, ["a list"]),
        ("capabilities: {tools: {deny: ['']}}\n", "capabilities.tools.deny.0", 1, 31, ["one character"]),
        ("server: {check: maybe}\n", "server.check", 1, 17, ["'maybe'", "strict", "warn", "off"]),
        ("server: {repairs: sure}\n", "server.repairs", 1, 19, ["'sure'", "must be true or false"]),
        ("audit: {to: stderr, sync: 3}\n", "audit.sync", 1, 27, ["3", "must be true or false"]),
        ("audit: {to: stderr, sinc: true}\n", "audit.sinc", 1, 21, ["Did you mean sync?", "to, sync"]),
        (
            "capabilities: {tools: {budgets: [{tool: a, calls: x}]}}\n",
            "capabilities.tools.budgets.0.calls",
            *(1, 51, ["'x'", "a whole number, at least 0 and at most 1000000"]),
        ),
        (
            "capabilities: {tools: {budgets: [{tool: a, calls: -1}]}}\n",
            "capabilities.tools.budgets.0.calls",
            *(1, 51, ["-1", "a whole number, at least 0"]),
        ),
        ("server: {token: ''}\n", "server.token", 1, 17, ["at least one"]),
        ("server: {token: 'a b'}\n", "server.token", 1, 17, ["spaces"]),
        ("server: {workers: 0}\n", "server.workers", 1, 19, ["whole number", "at least 1"]),
        ("server: {allowed_hosts: ['http://x']}\n", "server.allowed_hosts.0", 1, 26, ["host"]),
        ("server: {allowed_origins: [x]}\n", "server.allowed_origins.0", 1, 28, ["origin"]),
    ],
)
def test_problem_says_what_where_and_what_is_allowed(
    problems: Problems, text: str, key: str, line: int, column: int, words: list[str]
) -> None:
    [problem] = problems(text)
    assert (problem.key, problem.line, problem.column) == (key, line, column)
    for word in words:
        assert word in f"{problem.message} {problem.hint}"


def test_everything_wrong_is_said_at_once_in_the_files_order(load: Load) -> None:
    with pytest.raises(ManifestError) as caught:
        load(
            "serverr: {}\n"
            "upstreams:\n"
            "  a: {command: '${MISSING}', args: 5}\n"
            "  a: {command: x}\n"
            "  b-c: {url: 'gopher://x'}\n"
            "  b_c: {command: x}\n"
            "  7: {command: x}\n"
            "capabilities: {limits: {tool_calls: no, memory_mib: 1}}\n"
        )
    error = caught.value
    assert [problem.line for problem in error.problems] == [1, 3, 3, 4, 5, 6, 7, 8, 8]
    for place in ("1:1", "3:16", "3:36", "4:3", "5:14", "6:3", "7:3", "8:37", "8:53"):
        assert f"portal.yaml:{place}: " in str(error)


def test_error_travels_without_pydantics_own(load: Load) -> None:
    with pytest.raises(ManifestError) as caught:
        load("server: {token: 'two words'}\n")
    error: BaseException | None = caught.value
    while error:
        assert isinstance(error, ManifestError)
        error = error.__cause__ or error.__context__


def test_thousands_of_mistakes_are_told_briefly(load: Load) -> None:
    with pytest.raises(ManifestError) as caught:
        load("".join(f"key{n}: 1\n" for n in range(5000)))
    assert len(str(caught.value).splitlines()) < 250


def test_control_characters_in_the_file_do_not_reach_the_terminal(load: Load) -> None:
    with pytest.raises(ManifestError) as caught:
        load('"\\e[2Jx": 1\nserver: {check: "\\e[2J", "a\\e": 1}\nupstreams: {"b\\e": {command: x}}\n')
    assert "\x1b" not in str(caught.value)


def test_file_that_cannot_be_read_is_told_with_its_whole_path(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.yaml", tmp_path):
        with pytest.raises(ManifestError) as caught:
            load_manifest(path, {})
        assert str(path) in str(caught.value)


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
    assert find_manifest(Path("asked.yaml"), named) == Path("asked.yaml")


def test_folder_is_absolute_even_if_the_path_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("portal.yaml").touch()
    assert load_manifest(Path("portal.yaml"), {}).folder == tmp_path


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_examples_load(path: Path) -> None:
    environ = {"PORTAL_TOKEN": "p", "TICKETS_TOKEN": "t", "MCP_CODE_PORTAL_TOKEN": "m"}
    assert load_manifest(path, environ).path == path


def test_manifest_of_a_thousand_upstreams_is_loaded(load: Load) -> None:
    text = "".join(f'  "server-{n}":\n    url: http://127.0.0.1:8765/server-{n}/mcp\n' for n in range(1000))
    manifest = load("upstreams:\n" + text)
    assert len(set(manifest.namespaces.values())) == 1000
    assert manifest.where("upstreams", "server-999", "url") == "portal.yaml:2001:5"


keys = st.sampled_from(
    ["upstreams", "capabilities", "server", "tools", "limits", "a", "command", "url", "env", "x"]
)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.just("${A}")
)
documents = st.recursive(
    scalars, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=4))
)


@given(st.one_of(documents.map(repr), st.dictionaries(keys, documents, max_size=4).map(repr), st.text()))
def test_any_file_loads_or_is_refused_with_problems(load: Load, text: str) -> None:
    try:
        load(text.encode("utf-8", "replace"), A="1")
    except ManifestError as error:
        assert error.problems
        assert all(problem.message and problem.line for problem in error.problems)
