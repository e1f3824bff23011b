"""`mcp-code-portal import --undo`: what a client had comes back, whatever became of its file and its backup."""

import json
import stat
import tomllib
from pathlib import Path

import pytest

from manifests.json_value import Json
from tests.portal.client_files.homes import CODEX, HUB, TIME, data_of, servers_of
from tests.portal.client_files.person import Person


def test_what_changed_since_stays_and_the_servers_come_back(person: Person) -> None:
    path = person.home.servers("cursor", time=TIME, hub=HUB)
    person.install("cursor")
    changed = data_of(path)
    changed["mcpServers"]["fresh"] = {"command": "fresh"}
    changed["mcpServers"]["hub"] = {"command": "other"}
    path.write_text(json.dumps({**changed, "theme": "dark"}))
    done = person("--undo", "cursor")
    assert done.returncode == 0
    assert data_of(path)["theme"] == "dark"
    assert servers_of(path) == {"time": TIME, "fresh": {"command": "fresh"}, "hub": {"command": "other"}}
    assert "'hub' is not back" in done.stderr and "'time'" not in done.stderr
    (backup,) = person.backups.iterdir()
    assert str(backup) in done.stderr and json.loads(backup.read_bytes())["mcpServers"]["hub"] == HUB


def test_codex_that_changed_since_gets_its_tables_back(person: Person) -> None:
    path = person.home.write("codex", CODEX)
    person.install("codex")
    path.write_text(path.read_text().replace("dark", "light"))
    assert person("--undo", "codex").returncode == 0
    expected = tomllib.loads(CODEX.replace("dark", "light"))
    assert tomllib.loads(path.read_text()) == expected


@pytest.mark.parametrize("client", ["cursor", "codex"])
def test_undo_leaves_a_server_that_somebody_put_in_place_of_the_portals(person: Person, client: str) -> None:
    if client == "codex":
        path = person.home.write("codex", CODEX)
        theirs = '[mcp_servers.portal]\nurl = "https://theirs.example/mcp"\n'
    else:
        path = person.home.servers("cursor", time=TIME)
        theirs = '{"mcpServers": {"portal": {"url": "https://theirs.example/mcp"}}}'
    person.install(client)
    path.write_text(theirs)
    done = person("--undo", client)
    assert done.returncode == 0 and "'portal'" in done.stderr
    now = path.read_text()
    found = tomllib.loads(now)["mcp_servers"] if client == "codex" else servers_of(path)
    assert found["portal"] == {"url": "https://theirs.example/mcp"} and "time" in found


@pytest.mark.parametrize("client", ["cursor", "codex"])
def test_undo_takes_the_portal_out_under_whatever_name_it_has_by_now(person: Person, client: str) -> None:
    if client == "codex":
        path = person.home.write("codex", CODEX)
        person.install(client)
        path.write_text(
            path.read_text().replace('"portal"', "mine").replace("mcp_servers.portal", "mcp_servers.mine")
        )
    else:
        path = person.home.servers("cursor", time=TIME, hub=HUB)
        person.install(client)
        path.write_text(path.read_text().replace('"portal"', '"mine"'))
    assert "portal" not in names_of(path)
    done = person("--undo", client)
    assert done.returncode == 0 and "'mine'" in done.stderr
    assert names_of(path) == {"time", "hub"}


def test_undo_leaves_a_portal_of_another_manifest_and_says_so(person: Person) -> None:
    path = person.home.servers("cursor", time=TIME)
    person.install("cursor")
    other = {"command": "mcp-code-portal", "args": ["serve", "--config", "/other/portal.yaml"]}
    path.write_text(json.dumps({"mcpServers": {**servers_of(path), "theirs": other}}))
    done = person("--undo", "cursor")
    assert done.returncode == 0 and "'theirs'" in done.stderr
    assert servers_of(path) == {"time": TIME, "theirs": other}


@pytest.mark.parametrize("client", ["cursor", "codex"])
@pytest.mark.parametrize("by_now", ["portal", "mine"])
def test_undo_leaves_a_second_entry_of_the_same_manifest_and_says_so(
    person: Person, client: str, by_now: str
) -> None:
    is_toml = client == "codex"
    path = person.home.write(client, CODEX) if is_toml else person.home.servers(client, time=TIME, hub=HUB)
    person.install(client)
    entry = entries_of(path)["portal"]
    args = [*entry["args"], "--log-level", "debug"]
    if is_toml:
        text = (
            path.read_text()
            .replace('"portal"', by_now)
            .replace("mcp_servers.portal", f"mcp_servers.{by_now}")
        )
        second = f"[mcp_servers.{by_now}-debug]\ncommand = {json.dumps(entry['command'])}\n"
        path.write_text(f"{text}\n{second}args = {json.dumps(args)}\n")
    else:
        second = {**entry, "args": args, "env": {"A": "mine"}}
        path.write_text(json.dumps({"mcpServers": {by_now: entry, f"{by_now}-debug": second}}))
    assert names_of(path) == {by_now, f"{by_now}-debug"}
    done = person("--undo", client)
    assert done.returncode == 0 and f"'{by_now}-debug'" in done.stderr
    # Under other names nobody knows which of them was put in.
    stays = {"portal-debug"} if by_now == "portal" else {"mine", "mine-debug"}
    assert names_of(path) == {"time", "hub", *stays}


def test_undo_says_nothing_of_a_server_that_somebody_put_back_already(person: Person) -> None:
    path = person.home.servers("cursor", time=TIME)
    person.install("cursor")
    path.write_text(json.dumps({"mcpServers": {**servers_of(path), "time": TIME}}))
    done = person("--undo", "cursor")
    assert done.returncode == 0 and "'time'" not in done.stderr and servers_of(path) == {"time": TIME}


def test_undo_knows_records_from_before_they_named_the_manifest(person: Person) -> None:
    path = person.home.servers("cursor", time=TIME)
    person.install("cursor")
    (record,) = person.backups.glob("*.json")
    data = json.loads(record.read_bytes())
    del data["manifest"]
    record.write_text(json.dumps(data))
    path.write_text(json.dumps({**data_of(path), "theme": "dark"}))
    assert person("--undo", "cursor").returncode == 0 and servers_of(path) == {"time": TIME}


def entries_of(path: Path) -> dict[str, Json]:
    if path.suffix == ".toml":
        return dict(tomllib.loads(path.read_text())["mcp_servers"])
    return servers_of(path)


def names_of(path: Path) -> set[str]:
    return set(entries_of(path))


def test_a_file_that_cannot_be_read_any_more_is_left_and_its_backup_named(person: Person) -> None:
    path = person.home.servers("cursor", time=TIME)
    person.install("cursor")
    path.write_text("\n{")
    done = person("--undo", "cursor")
    assert done.returncode == 1 and ".backup" in done.stderr and path.read_text() == "\n{"
    assert f"{path}:2:" in done.stderr
    path.unlink()
    done = person("--undo", "cursor")
    assert done.returncode == 1 and ".backup" in done.stderr and not path.exists()


def test_undo_without_the_backup_puts_the_servers_back_and_says_so(person: Person) -> None:
    path = person.home.servers("gemini", time=TIME, hub=HUB)
    path.write_text(json.dumps({**data_of(path), "theme": "dark"}))
    person.install("gemini")
    (backup,) = person.backups.glob("*.backup")
    backup.unlink()
    done = person("--undo", "gemini")
    assert done.returncode == 0 and "as it was before" not in done.stderr and "backup is gone" in done.stderr
    assert servers_of(path) == {"time": TIME, "hub": HUB} and data_of(path)["theme"] == "dark"


def test_undo_without_the_backup_of_a_file_that_is_gone_makes_none(person: Person) -> None:
    path = person.home.servers("gemini", time=TIME)
    person.install("gemini")
    (backup,) = person.backups.glob("*.backup")
    backup.unlink()
    path.unlink()
    assert person("--undo", "gemini").returncode == 1 and not path.exists()


def test_copy_that_an_undo_told_of_outlasts_later_installations(person: Person) -> None:
    path = person.home.servers("cursor", time=TIME, hub=HUB)
    first = path.read_bytes()
    person.install("cursor")
    path.write_text(json.dumps({**data_of(path), "theme": "dark"}))
    told = person("--undo", "cursor").stderr
    (kept,) = person.backups.iterdir()
    assert str(kept) in told
    person.install("cursor", "--add")
    assert person("--undo", "cursor").returncode == 0
    assert [*person.backups.iterdir()] == [kept] and kept.read_bytes() == first


def test_backups_are_their_owners_alone(person: Person) -> None:
    person.home.servers("cursor", hub=HUB)
    person.install("cursor")
    assert stat.S_IMODE(person.backups.stat().st_mode) == 0o700
    assert {stat.S_IMODE(each.stat().st_mode) for each in person.backups.iterdir()} == {0o600}


def test_a_second_installation_is_refused_and_keeps_the_first_backup(person: Person) -> None:
    path = person.home.servers("cursor", time=TIME)
    before = path.read_bytes()
    person.install("cursor")
    path.write_text(path.read_text().replace('"mcpServers": {', '"mcpServers": {"x": {"command": "x"},'))
    assert person("--add", "--install", "cursor").returncode == 1
    (backup,) = person.backups.glob("*.backup")
    assert backup.read_bytes() == before


def test_an_installation_that_died_before_it_wrote_is_begun_anew(person: Person) -> None:
    path = person.home.servers("cursor", time=TIME)
    before = path.read_bytes()
    person.install("cursor")
    path.write_bytes(before)
    person.install("cursor")
    assert list(servers_of(path)) == ["portal"]
    assert person("--undo", "cursor").returncode == 0 and path.read_bytes() == before
