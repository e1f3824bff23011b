"""`mcp-code-portal import --install`: the portal in a client's file in place of its servers, and out of it again."""

import json
import os
import stat
import tomllib
from pathlib import Path

import pytest

from manifests.json_value import Json
from manifests.loader import load_manifest
from tests.portal.client_files.homes import CODEX, FILES, HUB, TIME, data_of, servers_of
from tests.portal.client_files.person import Person

JSON_CLIENTS = [name for name in FILES if not name.startswith("codex")]


@pytest.mark.parametrize("client", JSON_CLIENTS)
def test_the_portal_takes_the_place_of_the_servers_and_gives_it_back(person: Person, client: str) -> None:
    path = person.home.servers(client, time=TIME, hub=HUB, bad={})
    path.chmod(0o640)
    before = path.read_bytes()
    person.install(client)
    there = servers_of(path)
    assert list(there) == ["portal", "bad"]
    words = [there["portal"]["command"], *there["portal"]["args"]]
    assert words[-3:] == ["serve", "--config", str(person.manifest)] and os.path.isabs(words[0])
    assert b"hunter2" not in path.read_bytes()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert person("--undo", client).returncode == 0
    assert path.read_bytes() == before and stat.S_IMODE(path.stat().st_mode) == 0o640
    assert person("--undo", client).returncode == 1


@pytest.mark.parametrize(
    ("rules", "is_started"),
    [
        ({"mcp": {"allowed": ["time"]}}, False),
        ({"mcp": {"allowed": ["time", "portal"]}}, True),
        ({"mcp": {"excluded": ["portal"]}}, False),
        ({"mcp": {"excluded": ["hub"]}}, True),
        ({"allowMCPServers": ["time"]}, False),
        ({"excludeMCPServers": ["portal"]}, False),
    ],
)
def test_portal_that_gemini_would_not_start_takes_nobodys_place(
    person: Person, rules: dict[str, Json], is_started: bool
) -> None:
    path = person.home.write("gemini", json.dumps({"mcpServers": {"time": TIME}, **rules}))
    before = path.read_bytes()
    done = person("--install", "gemini")
    assert (done.returncode == 0) is is_started
    assert ("portal" in servers_of(path)) is is_started
    assert is_started or path.read_bytes() == before


@pytest.mark.parametrize("client", ["codex", "codex-project"])
def test_codex_gets_a_table(person: Person, client: str) -> None:
    path = person.home.write(client, CODEX)
    person.install(client)
    found = tomllib.loads(path.read_text())
    assert list(found["mcp_servers"]) == ["portal"] and found["tui"] == {"theme": "dark"}
    assert found["mcp_servers"]["portal"]["env_vars"] == ["HUB_TOKEN"]
    assert "# mine" in path.read_text()
    assert person("--undo", client).returncode == 0
    assert path.read_text() == CODEX


def test_claude_code_keeps_what_else_is_in_its_file(person: Person) -> None:
    path = person.home.write(
        "claude-code",
        json.dumps(
            {
                "numStartups": 7,
                "mcpServers": {"time": TIME},
                "projects": {"/p": {"mcpServers": {"hub": HUB}, "x": 1}},
            }
        ),
    )
    person.install("claude-code")
    found = data_of(path)
    assert list(found["mcpServers"]) == ["portal"] and found["numStartups"] == "7"
    assert found["projects"] == {"/p": {"mcpServers": {}, "x": "1"}}


def test_a_file_that_is_not_there_is_made_and_removed(person: Person) -> None:
    person.home.servers("cursor", time=TIME)
    person.install("claude-desktop")
    path = person.home.path("claude-desktop")
    assert list(servers_of(path)) == ["portal"] and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(servers_of(person.home.path("cursor"))) == ["time"]
    assert person("--undo", "claude-desktop").returncode == 0 and not path.exists()


def test_several_clients_at_once(person: Person) -> None:
    paths = [person.home.servers(client, time=TIME) for client in ("cursor", "windsurf")]
    before = [path.read_bytes() for path in paths]
    person.install("cursor", "--install", "windsurf")
    assert [list(servers_of(path)) for path in paths] == [["portal"]] * 2
    assert person("--undo", "cursor", "--undo", "windsurf").returncode == 0
    assert [path.read_bytes() for path in paths] == before


def test_comments_stay(person: Person) -> None:
    text = '{\n  // mine\n  "mcpServers": {\n    // why\n    "time": {"command": "uvx"}, // behind\n  }, /* end */\n}\n'
    path = person.home.write("vscode-project", text.replace("mcpServers", "servers"))
    before = path.read_bytes()
    person.install("vscode-project")
    now = path.read_text()
    assert all(comment in now for comment in ("// mine", "// why", "// behind", "/* end */"))
    assert servers_of(path)["portal"]["type"] == "stdio"
    assert person("--undo", "vscode-project").returncode == 0 and path.read_bytes() == before


def test_a_link_stays_a_link(person: Person, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.json"
    real.write_text(json.dumps({"mcpServers": {"time": TIME}}))
    path = person.home.path("cursor")
    path.parent.mkdir()
    path.symlink_to(real)
    person.install("cursor")
    assert path.is_symlink() and list(servers_of(real)) == ["portal"]


def test_a_file_whose_mode_cannot_be_kept_is_as_it_was(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = person.home.servers("cursor", time=TIME)
    before = path.read_bytes()

    def refuse(descriptor: int, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    with monkeypatch.context() as patch:
        # What some mounted file systems answer to everybody, and no file system here does.
        patch.setattr(os, "fchmod", refuse)
        assert person("--save-secrets", "--install", "cursor").returncode == 1
    assert path.read_bytes() == before and [each.name for each in path.parent.iterdir()] == ["mcp.json"]
    person.install("cursor")
    assert person("--undo", "cursor").returncode == 0 and path.read_bytes() == before


def test_a_portal_that_would_lack_a_secret_is_not_put_in(person: Person) -> None:
    path = person.home.servers("cursor", hub=HUB)
    before = path.read_bytes()
    done = person("--install", "cursor")
    assert done.returncode == 1 and "HUB_TOKEN" in done.stderr and path.read_bytes() == before
    person.install("cursor")


@pytest.mark.parametrize(
    ("client", "text", "handed_on"),
    [
        ("cursor", "${env:A_TOKEN}", "${env:A_TOKEN}"),
        ("claude-code-project", "${A_TOKEN}", "${A_TOKEN}"),
        ("gemini", "$A_TOKEN", "$A_TOKEN"),
        ("windsurf", "${env:A_TOKEN}", "${env:A_TOKEN}"),
        ("vscode", "${env:A_TOKEN}", "${env:A_TOKEN}"),
        ("vscode", "${input:a-token}", "${input:a-token}"),
    ],
)
def test_variables_of_the_client_are_handed_on(
    person: Person, client: str, text: str, handed_on: str
) -> None:
    key = "servers" if client == "vscode" else "mcpServers"
    found = {
        "inputs": [{"id": "a-token"}] if "input" in text else [],
        key: {"hub": {"command": "hub", "env": {"T": text}}},
    }
    path = person.home.write(client, json.dumps(found))
    done = person("--install", client)
    assert done.returncode == 0, done.stderr
    assert servers_of(path)["portal"]["env"] == {"A_TOKEN": handed_on}
    assert load_manifest(person.manifest, {"A_TOKEN": "x"}).portal.upstreams


def test_an_input_reaches_the_server_that_asks_for_it_and_nothing_of_the_portal(person: Person) -> None:
    entry: Json = {"command": "npx", "args": ["server-fs", "${input:path}"]}
    found = {"inputs": [{"id": "path"}], "servers": {"fs": entry}}
    path = person.home.write("vscode", json.dumps(found))
    done = person("--install", "vscode")
    assert done.returncode == 0, done.stderr
    assert servers_of(path)["portal"]["env"] == {"FS_PATH": "${input:path}"}
    assert "which VS Code asks for" in done.stdout


def test_an_input_of_one_file_is_not_handed_on_from_another(person: Person) -> None:
    for client, name in (("vscode", "mine"), ("vscode-project", "theirs")):
        entry: Json = {"command": name, "env": {"KEY": "${input:api-key}"}}
        found = {"inputs": [{"id": "api-key"}], "servers": {name: entry}}
        person.home.write(client, json.dumps(found))
    done = person("--install", "vscode")
    assert done.returncode == 1 and "THEIRS_API_KEY" in done.stderr
    done = person("--install", "vscode", THEIRS_API_KEY="x")
    assert done.returncode == 0, done.stderr
    assert servers_of(person.home.path("vscode"))["portal"]["env"] == {
        "API_KEY": "${input:api-key}",
        "THEIRS_API_KEY": "${env:THEIRS_API_KEY}",
    }


def test_claude_desktop_can_hand_on_nothing(person: Person) -> None:
    person.home.servers("cursor", hub={"command": "hub", "env": {"T": "${env:A_TOKEN}"}})
    desktop = person.home.servers("claude-desktop", time=TIME)
    before = desktop.read_bytes()
    done = person("--install", "claude-desktop", A_TOKEN="x")
    assert done.returncode == 1 and "A_TOKEN" in done.stderr and desktop.read_bytes() == before
    person.env.write_text("A_TOKEN=x\n")
    person.env.chmod(0o600)
    assert person("--install", "claude-desktop").returncode == 0


HOMELY = """\
upstreams:
  docs: {command: npx, args: [srv, "${HOME}/docs"], env: {PATH: "/opt/bin:${PATH}", USER: "${USER}", SHELL: "${SHELL}"}}
"""


@pytest.mark.parametrize("client", ["claude-desktop", "cursor", "codex"])
def test_what_every_client_hands_on_by_itself_is_lacked_by_no_portal(person: Person, client: str) -> None:
    person.home.servers("windsurf", time=TIME)
    person.manifest.write_text(HOMELY)
    done = person("--add", "--install", client, USER="ann", SHELL="/bin/sh")
    assert done.returncode == 0, done.stderr
    text = person.home.path(client).read_text()
    assert "--config" in text and "HOME" not in text and "PATH" not in text


def test_others_that_are_set_claude_desktop_does_not_hand_on(person: Person) -> None:
    person.home.servers("windsurf", time=TIME)
    person.manifest.write_text("upstreams:\n  docs: {command: npx, args: ['${EDITOR}']}\n")
    done = person("--add", "--install", "claude-desktop", EDITOR="vi")
    assert done.returncode == 1 and "EDITOR" in done.stderr


@pytest.mark.parametrize(
    ("client", "env"),
    [
        ("codex", ["API_BASE", "API_REGION"]),
        ("claude-code", {"API_BASE": "${API_BASE:-}", "API_REGION": "${API_REGION:-}"}),
        ("cursor", {"API_BASE": "${env:API_BASE}"}),
        ("gemini", {"API_BASE": "$API_BASE"}),
        ("claude-desktop", None),
    ],
)
def test_what_has_a_default_is_handed_on_where_that_does_no_harm(
    person: Person, client: str, env: Json
) -> None:
    """One that is not set is named only where that leaves it unset or empty: its default holds then."""
    person.home.servers("windsurf", time=TIME)
    person.manifest.write_text(
        "upstreams:\n  api: {url: '${API_BASE:-https://api.example}/${API_REGION:-eu}/${HOME:-x}'}\n"
    )
    done = person("--add", "--install", client, API_BASE="https://beta.example")
    assert done.returncode == 0, done.stderr
    path = person.home.path(client)
    if client == "codex":
        assert tomllib.loads(path.read_text())["mcp_servers"]["portal"]["env_vars"] == env
    else:
        assert servers_of(path)["portal"].get("env") == env
    assert ("API_BASE" in done.stderr) == (client == "claude-desktop")


def test_the_portal_keeps_clear_of_a_server_of_its_name(person: Person) -> None:
    path = person.home.servers("cursor", portal={"url": "ftp://x"}, time=TIME)
    person.install("cursor")
    assert list(servers_of(path)) == ["mcp-code-portal", "portal"]


def test_an_entry_of_a_portal_is_replaced(person: Person) -> None:
    old: Json = {"command": "mcp-code-portal", "args": ["serve"]}
    path = person.home.servers("cursor", gate=old, time=TIME)
    before = path.read_bytes()
    person.install("cursor")
    assert list(servers_of(path)) == ["gate"] and "--config" in servers_of(path)["gate"]["args"]
    assert person("--undo", "cursor").returncode == 0 and path.read_bytes() == before


def test_servers_in_a_form_that_cannot_be_edited_are_left_and_told(person: Person) -> None:
    text = 'mcp_servers = {time = {command = "uvx"}}\n'
    path = person.home.write("codex", text)
    done = person("--install", "codex")
    assert done.returncode == 1 and "--config" in done.stderr and path.read_text() == text


def test_dry_run_changes_nothing(person: Person) -> None:
    path = person.home.servers("cursor", time=TIME)
    before = path.read_bytes()
    done = person("--install", "cursor", "--dry-run")
    assert done.returncode == 0 and "portal" in done.stderr
    assert path.read_bytes() == before and not person.manifest.exists()
    assert not (person.home.folder / ".local").exists()


def test_a_manifest_that_was_not_written_is_put_nowhere(person: Person) -> None:
    path = person.home.servers("cursor", time=TIME)
    before = path.read_bytes()
    person.manifest.write_text("upstreams:\n  mine: {command: x}\n")
    assert person("--install", "cursor").returncode == 2 and path.read_bytes() == before


def test_json_tells_what_was_done(person: Person) -> None:
    path = person.home.servers("cursor", time=TIME)
    (fact,) = person.facts("--install", "cursor")["installed"]
    assert (fact["path"], fact["name"], fact["taken_out"], fact["is_written"]) == (
        str(path),
        "portal",
        ["time"],
        True,
    )
    assert Path(fact["backup"]).exists()
    (fact,) = person.facts("--undo", "cursor")["undone"]
    assert fact["client"] == "cursor"


def test_unknown_clients_are_refused(person: Person) -> None:
    path = person.home.servers("cursor", time=TIME)
    before = path.read_bytes()
    assert person("--install", "emacs").returncode == 2
    assert person("--undo", "emacs").returncode == 2
    assert path.read_bytes() == before and not person.manifest.exists()
