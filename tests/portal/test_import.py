"""`mcp-code-portal import`: what becomes of the servers that other clients are configured with."""

import json
import stat
import tomllib
from pathlib import Path

import pytest

from manifests.json_value import Json
from manifests.loader import load_manifest
from portal.importing.clients import client_files
from tests.portal.homes import FILES, Person

GITHUB: dict[str, Json] = {
    "command": "npx",
    "args": ["-y", "server-github", "--api-key", "sk-abcdefghij0123456789"],
    "env": {
        "GITHUB_TOKEN": "hunter2",
        "LEVEL": "info",
        "HOST": "https://api.example",
        "MODE": "verbose",
        "NODE_ENV": "production",
    },
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
    found = client_files("linux", {}, tmp_path, tmp_path / "work")
    assert {file.name: file.path for file in found} == {name: tmp_path / path for name, path in FILES.items()}
    assert all(file.project is None for file in client_files("linux", {}, tmp_path, None))
    mac = client_files("darwin", {}, tmp_path, None)[0].path
    assert mac == tmp_path / "Library/Application Support/Claude/claude_desktop_config.json"
    windows = client_files("win32", {"APPDATA": "/data"}, tmp_path, None)[0].path
    assert windows == Path("/data/Claude/claude_desktop_config.json")
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


def test_saved_values_are_their_owners_alone_and_complete_the_manifest(person: Person) -> None:
    person.servers("cursor", github=GITHUB)
    assert person("--save-secrets").returncode == 0
    assert stat.S_IMODE(person.env.stat().st_mode) == 0o600
    [upstream] = load_manifest(person.manifest, {}).portal.upstreams.values()
    assert upstream.model_dump()["env"] == GITHUB["env"]


@pytest.mark.parametrize(
    ("client", "entry", "spec"),
    [
        ("claude-desktop", {"command": "x", "args": ["A:${AUTH}"]}, {"command": "x", "args": ["A:$${AUTH}"]}),
        (
            "claude-code",
            {"command": "x", "args": ["${A}", "${B:-b}", "${C}"], "env": {"C": "${A}"}},
            {"command": "x", "args": ["${A}", "${B:-b}", "$${C}"], "env": {"C": "${A}"}},
        ),
        ("gemini", {"command": "x", "args": ["$AB/$b"]}, {"command": "x", "args": ["${AB}/$b"]}),
        (
            "gemini",
            {"httpUrl": "https://a.example/mcp", "headers": {"Authorization": "Bearer abc"}},
            {"url": "https://a.example/mcp", "headers": {"Authorization": "Bearer ${IT_AUTHORIZATION}"}},
        ),
        ("gemini", {"url": "https://a.example"}, {"url": "https://a.example", "transport": "sse"}),
        (
            "cursor",
            {"command": "x", "args": ["${env:A}", "${userHome}", "${other}"]},
            {"command": "x", "args": ["${A}", "HOME", "$${other}"]},
        ),
        (
            "vscode",
            {
                "type": "http",
                "url": "https://a.example/?key=k&b=${input:my-b}",
                "headers": {"X": "${input:my-b}"},
            },
            {"url": "https://a.example/?key=${IT_KEY}&b=${MY_B}", "headers": {"X": "${MY_B}"}},
        ),
        (
            "cursor",
            {"command": "x", "args": ["postgres://me:hunter2@db/x", "--token=ghp_0123456789abcdef"]},
            {"command": "x", "args": ["postgres://me:${IT_PASSWORD}@db/x", "--token=${IT_TOKEN}"]},
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
    ],
)
def test_entry_becomes_an_upstream(person: Person, client: str, entry: Json, spec: Json) -> None:
    text = json.dumps(spec).replace("WORK", str(person.project)).replace("HOME", str(person.home))
    assert person.spec(client, entry) == json.loads(text)


def test_entry_of_codex_becomes_an_upstream(person: Person) -> None:
    person.write(
        "codex",
        '[mcp_servers.a]\ncommand = "x"\nenv_vars = ["A"]\nenabled_tools = ["one"]\n'
        '[mcp_servers.b]\nurl = "https://b.example"\nbearer_token_env_var = "B"\n'
        'env_http_headers = { X = "C" }\nhttp_headers = { Y = "y" }\n',
    )
    assert [each.spec for each in person.merged().imported] == [
        {"command": "x", "env": {"A": "${A}"}, "tools": {"allow": ["one"]}},
        {"url": "https://b.example", "headers": {"Y": "${B_Y}", "X": "${C}", "Authorization": "Bearer ${B}"}},
    ]


@pytest.mark.parametrize(
    ("client", "entry", "reason"),
    [
        ("cursor", [], "not an object"),
        ("cursor", {}, "neither a command nor a URL"),
        ("cursor", {"command": "x", "disabled": True}, "disabled"),
        ("cursor", {"command": "npx -y server"}, "write them as args"),
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
def test_what_cannot_be_taken_over_is_left_out_with_its_reason(
    person: Person, client: str, entry: Json, reason: str
) -> None:
    assert reason in person.reason(client, entry)


def test_servers_of_projects_in_claude_codes_own_file_start_there(person: Person) -> None:
    text = {"mcpServers": {"a": TIME}, "projects": {"/src": {"mcpServers": {"b": HUB}}, "/none": {}}}
    person.write("claude-code", json.dumps(text))
    assert [(each.name, (each.spec or {}).get("cwd")) for each in person.merged().imported] == [
        ("a", None),
        ("b", "/src"),
    ]


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
        ("cursor", '{\n"mcpServers": ', 2),
        ("cursor", '// mine\n{"mcpServers": {"a" 1}}', 2),
        ("codex", "a = 1\n[mcp_servers", 2),
        ("cursor", b'{\n"a": "\xff"}', 2),
        ("cursor", "[" * 100_000, None),
    ],
)
def test_unusable_file_is_told_with_its_line_and_the_others_are_taken_over(
    person: Person, client: str, content: str | bytes, line: int | None
) -> None:
    broken = person.write(client, content)
    person.servers("windsurf", fine={"command": "x"})
    done = person()
    assert done.returncode == 1 and (f"{broken}:{line}: " if line else str(broken)) in done.stderr
    assert list(load_manifest(person.manifest, {}).portal.upstreams) == ["fine"]


def test_nothing_found_is_told(person: Person) -> None:
    done = person()
    assert done.returncode == 1 and not person.manifest.exists()
    assert "docs/import.md" in done.stderr and "write portal.yaml" in done.stderr


def test_manifest_that_is_there_keeps_its_text(person: Person) -> None:
    person.servers("cursor", github=GITHUB, time=TIME)
    text = "\ufeff# mine\r\nupstreams:\r\n  mine: {command: x}  # keep\r\n\r\n# theirs\r\nserver: {}\r\n"
    person.manifest.write_bytes(text.encode())
    done = person()
    assert done.returncode == 2 and person.manifest.read_bytes() == text.encode()
    assert "github:" in done.stdout and "--add" in done.stderr and "hunter2" not in done.stdout
    assert person("--add", "--dry-run").returncode == 0 and person.manifest.read_bytes() == text.encode()
    assert person("--add").returncode == 0
    now = person.manifest.read_bytes().decode()
    start, end = text.split("upstreams:\r\n")
    assert now.startswith(start) and now.endswith(end)
    values = dict.fromkeys(("GITHUB_API_KEY", "GITHUB_TOKEN", "MODE"), "x")
    assert set(load_manifest(person.manifest, values).portal.upstreams) == {"mine", "github", "time"}
    assert person("--add").returncode == 0 and person.manifest.read_bytes().decode() == now


@pytest.mark.parametrize(
    "text", ["upstreams: {mine: {command: x}}\n", "upstreams:\n    mine: {command: x}\n"]
)
def test_manifest_that_cannot_be_added_to_is_left_and_the_lines_are_printed(
    person: Person, text: str
) -> None:
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


def test_texts_of_files_cannot_steer_the_terminal_or_hide_in_the_manifest(person: Person) -> None:
    person.servers("cursor", **{"a\x1b[2J": {"command": "x\x1b[2J\u202e"}, "b\x1b[2J": {}})
    done = person()
    assert done.returncode == 0 and "\x1b" not in done.stdout + done.stderr
    assert "\u202e" not in person.manifest.read_text()
    [upstream] = load_manifest(person.manifest, {}).portal.upstreams.values()
    assert upstream.model_dump()["command"] == "x\x1b[2J\u202e"


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


@pytest.mark.parametrize("client", FILES)
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


def test_servers_that_gemini_leaves_out_are_left_out_and_the_portal_is_not_put_among_them(
    person: Person,
) -> None:
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
    env = person.manifest.with_name("portal.env")
    env.write_text("HUB_KEY=hunter2hunter2\n")
    env.chmod(0o600)
    done = person("--install", "vscode")
    assert done.returncode == 0, done.stdout + done.stderr


def test_file_that_was_not_there_is_made_and_removed_again(person: Person) -> None:
    person.servers("cursor", time=TIME)
    assert person("--install", "cursor", "--install", "gemini").returncode == 0
    assert list(servers_of(person.path("gemini"))) == ["portal"]
    assert person("--undo", "gemini").returncode == 0 and not person.path("gemini").exists()


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
