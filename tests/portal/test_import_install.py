"""`mcp-code-portal import --install`: the portal in a client's file in place of its servers, and out of it again."""

import json
import os
import stat
import tomllib
from pathlib import Path

import pytest

from manifests.json_value import Json
from manifests.loader import load_manifest
from portal.client_files.backups import Backups
from portal.client_files.contents import read_contents
from portal.client_files.errors import ChangedFileError, ClientFileError
from portal.client_files.installation import Installation, planned, undo
from portal.client_files.json_text import plain, read_json
from portal.client_files.places import places
from portal.client_files.portal_entry import portal_entry
from portal.client_files.raw_file import read_raw
from tests.portal.client_files.homes import FILES, Home
from tests.portal.client_files.person import Person

TIME: Json = {"command": "uvx", "args": ["mcp-server-time"]}
HUB: Json = {"command": "hub", "args": [], "env": {"HUB_TOKEN": "hunter2"}}
JSON_CLIENTS = [name for name in FILES if not name.startswith("codex")]

CODEX = """\
model = "x"  # mine

# the time
[mcp_servers.time]
command = "uvx"
args = ["mcp-server-time"]

[mcp_servers.hub]
command = "hub"
env_vars = ["HUB_TOKEN"]

[tui]
theme = "dark"
"""


def data(path: Path) -> dict[str, Json]:
    node = read_json(path.read_text())
    assert node is not None
    return dict(plain(node))


def servers(path: Path) -> dict[str, Json]:
    found = data(path)
    return dict(found.get("mcpServers", found.get("servers")))


def install(person: Person, client: str, *more: str) -> None:
    done = person("--install", client, "--save-secrets", *more)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("client", JSON_CLIENTS)
def test_the_portal_takes_the_place_of_the_servers_and_gives_it_back(person: Person, client: str) -> None:
    path = person.home.servers(client, time=TIME, hub=HUB, bad={})
    path.chmod(0o640)
    before = path.read_bytes()
    install(person, client)
    there = servers(path)
    assert list(there) == ["portal", "bad"]
    words = [there["portal"]["command"], *there["portal"]["args"]]
    assert words[-3:] == ["serve", "--config", str(person.manifest)] and os.path.isabs(words[0])
    assert b"hunter2" not in path.read_bytes()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert person("--undo", client).returncode == 0
    assert path.read_bytes() == before and stat.S_IMODE(path.stat().st_mode) == 0o640
    assert person("--undo", client).returncode == 1


@pytest.mark.parametrize("client", ["codex", "codex-project"])
def test_codex_gets_a_table(person: Person, client: str) -> None:
    path = person.home.write(client, CODEX)
    install(person, client)
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
    install(person, "claude-code")
    found = data(path)
    assert list(found["mcpServers"]) == ["portal"] and found["numStartups"] == "7"
    assert found["projects"] == {"/p": {"mcpServers": {}, "x": "1"}}


def test_a_file_that_is_not_there_is_made_and_removed(person: Person) -> None:
    person.home.servers("cursor", time=TIME)
    install(person, "claude-desktop")
    path = person.home.path("claude-desktop")
    assert list(servers(path)) == ["portal"] and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(servers(person.home.path("cursor"))) == ["time"]
    assert person("--undo", "claude-desktop").returncode == 0 and not path.exists()


def test_several_clients_at_once(person: Person) -> None:
    paths = [person.home.servers(client, time=TIME) for client in ("cursor", "windsurf")]
    before = [path.read_bytes() for path in paths]
    install(person, "cursor", "--install", "windsurf")
    assert [list(servers(path)) for path in paths] == [["portal"]] * 2
    assert person("--undo", "cursor", "--undo", "windsurf").returncode == 0
    assert [path.read_bytes() for path in paths] == before


def test_comments_stay(person: Person) -> None:
    text = '{\n  // mine\n  "mcpServers": {\n    // why\n    "time": {"command": "uvx"}, // behind\n  }, /* end */\n}\n'
    path = person.home.write("vscode-project", text.replace("mcpServers", "servers"))
    before = path.read_bytes()
    install(person, "vscode-project")
    now = path.read_text()
    assert all(comment in now for comment in ("// mine", "// why", "// behind", "/* end */"))
    assert servers(path)["portal"]["type"] == "stdio"
    assert person("--undo", "vscode-project").returncode == 0 and path.read_bytes() == before


def test_a_link_stays_a_link(person: Person, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.json"
    real.write_text(json.dumps({"mcpServers": {"time": TIME}}))
    path = person.home.path("cursor")
    path.parent.mkdir()
    path.symlink_to(real)
    install(person, "cursor")
    assert path.is_symlink() and list(servers(real)) == ["portal"]


def test_what_changed_since_stays_and_the_servers_come_back(person: Person) -> None:
    path = person.home.servers("cursor", time=TIME, hub=HUB)
    install(person, "cursor")
    changed = data(path)
    changed["mcpServers"]["fresh"] = {"command": "fresh"}
    changed["mcpServers"]["hub"] = {"command": "other"}
    path.write_text(json.dumps({**changed, "theme": "dark"}))
    done = person("--undo", "cursor")
    assert done.returncode == 0
    assert data(path)["theme"] == "dark"
    assert servers(path) == {"time": TIME, "fresh": {"command": "fresh"}, "hub": {"command": "other"}}
    (backup,) = (person.home.folder / ".local/state/mcp-code-portal/clients").iterdir()
    assert str(backup) in done.stderr and json.loads(backup.read_bytes())["mcpServers"]["hub"] == HUB


@pytest.mark.parametrize("client", ["cursor", "codex"])
def test_undo_leaves_a_server_that_somebody_put_in_place_of_the_portals(person: Person, client: str) -> None:
    if client == "codex":
        path = person.home.write("codex", CODEX)
        theirs = '[mcp_servers.portal]\nurl = "https://theirs.example/mcp"\n'
    else:
        path = person.home.servers("cursor", time=TIME)
        theirs = '{"mcpServers": {"portal": {"url": "https://theirs.example/mcp"}}}'
    install(person, client)
    path.write_text(theirs)
    done = person("--undo", client)
    assert done.returncode == 0 and "'portal'" in done.stderr
    now = path.read_text()
    found = tomllib.loads(now)["mcp_servers"] if client == "codex" else servers(path)
    assert found["portal"] == {"url": "https://theirs.example/mcp"} and "time" in found


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
    install(person, "cursor")
    assert person("--undo", "cursor").returncode == 0 and path.read_bytes() == before


def test_codex_that_changed_since_gets_its_tables_back(person: Person) -> None:
    path = person.home.write("codex", CODEX)
    install(person, "codex")
    path.write_text(path.read_text().replace("dark", "light"))
    assert person("--undo", "codex").returncode == 0
    expected = tomllib.loads(CODEX.replace("dark", "light"))
    assert tomllib.loads(path.read_text()) == expected


def test_a_file_that_cannot_be_read_any_more_is_left_and_its_backup_named(person: Person) -> None:
    path = person.home.servers("cursor", time=TIME)
    install(person, "cursor")
    path.write_text("{")
    done = person("--undo", "cursor")
    assert done.returncode == 1 and ".backup" in done.stderr and path.read_text() == "{"
    path.unlink()
    done = person("--undo", "cursor")
    assert done.returncode == 1 and ".backup" in done.stderr and not path.exists()


def test_a_file_that_somebody_else_writes_meanwhile_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text("{}")
    read = read_raw(path)
    path.write_text('{"theirs": 1}')
    with pytest.raises(ChangedFileError):
        read.replace(b'{"ours": 1}')
    assert path.read_text() == '{"theirs": 1}'
    absent = read_raw(tmp_path / "new.json")
    (tmp_path / "new.json").write_text("theirs")
    with pytest.raises(ChangedFileError):
        absent.replace(b"ours")
    assert read_raw(path).replace(b"{}") is None and path.read_text() == "{}"


CLIENTS = ".local/state/mcp-code-portal/clients"


def test_undo_without_the_backup_puts_the_servers_back_and_says_so(person: Person) -> None:
    path = person.home.servers("gemini", time=TIME, hub=HUB)
    path.write_text(json.dumps({**data(path), "theme": "dark"}))
    install(person, "gemini")
    (backup,) = (person.home.folder / CLIENTS).glob("*.backup")
    backup.unlink()
    done = person("--undo", "gemini")
    assert done.returncode == 0 and "as it was before" not in done.stderr and "backup is gone" in done.stderr
    assert servers(path) == {"time": TIME, "hub": HUB} and data(path)["theme"] == "dark"


def test_undo_without_the_backup_of_a_file_that_is_gone_makes_none(person: Person) -> None:
    path = person.home.servers("gemini", time=TIME)
    install(person, "gemini")
    (backup,) = (person.home.folder / CLIENTS).glob("*.backup")
    backup.unlink()
    path.unlink()
    assert person("--undo", "gemini").returncode == 1 and not path.exists()


def test_copy_that_an_undo_told_of_outlasts_later_installations(person: Person) -> None:
    path = person.home.servers("cursor", time=TIME, hub=HUB)
    first = path.read_bytes()
    install(person, "cursor")
    path.write_text(json.dumps({**data(path), "theme": "dark"}))
    told = person("--undo", "cursor").stderr
    (kept,) = (person.home.folder / CLIENTS).iterdir()
    assert str(kept) in told
    install(person, "cursor", "--add")
    assert person("--undo", "cursor").returncode == 0
    assert [*(person.home.folder / CLIENTS).iterdir()] == [kept] and kept.read_bytes() == first


def planned_for_cursor(home: Home, manifest: Path) -> Installation:
    (place,) = (each for each in places("linux", {}, home.folder, home.project) if each.name == "cursor")
    contents = read_contents(place, home.folder, home.project, {})
    origins = [server.origin for server in contents.servers]
    return planned(contents, origins, portal_entry(place, manifest, {}))


def test_of_two_that_install_at_once_the_slower_takes_nothing_from_the_other(tmp_path: Path) -> None:
    home, backups = Home(tmp_path), Backups({"XDG_STATE_HOME": str(tmp_path / "state")})
    path = home.servers("cursor", time=TIME)
    before = path.read_bytes()
    first, second = (planned_for_cursor(home, tmp_path / "portal.yaml") for _ in range(2))
    first.carry_out(backups)
    with pytest.raises(ChangedFileError):
        second.carry_out(backups)
    assert backups.before(first.place) == before
    assert undo(first.place, backups) == "is as it was before" and path.read_bytes() == before


def test_only_one_changes_a_file_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("portal.client_files.backups.LOCK_SECONDS", 0.0)
    home, backups = Home(tmp_path), Backups({"XDG_STATE_HOME": str(tmp_path / "state")})
    path = home.servers("cursor", time=TIME)
    plan = planned_for_cursor(home, tmp_path / "portal.yaml")
    with backups.alone(), pytest.raises(ClientFileError):
        plan.carry_out(backups)
    assert list(servers(path)) == ["time"]
    plan.carry_out(backups)
    with backups.alone(), pytest.raises(ClientFileError):
        undo(plan.place, backups)
    assert list(servers(path)) == ["portal"]


def test_backups_are_their_owners_alone(person: Person) -> None:
    person.home.servers("cursor", hub=HUB)
    install(person, "cursor")
    folder = person.home.folder / ".local/state/mcp-code-portal/clients"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(each.stat().st_mode) for each in folder.iterdir()} == {0o600}


def test_a_second_installation_is_refused_and_keeps_the_first_backup(person: Person) -> None:
    path = person.home.servers("cursor", time=TIME)
    before = path.read_bytes()
    install(person, "cursor")
    path.write_text(path.read_text().replace('"mcpServers": {', '"mcpServers": {"x": {"command": "x"},'))
    assert person("--add", "--install", "cursor").returncode == 1
    (backup,) = (person.home.folder / ".local/state/mcp-code-portal/clients").glob("*.backup")
    assert backup.read_bytes() == before


def test_an_installation_that_died_before_it_wrote_is_begun_anew(person: Person) -> None:
    path = person.home.servers("cursor", time=TIME)
    before = path.read_bytes()
    install(person, "cursor")
    path.write_bytes(before)
    install(person, "cursor")
    assert list(servers(path)) == ["portal"]
    assert person("--undo", "cursor").returncode == 0 and path.read_bytes() == before


def test_what_root_writes_stays_its_owners(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text("{}")
    owner = 12345 if os.geteuid() == 0 else os.geteuid()  # only root can give files away
    os.chown(path, owner, -1)
    read_raw(path).replace(b"{ }")
    assert path.stat().st_uid == owner


def test_a_portal_that_would_lack_a_secret_is_not_put_in(person: Person) -> None:
    path = person.home.servers("cursor", hub=HUB)
    before = path.read_bytes()
    done = person("--install", "cursor")
    assert done.returncode == 1 and "HUB_TOKEN" in done.stderr and path.read_bytes() == before
    install(person, "cursor")


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
    assert servers(path)["portal"]["env"] == {"A_TOKEN": handed_on}
    assert load_manifest(person.manifest, {"A_TOKEN": "x"}).portal.upstreams


def test_an_input_reaches_the_server_that_asks_for_it_and_nothing_of_the_portal(person: Person) -> None:
    entry: Json = {"command": "npx", "args": ["server-fs", "${input:path}"]}
    found = {"inputs": [{"id": "path"}], "servers": {"fs": entry}}
    path = person.home.write("vscode", json.dumps(found))
    done = person("--install", "vscode")
    assert done.returncode == 0, done.stderr
    assert servers(path)["portal"]["env"] == {"FS_PATH": "${input:path}"}
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
    assert servers(person.home.path("vscode"))["portal"]["env"] == {
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


def test_the_portal_keeps_clear_of_a_server_of_its_name(person: Person) -> None:
    path = person.home.servers("cursor", portal={"url": "ftp://x"}, time=TIME)
    install(person, "cursor")
    assert list(servers(path)) == ["mcp-code-portal", "portal"]


def test_an_entry_of_a_portal_is_replaced(person: Person) -> None:
    old: Json = {"command": "mcp-code-portal", "args": ["serve"]}
    path = person.home.servers("cursor", gate=old, time=TIME)
    before = path.read_bytes()
    install(person, "cursor")
    assert list(servers(path)) == ["gate"] and "--config" in servers(path)["gate"]["args"]
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
