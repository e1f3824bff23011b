"""`mcp-code-portal import`: what becomes of the servers that other clients are configured with."""

import json
import stat
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from manifests.json_value import Json
from manifests.loader import load_manifest, read_yaml
from portal.cli.importing.clients import client_files
from portal.cli.importing.merging import dumped
from tests.portal.homes import Person

GITHUB: dict[str, Json] = {
    "command": "npx",
    "args": ["-y", "server-github", "--api-key", "sk-abcdefghij0123456789"],
    "env": {"GITHUB_TOKEN": "hunter2", "HOST": "https://api.example", "NODE_ENV": "production"},
    "timeout": 5,
}
SECRETS = ("hunter2", "sk-abcdefghij0123456789")
TIME: Json = {"command": "uvx", "args": ["mcp-server-time"]}
HUB: Json = {"command": "hub", "env": {"HUB_TOKEN": "hunter2"}}
CODEX = """\
model = "x"  # mine

# the time
[mcp_servers.time]
command = "uvx"
args = ["mcp-server-time"]

[mcp_servers.hub]
command = "hub"
env = { HUB_TOKEN = "hunter2" }

[tui]
theme = "dark"
"""


def test_every_client_is_looked_for_where_it_keeps_its_servers(tmp_path: Path) -> None:
    found = {file.name: file.path for file in client_files("linux", {}, tmp_path, tmp_path / "work")}
    assert found["claude-desktop"] == tmp_path / ".config/Claude/claude_desktop_config.json"
    assert found["codex-project"] == tmp_path / "work/.codex/config.toml"
    assert found["vscode-insiders"] == tmp_path / ".config/Code - Insiders/User/mcp.json"
    keys = {file.client.name: file.client.key for file in client_files("linux", {}, tmp_path, None)}
    others = {"codex": "mcp_servers", "goose": "extensions", "opencode": "mcp", "vscode": "servers"}
    others["zed"] = "context_servers"
    assert keys == {**dict.fromkeys(keys, "mcpServers"), **others}
    assert all(file.project is None for file in client_files("linux", {}, tmp_path, None))
    mac = {file.name: file.path for file in client_files("darwin", {}, tmp_path, None)}
    support = tmp_path / "Library/Application Support"
    assert mac["claude-desktop"] == support / "Claude/claude_desktop_config.json"
    assert mac["roo"].is_relative_to(support / "Code/User/globalStorage")
    assert (mac["zed"], mac["goose"]) == (found["zed"], found["goose"])
    moved = client_files("linux", {"CODEX_HOME": "/codex", "CLAUDE_CONFIG_DIR": "/claude"}, tmp_path, None)
    assert {Path("/codex/config.toml"), Path("/claude/.claude.json")} < {file.path for file in moved}


def test_what_was_found_is_shown_and_written_without_values(person: Person) -> None:
    path = person.servers("cursor", github=GITHUB, bad={})
    before = path.read_bytes()
    done = person()
    assert done.returncode == 0
    text = person.manifest.read_text()
    assert not any(secret in done.stdout + done.stderr + text for secret in SECRETS)
    for told in ("github", "~/.cursor/mcp.json", "not imported: timeout", "neither a command nor a URL"):
        assert told in done.stdout
    assert "GITHUB_API_KEY, GITHUB_TOKEN" in done.stderr and "--save-secrets" in done.stderr
    assert "NODE_ENV: production" in text  # the values of variables are masked in results
    values = {"GITHUB_API_KEY": SECRETS[1], "GITHUB_TOKEN": SECRETS[0]}
    [upstream] = load_manifest(person.manifest, values).portal.upstreams.values()
    said = upstream.model_dump()
    assert (said["args"], said["env"]) == (tuple(GITHUB["args"]), GITHUB["env"])
    assert path.read_bytes() == before and not person.env.exists()


@pytest.mark.parametrize(
    ("client", "entry", "spec"),
    [
        ("cursor", {"command": "/My App/x"}, {"command": "/My App/x"}),
        (
            "claude-code",
            {"command": "x", "args": ["${A}", "${B:-b}", "${C}"], "env": {"C": "${A}"}},
            {"command": "x", "args": ["${A}", "${B:-b}", "$${C}"], "env": {"C": "${A}"}},
        ),
        (
            "gemini",
            {"httpUrl": "https://a.example/mcp", "headers": {"Authorization": "Bearer abc"}},
            {"url": "https://a.example/mcp", "headers": {"Authorization": "Bearer ${IT_AUTHORIZATION}"}},
        ),
        ("gemini", {"url": "https://a.example"}, {"url": "https://a.example", "transport": "sse"}),
        (
            "vscode",
            {"url": "https://a.example/?key=k&b=${input:my-b}", "headers": {"X": "${input:my-b}"}},
            {"url": "https://a.example/?key=${IT_KEY}&b=${MY_B}", "headers": {"X": "${MY_B}"}},
        ),
        (
            "windsurf",
            {"serverUrl": "https://a.example/sse", "disabledTools": ["rm_*"]},
            {"url": "https://a.example/sse", "transport": "sse", "tools": {"deny": ["rm_[*]"]}},
        ),
        (
            "cursor-project",
            {"command": "./x", "args": ["${workspaceFolder}/y"]},
            {"command": "./x", "args": ["WORK/y"], "cwd": "WORK"},
        ),
        (
            "gemini",
            {"command": "x", "env": {"REGION": "$AWS_REGION", "DATA": "$HOME/data"}},
            {"command": "x", "env": {"REGION": "${AWS_REGION}", "DATA": "${HOME}/data"}},
        ),
        ("vscode", {"command": "x", "args": ["${input:path}"]}, {"command": "x", "args": ["${IT_PATH}"]}),
    ],
)
def test_entry_becomes_an_upstream(person: Person, client: str, entry: Json, spec: Json) -> None:
    text = json.dumps(spec).replace("WORK", str(person.project))
    assert person.spec(client, entry) == json.loads(text)


@pytest.mark.parametrize(
    ("client", "written", "becomes"),
    [
        ("claude-desktop", "A:${AUTH}", "A:$${AUTH}"),
        ("gemini", "$AB/$b", "${AB}/$b"),
        ("cursor", "${env:A} ${userHome} ${other}", "${A} HOME $${other}"),
        ("cursor", "postgres://me:hunter2@db/x", "postgres://me:${IT_PASSWORD}@db/x"),
        ("cursor", "--token=ghp_0123456789abcdef", "--token=${IT_TOKEN}"),
    ],
)
def test_references_and_secrets_in_arguments_become_references(
    person: Person, client: str, written: str, becomes: str
) -> None:
    spec = person.spec(client, {"command": "x", "args": [written]})
    assert spec["args"] == [becomes.replace("HOME", str(person.home))]


@pytest.mark.parametrize(
    ("client", "entry", "reason"),
    [
        ("cursor", [], "not an object"),
        ("cursor", {}, "neither a command nor a URL"),
        ("cursor", {"command": "x", "disabled": True}, "disabled"),
        ("cursor", {"command": "npx @scope/x"}, "write them as args"),
        ("cursor", {"command": "/bin/x --stdio"}, "write them as args"),
        ("cursor", {"command": "x", "args": "y"}, "not a list of strings"),
        ("cursor", {"command": "x", "env": {"A": []}}, "not an object of strings"),
        ("cursor", {"command": "x", "env": {"A": "${command:pick}"}}, "only the client can expand"),
        ("cursor", {"command": "x", "env": {"A": "postgres://me:hunter2@${env:HOST}"}}, "combines a secret"),
        ("cursor", {"type": "websocket", "url": "wss://a.example"}, "does not support its type"),
        ("cursor", {"url": "not a url"}, "url contains"),
        ("cursor", {"command": "x\0"}, ""),
        ("claude-code", {"url": "https://a.example", "headersHelper": "x"}, "which the portal does not run"),
        ("cursor", {"command": "/bin/mcp-code-portal", "args": ["serve"]}, "the portal itself"),
        ("cursor", {"command": "uvx", "args": ["mcp-code-portal", "serve"]}, "the portal itself"),
    ],
)
def test_what_cannot_be_taken_over_is_told(person: Person, client: str, entry: Json, reason: str) -> None:
    assert reason in person.reason(client, entry)


def test_servers_of_projects_in_claude_codes_own_file_start_there(person: Person) -> None:
    text = {"mcpServers": {"a": TIME}, "projects": {"/src": {"mcpServers": {"b": HUB}}, "/none": {}}}
    person.write("claude-code", json.dumps(text))
    assert [(each.name, (each.spec or {}).get("cwd")) for each in person.merged().imported] == [
        ("a", None),
        ("b", "/src"),
    ]
    assert "was for /src alone" in person().stdout


def test_same_server_is_one_and_different_ones_of_a_name_are_told_apart(person: Person) -> None:
    person.servers("claude-desktop", clock=TIME, hub=HUB, **{"a-b": {"command": "one"}})
    person.servers("cursor", time=TIME, hub={"command": "other"}, a_b={"command": "two"})
    names = {each.name: len(each.origins) for each in person.merged().imported}
    assert names == {"clock": 2, "hub": 1, "a-b": 1, "hub-cursor": 1, "a_b-cursor": 1}


def test_files_of_a_project_are_read_only_if_asked_for(person: Person) -> None:
    person.servers("cursor", mine={"command": "x"})
    person.servers("claude-code-project", theirs={"command": "y"})
    assert [each.name for each in person.merged().imported] == ["mine"]
    refused = person("cursor-project")
    assert refused.returncode == 2 and "--project" in refused.stderr
    done = person("--project", ".")
    assert "theirs: from files of the project" in done.stderr
    assert set(load_manifest(person.manifest, {}).portal.upstreams) == {"mine", "theirs"}


def test_only_the_clients_that_are_asked_for_are_read(person: Person) -> None:
    person.servers("cursor", a={"command": "a"})
    person.servers("windsurf", c={"command": "c"})
    done = person("--dry-run", "cursor")
    assert "+ a: a" in done.stdout and "+ c" not in done.stdout
    assert person("emacs").returncode == person("--install", "emacs").returncode == 2
    assert not person.manifest.exists()


@pytest.mark.parametrize(
    ("client", "content", "line"),
    [
        ("cursor", '// mine\n{"mcpServers": {"a" 1}}', 2),
        ("codex", "a = 1\n[mcp_servers", 2),
        ("cursor", b'{\n"a": "\xff"}', 2),
        ("cursor", "[" * 100_000, None),
        ("goose", "extensions:\n  a: {b: c}\n  d: [\n", 4),
    ],
)
def test_unusable_file_is_told_with_its_line(
    person: Person, client: str, content: str | bytes, line: int | None
) -> None:
    broken = person.write(client, content)
    person.servers("windsurf", fine={"command": "x"})
    done = person()
    assert done.returncode == 1 and (f"{broken}:{line}: " if line else str(broken)) in done.stderr
    assert list(load_manifest(person.manifest, {}).portal.upstreams) == ["fine"]


def test_manifest_that_is_not_utf_8_is_told_with_its_place(person: Person) -> None:
    person.servers("cursor", time=TIME)
    person.manifest.write_bytes(b"# caf\xe9\n")
    done = person()
    assert done.returncode == 2 and "portal.yaml:1:6: not UTF-8" in done.stderr


def test_nothing_found_is_told(person: Person) -> None:
    done = person()
    assert done.returncode == 1 and not person.manifest.exists()
    assert "docs/import.md" in done.stderr and "write portal.yaml" in done.stderr


def test_manifest_that_is_there_keeps_its_text(person: Person) -> None:
    person.servers("cursor", github=GITHUB, time=TIME)
    text = "\ufeff# mine\r\nupstreams:\r\n  mine: {command: x}  # keep\r\n\r\n# theirs\r\nserver: {}\r\n"
    person.manifest.write_bytes(text.encode())
    person.manifest.chmod(0o664)
    done = person()
    assert done.returncode == 2 and person.manifest.read_bytes() == text.encode()
    assert "github:" in done.stdout and "--add" in done.stderr and "hunter2" not in done.stdout
    assert person("--add", "--dry-run").returncode == 0 and person.manifest.read_bytes() == text.encode()
    assert person("--add").returncode == 0
    now = person.manifest.read_bytes().decode()
    assert stat.S_IMODE(person.manifest.stat().st_mode) == 0o664
    start, end = text.split("upstreams:\r\n")
    assert now.startswith(start) and now.endswith(f"[mcp-server-time]\r\n\r\n{end}")
    values = dict.fromkeys(("GITHUB_API_KEY", "GITHUB_TOKEN"), "x")
    assert set(load_manifest(person.manifest, values).portal.upstreams) == {"mine", "github", "time"}
    assert person("--add").returncode == 0 and person.manifest.read_bytes().decode() == now


@pytest.mark.parametrize(
    "text", ["upstreams: {mine: {command: x}}\n", "upstreams:\n    mine: {command: x}\n"]
)
def test_lines_are_printed_for_a_manifest_that_cannot_be_added_to(person: Person, text: str) -> None:
    person.servers("cursor", time=TIME)
    person.manifest.write_text(text)
    done = person("--add")
    assert done.returncode == 2 and "uvx" in done.stdout and "indented by two" in done.stderr
    assert person.manifest.read_text() == text


def test_no_program_of_a_file_or_a_manifest_is_started(person: Person, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    evil = f"touch {mark}"
    person.servers(
        "claude-code",
        a={"command": "sh", "args": ["-c", evil]},
        b={"command": f"$({mark})", "env": {"X": f"`{evil}`"}, "args": [f"${{command:{evil}}}"]},
    )
    person.manifest.write_text(f'upstreams:\n  m: {{command: x, env: {{A: "${{command:touch {mark}}}"}}}}\n')
    assert person("--add", "--save-secrets").returncode == 0
    text = person.manifest.read_text()
    person.manifest.write_text(text.replace(f'"${{command:touch {mark}}}"', "x"))
    [argument] = load_manifest(person.manifest, {}).portal.upstreams["b"].model_dump()["args"]
    assert argument == f"${{command:{evil}}}" and not mark.exists()


def test_json_says_everything_and_no_secret(person: Person) -> None:
    person.servers("cursor", github=GITHUB, off={"command": "x", "disabled": True})
    done = person("--json", "--save-secrets")
    facts = json.loads(done.stdout)
    assert not any(secret in done.stdout for secret in SECRETS)
    assert [(each["name"], each["is_new"]) for each in facts["servers"]] == [("github", True)]
    assert [each["name"] for each in facts["left_out"]] == ["off"]
    assert sorted(facts["variables"]) == ["GITHUB_API_KEY", "GITHUB_TOKEN"]


def servers_of(path: Path) -> dict[str, Json]:
    if path.suffix == ".toml":
        return dict(tomllib.loads(path.read_text())["mcp_servers"])
    found = json.loads(path.read_text())
    return dict(found.get("mcpServers", found.get("servers")))


@pytest.mark.parametrize("client", ["zed", "opencode", "goose"])
def test_file_with_other_settings_is_only_read(person: Person, client: str) -> None:
    before = person.servers(client, time=TIME).read_bytes()
    done = person("--install", client)
    assert done.returncode == 1 and f"serve --config {person.manifest}" in done.stderr
    assert person.path(client).read_bytes() == before and not person.manifest.exists()
    assert person().returncode == 0
    assert "time" in load_manifest(person.manifest, {}).portal.upstreams


@pytest.mark.parametrize("client", ["claude-code", "vscode-project", "codex", "cursor"])
def test_portal_takes_the_place_of_the_servers_and_undo_gives_them_back(person: Person, client: str) -> None:
    if client.startswith("codex"):
        path = person.write(client, CODEX)
    else:
        path = person.servers(client, time=TIME, hub=HUB, bad={})
        path.write_bytes(b"// mine\n" + path.read_bytes())
    path.chmod(0o640)
    before = path.read_bytes()
    project = ("--project", ".")
    done = person(*project, "--save-secrets", "--install", client)
    assert done.returncode == 0, done.stderr
    there = servers_of(path)
    assert set(there) - {"bad"} == {"portal"}
    words = [there["portal"]["command"], *there["portal"]["args"]]
    assert words[-3:] == ["serve", "--config", str(person.manifest)] and Path(words[0]).is_absolute()
    assert b"hunter2" not in path.read_bytes() and stat.S_IMODE(path.stat().st_mode) == 0o640
    assert person(*project, "--install", client).returncode == 1
    assert person(*project, "--undo", client).returncode == 0
    assert path.read_bytes() == before and not [*path.parent.glob("*.before-portal*")]
    assert person(*project, "--undo", client).returncode == 1


def test_undo_gives_back_a_portal_that_was_there_by_hand(person: Person) -> None:
    own = {"command": "mcp-code-portal", "args": ["serve", "--config", "/old/portal.yaml"]}
    path = person.servers("cursor", time=TIME, portal=own)
    before = path.read_bytes()
    assert person("--install", "cursor").returncode == 0
    assert [*servers_of(path)] == ["portal"] and b"/old" not in path.read_bytes()
    for more in (("--dry-run",), ("--install", "gemini")):
        assert person("--undo", "cursor", *more).returncode == 2
    assert [*servers_of(path)] == ["portal"] and person("--undo", "cursor").returncode == 0
    assert path.read_bytes() == before


def test_file_whose_settings_would_move_stays(person: Person) -> None:
    path = person.write("codex", 'mcp_servers.a = {command = "npx"}\napproval_policy = "never"\n')
    before = path.read_bytes()
    for options in ((), ("--dry-run",)):
        done = person("--install", "codex", *options)
        assert done.returncode != 0 and "as tables" in done.stderr
    assert path.read_bytes() == before and not [*path.parent.glob("*.before-portal*")]


def test_servers_that_gemini_leaves_out_are_left_out(person: Person) -> None:
    path = person.servers("gemini", gh={"command": "gh"}, off={"command": "off"})
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, "mcp": {"allowed": ["gh"]}}))
    assert "it is disabled in the client" in person().stdout
    assert [*load_manifest(person.manifest, {}).portal.upstreams] == ["gh"]
    done = person("--install", "gemini")
    assert done.returncode != 0 and "mcp.allowed" in done.stderr
    assert "portal" not in json.loads(path.read_text())["mcpServers"]


def test_input_of_vscode_is_the_same_server_once_its_variable_is_set(person: Person) -> None:
    person.servers("vscode", hub={"command": "hub", "env": {"HUB_KEY": "${input:hub-key}"}})
    person("--save-secrets")
    person.env.write_text("HUB_KEY=hunter2hunter2\n")
    person.env.chmod(0o600)
    assert person("--install", "vscode").returncode == 0


@pytest.mark.parametrize("text", [None, '{"mcpServers": null}'])
def test_file_without_servers_gets_the_portal_and_is_as_before_once_undone(
    person: Person, text: str | None
) -> None:
    person.servers("cursor", time=TIME)
    path = person.path("gemini") if text is None else person.write("gemini", text)
    assert person("--install", "cursor", "--install", "gemini").returncode == 0
    assert [*servers_of(path)] == ["portal"]
    assert person("--undo", "gemini").returncode == 0
    assert (path.read_text() if path.exists() else None) == text


@pytest.mark.parametrize("client", ["cursor", "codex"])
def test_undo_keeps_what_changed_since_and_brings_the_servers_back(person: Person, client: str) -> None:
    is_toml = client == "codex"
    path = person.write("codex", CODEX) if is_toml else person.servers("cursor", time=TIME, hub=HUB)
    before = path.read_bytes()
    assert person("--save-secrets", "--install", client).returncode == 0
    if is_toml:
        path.write_text(path.read_text().replace("dark", "light") + '[mcp_servers.fresh]\ncommand = "f"\n')
    else:
        path.write_text(json.dumps({"mcpServers": {**servers_of(path), "fresh": {"command": "f"}}}))
    done = person("--undo", client)
    assert done.returncode == 0
    assert set(servers_of(path)) == {"time", "hub", "fresh"}
    assert not is_toml or "light" in path.read_text()
    [kept] = [each for each in path.parent.iterdir() if each != path]
    assert str(kept) in done.stderr and kept.read_bytes() == before


OF_CLIENTS: dict[str, tuple[str, str, dict[str, str]]] = {
    "codex": (
        """[mcp_servers]
a = { command = "x", env_vars = ["A"], enabled_tools = ["one"] }
b = { url = "https://b.example", bearer_token_env_var = "B", env_http_headers = {X = "C"}, http_headers = {Y = "y"} }
""",
        """a: {command: x, env: {A: "${A}"}, tools: {allow: [one]}}
b: {url: "https://b.example", headers: {Y: "${B_Y}", X: "${C}", Authorization: "Bearer ${B}"}}""",
        {},
    ),
    "zed": (
        """// Zed settings
{"theme": "One Dark", "ssh_connections": [],
 "context_servers": {
  "git": {"source": "custom", "enabled": true, "command": "uvx", "args": ["mcp-server-git"], "env": {}},
  "web": {"url": "https://a.example/mcp", "headers": {"X-Region": "eu-west-2"}, },
  "mcp-server-context7": {"source": "extension", "enabled": true, "settings": {}},
  "off": {"enabled": false, "command": "off"}}}""",
        """git: {command: uvx, args: [mcp-server-git]}
web: {url: "https://a.example/mcp", headers: {X-Region: eu-west-2}}""",
        {"mcp-server-context7": "neither", "off": "disabled"},
    ),
    "cline": (
        """{"mcpServers": {
  "local": {"autoApprove": ["read"], "disabled": false, "timeout": 60, "type": "stdio",
            "command": "node", "args": ["/srv/x.js"], "env": {"API_KEY": "${env:API_KEY}"}},
  "remote": {"url": "https://a.example/mcp", "type": "streamableHttp", "headers": {"X-Key": "abc"}},
  "older": {"url": "https://b.example", "disabled": false},
  "off": {"command": "off", "disabled": true}}}""",
        """local: {command: node, args: [/srv/x.js], env: {API_KEY: "${API_KEY}"}}
remote: {url: "https://a.example/mcp", headers: {X-Key: "${REMOTE_X_KEY}"}}
older: {url: "https://b.example", transport: sse}""",
        {"off": "disabled"},
    ),
    "roo": (
        """{"mcpServers": {
  "fs": {"command": "npx", "args": ["-y", "fs", "${workspaceFolder}"], "alwaysAllow": ["read_file"],
         "disabledTools": ["write_file"], "watchPaths": ["/x"], "disabled": false},
  "web": {"type": "streamable-http", "url": "https://a.example/mcp"}}}""",
        """fs: {command: npx, args: [-y, fs, CWD], tools: {deny: [write_file]}}
web: {url: "https://a.example/mcp"}""",
        {},
    ),
    "opencode": (
        """{"$schema": "https://opencode.ai/config.json", "theme": "x", // mine
 "mcp": {
  "one": {"type": "local", "command": ["bun", "x", "one"], "enabled": true, "environment": {"ONE_TOKEN": "{env:TOK}"}},
  "two": {"type": "remote", "url": "https://a.example/mcp", "headers": {"Authorization": "Bearer {env:TOK}"}},
  "filed": {"type": "remote", "url": "https://b.example", "headers": {"Authorization": "{file:~/.key}"}},
  "bad": {"type": "local", "command": [1]},
  "off": {"type": "local", "command": ["off"], "enabled": false}}}""",
        """one: {command: bun, args: [x, one], env: {ONE_TOKEN: "${TOK}"}}
two: {url: "https://a.example/mcp", headers: {Authorization: "Bearer ${TOK}"}}""",
        {"filed": "only the client", "bad": "not a string", "off": "disabled"},
    ),
    "opencode-jsonc": (
        """{"mcp": {"timeout": 5, "servers": {"one": {"type": "local", "command": ["bun", "x"], "cwd": "/srv"},
  "off": {"type": "remote", "url": "https://a.example", "disabled": true}}}}""",
        "one: {command: bun, args: [x], cwd: /srv}",
        {"off": "disabled"},
    ),
    "goose": (
        """# mine
GOOSE_MODEL: gpt-4o
extensions:
  developer: {bundled: true, enabled: true, name: developer, timeout: 300, type: builtin}
  github:
    type: stdio
    name: GitHub
    enabled: true
    cmd: npx
    args: ["-y", "github", "1e3"]
    envs: {LEVEL: "0o17"}
    env_keys: [GITHUB_TOKEN]
    available_tools: []
    timeout: 300
  web:
    {type: streamable_http, enabled: true, uri: "https://a.example/mcp", envs: {WEB_KEY: hunter2}, env_keys: [],
     headers: {K: "${WEB_KEY}"}, available_tools: [search]}
  older: {type: sse, enabled: true, uri: "https://b.example"}
  off: {type: stdio, enabled: false, cmd: "off", args: []}
""",
        """github: {command: npx, args: [-y, github, "1e3"], env: {LEVEL: "0o17", GITHUB_TOKEN: "${GITHUB_TOKEN}"}}
web: {url: "https://a.example/mcp", headers: {K: "${WEB_KEY}"}, tools: {allow: [search]}}
older: {url: "https://b.example", transport: sse}""",
        {"developer": "builtin", "off": "disabled"},
    ),
    "copilot": (
        """{"mcpServers": {
  "play": {"type": "local", "command": "npx", "args": ["-y", "play"], "tools": ["*"], "env": {"TOK": "${MY_TOK}"}},
  "docs": {"type": "http", "url": "https://a.example/mcp", "headers": {}, "tools": ["search", "read"]}}}""",
        """play: {command: npx, args: [-y, play], env: {TOK: "${MY_TOK}"}}
docs: {url: "https://a.example/mcp", tools: {allow: [search, read]}}""",
        {},
    ),
}
"""The file of each client, the upstreams that it becomes, and why others are left out."""


@pytest.mark.parametrize("client", OF_CLIENTS)
def test_file_as_its_client_writes_it_is_read_whole(person: Person, client: str) -> None:
    text, specs, left = OF_CLIENTS[client]
    person.write(client, text)
    merged = person.merged(client)
    told = json.dumps({each.name: each.spec for each in merged.imported}).replace(f'"{Path.cwd()}"', '"CWD"')
    assert json.loads(told) == read_yaml(specs).data
    reasons = {each.origin.name: each.reason for each in merged.skipped}
    assert reasons.keys() == left.keys() and all(why in reasons[name] for name, why in left.items())


TEXTS = [
    *("1e3", "1E5", "12e34567", "12e03", "1e+3", "1.5e3", "0o17", ".5", "yes", "null", "~", "0x1f", "1_000"),
    *("2024-01-01", "=", "<<", "-a", "on", ".inf", "1:30"),
]


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12), max_size=4))
@example([*TEXTS, "- a", "a\n  b\n\n"])
def test_every_text_is_read_back_as_that_text(texts: list[str]) -> None:
    scalars = {f"key_{number}": text for number, text in enumerate(texts)}
    section = {"a": {**scalars, "args": texts, "env": dict.fromkeys(texts, "x")}}
    assert read_yaml("\n".join(dumped(section))).data == section


@pytest.mark.parametrize(
    ("edit", "stays"),
    [
        (
            lambda text: text.replace("args: [mcp-server-time]", "args: [mcp-server-time]\n    env: {A: b}"),
            set(),
        ),
        (lambda text: text.replace("command: uvx", 'command: "${RUNNER:-uvx}"'), set()),
        (lambda text: text.replace("  hub:", "  center:"), set()),
        (lambda text: text[: text.index("  hub:")], {"hub", "my-hub"}),
        (lambda text: "upstreams: {other: {command: x}}\n", {"time", "hub", "my-hub"}),
    ],
)
def test_install_works_after_any_edit_and_brings_nothing_back(
    person: Person, edit: Callable[[str], str], stays: set[str]
) -> None:
    path = person.servers("cursor", time=TIME, hub={"command": "hub"}, **{"my-hub": {"command": "my-hub"}})
    assert person().returncode == 0
    text = edit(person.manifest.read_text())
    person.manifest.write_text(text)
    done = person("--install", "cursor")
    assert done.returncode == 0, done.stderr
    assert person.manifest.read_text() == text and servers_of(path).keys() == {"portal", *stays}
    assert all(name in done.stderr.partition("not in portal.yaml:")[2] for name in stays)
    assert "with their keys" in done.stderr


def test_add_takes_an_edited_entry_for_the_clients(person: Person) -> None:
    person.servers("claude-desktop", time=TIME)
    person()
    person.manifest.write_text(
        person.manifest.read_text().replace("[mcp-server-time]", "[mcp-server-time, -v]")
    )
    person.servers("cursor", time=TIME, clock={"command": "clock"})
    assert person("--add", "--install", "cursor").returncode == 0
    assert [*load_manifest(person.manifest, {}).portal.upstreams] == ["clock", "time"]


def test_exact_entry_is_matched_before_one_that_only_has_the_name(person: Person) -> None:
    person.servers("cursor", time=TIME, fs={"command": "fs"})
    person()
    person.servers("claude-desktop", time={"command": "other"}, files={"command": "fs"})
    found = {
        (origin.file.name, origin.name): each.name
        for each in person.merged().imported
        for origin in each.origins
    }
    desktop = {("claude-desktop", "time"): "time-claude-desktop", ("claude-desktop", "files"): "fs"}
    assert found == {**desktop, ("cursor", "time"): "time", ("cursor", "fs"): "fs"}


@pytest.mark.parametrize(
    "text",
    [
        'upstreams:\n  time: {command: uvx, env: {A: "${MISSING}"}}\n',
        "upstreams:\n  time: {comand: uvx}\n",
    ],
)
def test_failing_install_changes_nothing(person: Person, text: str) -> None:
    before = person.servers("cursor", time=TIME, hub=HUB).read_bytes()
    person.manifest.write_text(text)
    done = person("--add", "--save-secrets", "--install", "gemini", "--install", "cursor")
    assert done.returncode in (1, 2) and (
        "portal.env" in done.stderr or "Did you mean command?" in done.stderr
    )
    assert person.path("cursor").read_bytes() == before and person.manifest.read_text() == text
    assert not person.env.exists() and not [*person.home.rglob("*.before-portal")]


def test_second_file_that_cannot_be_changed_leaves_the_first_as_it_was(person: Person) -> None:
    before = person.servers("cursor", time=TIME).read_bytes()
    person.write("gemini", '{"mcp": {"allowed": []}}')
    assert person("--install", "cursor", "--install", "gemini").returncode == 1
    assert person.path("cursor").read_bytes() == before and not person.manifest.exists()
    assert [each.name for each in person.path("cursor").parent.iterdir()] == ["mcp.json"]


@pytest.mark.parametrize(
    ("reference", "more"),
    [
        ("${CA:-}", ""),
        ("${CA}", "defaults: {env: {CA: /ca.pem}}\n"),
        ("${command:cat ca}", ""),
        ("x # ${CA}", ""),
    ],
)
def test_variable_that_something_gives_does_not_keep_the_portal_out(
    person: Person, reference: str, more: str
) -> None:
    person.servers("cursor", time=TIME)
    person.manifest.write_text(
        f"upstreams:\n  time:\n    command: uvx\n    env:\n      A: {reference}\n{more}"
    )
    assert person("--install", "cursor").returncode == 0


def test_save_secrets_also_keeps_what_the_shell_has_and_a_client_would_lack(person: Person) -> None:
    person.write("codex", '[mcp_servers.a]\nurl = "https://a.example"\nbearer_token_env_var = "TOK"\n')
    (person.project / "pi.yaml").write_text('upstreams:\n  time: {command: uvx, env: {CA: "${CA}"}}\n')
    to_pi = ("--config", "pi.yaml", "--add", "--install", "codex")
    refused = person(*to_pi, CA="/ca.pem", TOK="hunter2")
    assert refused.returncode == 1 and "pi.env" in refused.stderr
    assert person("--save-secrets", *to_pi, CA="/ca.pem", TOK="hunter2").returncode == 0
    assert {*(person.project / "pi.env").read_text().splitlines()} >= {"CA=/ca.pem", "TOK=hunter2"}


def test_only_certificates_and_proxies_of_the_shell_go_to_all_servers(person: Person) -> None:
    person.servers("cursor", time=TIME)
    proxy = "http://me:hunter2hunter2@proxy:8080"
    shell = {"SSL_CERT_FILE": "/ca.pem", "https_proxy": proxy, "npm_config_registry": "https://npm.corp/"}
    assert person("--save-secrets", **shell, UV_CACHE_DIR="/cache", AWS_PROFILE="x").returncode == 0
    assert "hunter2" not in person.manifest.read_text() and "hunter2" in person.env.read_text()
    portal = load_manifest(person.manifest, {}).portal
    assert portal.defaults.env == shell
    assert [str(rule.annotation) for rule in portal.capabilities.tools.ask] == ["destructive"]


def test_entries_that_became_one_are_named_with_all_that_was_not_imported(person: Person) -> None:
    person.servers("cursor", fs=TIME, files={**TIME, "cwd": "/tmp", "timeout": 5})
    person.write(
        "codex", '[mcp_servers.fs]\ncommand = "uvx"\nargs = ["mcp-server-time"]\nstartup_timeout_sec = 9\n'
    )
    done = person()
    assert "mcp.json (files); Codex, ~/.codex/config.toml\n" in done.stdout
    assert "timeout" in done.stdout and "startup_timeout_sec" in done.stdout


@pytest.mark.parametrize(
    ("one", "other", "count"),
    [
        ({"command": "npx", "args": ["-y", "x"]}, {"cwd": "/a"}, 1),
        ({"command": "/bin/x", "cwd": "/b"}, {"cwd": "/a"}, 1),
        ({"command": "uv", "args": ["run", "x"], "cwd": "/b"}, {"cwd": "/a"}, 2),
        ({"command": "npx", "args": ["fs", "."], "cwd": "/b"}, {"cwd": "/a"}, 2),
    ],
)
def test_folder_tells_servers_apart_only_where_it_may_matter(
    person: Person, one: Json, other: Json, count: int
) -> None:
    person.servers("cursor", a=one, b={**one, **other})
    assert len(person.merged().imported) == count


@pytest.mark.parametrize(
    ("header", "value", "is_literal"),
    [
        ("X-Figma-Region", "us-east-1", True),
        ("Accept", "text/event-stream", True),
        ("X-Api-Key", "us-east-1", False),
        ("X-Acme", "hunter2hunter2", False),
        ("X-Acme", "sk-abcdefghijklmnop", False),
    ],
)
def test_header_is_literal_only_if_neither_name_nor_value_may_be_a_credential(
    person: Person, header: str, value: str, is_literal: bool
) -> None:
    spec = person.spec("cursor", {"url": "https://a.example", "headers": {header: value}})
    assert (spec["headers"][header] == value) is is_literal
