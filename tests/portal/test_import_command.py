"""`mcp-code-portal import`, as a person and a pipeline use it."""

import json
import os
import stat
from pathlib import Path

import pytest

from manifests.json_value import Json
from manifests.loader import load_manifest
from portal.client_files.errors import ClientFileError
from portal.client_files.places import CLIENTS
from portal.client_files.target import Target
from tests.portal.client_files.person import Person

GITHUB: dict[str, Json] = {
    "command": "npx",
    "args": ["-y", "server-github", "--api-key", "hunter2"],
    "env": {"GITHUB_TOKEN": "ghp_abcdefghij0123456789"},
    "timeout": 5,
}
SECRETS = ("hunter2", "ghp_abcdefghij0123456789")


def test_what_was_found_is_shown_and_written_without_secrets(person: Person) -> None:
    path = person.home.servers("cursor", github=GITHUB, bad={})
    before = path.read_bytes()
    done = person()
    assert done.returncode == 0
    text = person.manifest.read_text()
    for secret in SECRETS:
        assert secret not in done.stdout + done.stderr + text
    for told in ("github", "~/.cursor/mcp.json", "${GITHUB_TOKEN}", "timeout", "neither a command nor a URL"):
        assert told in done.stdout
    values = dict(zip(("GITHUB_API_KEY", "GITHUB_TOKEN"), SECRETS, strict=True))
    (upstream,) = load_manifest(person.manifest, values).portal.upstreams.values()
    assert upstream.model_dump()["args"] == tuple(GITHUB["args"])
    assert path.read_bytes() == before and not person.env.exists()


def test_saved_secrets_are_their_owners_alone_and_complete_the_manifest(person: Person) -> None:
    person.home.servers("cursor", github=GITHUB)
    assert person("--save-secrets").returncode == 0
    assert stat.S_IMODE(person.env.stat().st_mode) == 0o600
    (upstream,) = load_manifest(person.manifest, {}).portal.upstreams.values()
    assert upstream.model_dump()["env"] == GITHUB["env"]


def test_secrets_can_be_saved_afterwards(person: Person) -> None:
    person.home.servers("cursor", github=GITHUB)
    person()
    text = person.manifest.read_text()
    assert person("--save-secrets").returncode == 0
    assert person.manifest.read_text() == text
    assert load_manifest(person.manifest, {}).portal.upstreams
    kept = person.env.read_bytes()
    assert person("--save-secrets").returncode == 0 and person.env.read_bytes() == kept


def test_secrets_of_two_accounts_saved_afterwards_are_not_mixed_up(person: Person) -> None:
    person.home.servers("cursor", hub={"command": "hub", "env": {"HUB_TOKEN": "hunter1"}})
    person.home.servers("gemini", hub={"command": "hub", "env": {"HUB_TOKEN": "hunter2"}})
    person()
    assert person("--save-secrets").returncode == 0
    upstreams = load_manifest(person.manifest, {}).portal.upstreams
    assert [each.model_dump()["env"]["HUB_TOKEN"] for each in upstreams.values()] == ["hunter1", "hunter2"]


def test_dry_run_writes_nothing(person: Person) -> None:
    person.home.servers("cursor", github=GITHUB)
    done = person("--dry-run", "--save-secrets")
    assert done.returncode == 0 and "github" in done.stdout
    assert list(person.home.project.iterdir()) == []


def test_a_manifest_that_is_there_is_never_overwritten(person: Person) -> None:
    person.home.servers("cursor", github=GITHUB, time={"command": "uvx"})
    person.manifest.write_text("upstreams:\n  mine: {command: x}  # keep\n")
    before = person.manifest.read_bytes()
    done = person()
    assert done.returncode == 2 and person.manifest.read_bytes() == before
    assert "github:" in done.stdout and "--add" in done.stderr and "hunter2" not in done.stdout
    assert person("--add", "--dry-run").returncode == 0 and person.manifest.read_bytes() == before
    assert person("--add").returncode == 0
    assert person.manifest.read_bytes().startswith(before)
    values = dict.fromkeys(("GITHUB_API_KEY", "GITHUB_TOKEN"), "x")
    assert set(load_manifest(person.manifest, values).portal.upstreams) == {"mine", "github", "time"}
    after = person.manifest.read_bytes()
    assert person("--add").returncode == 0 and person.manifest.read_bytes() == after


def test_adding_keeps_the_mark_with_which_some_editors_begin_a_file(person: Person) -> None:
    person.home.servers("cursor", time={"command": "uvx"})
    person.manifest.write_bytes(b"\xef\xbb\xbfupstreams:\r\n  mine: {command: x}\r\n")
    before = person.manifest.read_bytes()
    assert person("--add").returncode == 0
    assert person.manifest.read_bytes().startswith(before)
    assert set(load_manifest(person.manifest, {}).portal.upstreams) == {"mine", "time"}


def test_a_manifest_that_appears_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "portal.yaml"
    target = Target.at(path)
    path.write_text("theirs")
    with pytest.raises(ClientFileError):
        target.write("ours")
    assert path.read_text() == "theirs"
    path.unlink()
    target.write("ours")
    assert path.read_text() == "ours"


def test_a_link_to_no_manifest_is_told(person: Person) -> None:
    person.home.servers("cursor", time={"command": "uvx"})
    person.manifest.symlink_to("elsewhere.yaml")
    done = person()
    assert done.returncode and "is a link" in done.stderr


def test_adding_keeps_the_mode_and_a_link(person: Person, tmp_path: Path) -> None:
    person.home.servers("cursor", time={"command": "uvx"})
    real = tmp_path / "elsewhere.yaml"
    real.write_text("# mine\n")
    real.chmod(0o640)
    person.manifest.symlink_to(real)
    assert person("--add").returncode == 0
    assert person.manifest.is_symlink() and stat.S_IMODE(real.stat().st_mode) == 0o640
    assert "uvx" in real.read_text()


def test_one_written_on_one_line_is_left_and_told_what_to_write(person: Person) -> None:
    person.home.servers("cursor", time={"command": "uvx"})
    person.manifest.write_text("upstreams: {mine: {command: x}}\n")
    done = person("--add")
    assert done.returncode == 2 and "uvx" in done.stdout
    assert person.manifest.read_text() == "upstreams: {mine: {command: x}}\n"


@pytest.mark.parametrize("text", ["upstreams: {mine: {command: x}}\n", "upstreams:\n  mine: {command: x}\n"])
def test_secrets_that_are_not_saved_are_told(person: Person, text: str) -> None:
    person.manifest.write_text(text)
    person.home.servers("cursor", hub={"command": "hub", "env": {"HUB_TOKEN": "hunter2"}})
    add = ["--add"] if "{mine" in text else []
    done = person("--save-secrets", *add)
    assert done.returncode == 2 and "HUB_TOKEN" in done.stdout
    assert not person.env.exists() and "portal.env" in done.stderr
    assert "portal.env" not in person(*add).stderr
    person.manifest.write_text("upstreams:\n  hub: {command: hub, env: {HUB_TOKEN: '${HUB_TOKEN}'}}\n")
    assert person("--save-secrets").returncode == 0 and "hunter2" in person.env.read_text()


def test_only_the_clients_that_are_asked_for_are_read(person: Person) -> None:
    person.home.servers("cursor", a={"command": "a"})
    person.home.servers("cursor-project", b={"command": "b"})
    person.home.servers("windsurf", c={"command": "c"})
    found = {
        name: [each["name"] for each in person.facts("--dry-run", name)["servers"]]
        for name in ("cursor", "cursor-project")
    }
    assert found == {"cursor": ["a", "b"], "cursor-project": ["b"]}
    assert person("nothing").returncode == 2


def test_an_unusable_file_is_told_and_the_others_are_taken_over(person: Person) -> None:
    broken = person.home.write("cursor", '{\n"mcpServers": ')
    person.home.servers("windsurf", fine={"command": "x"})
    done = person()
    assert done.returncode == 1 and f"{broken}:2" in done.stderr
    assert list(load_manifest(person.manifest, {}).portal.upstreams) == ["fine"]


def test_nothing_found_is_told(person: Person) -> None:
    person.home.servers("windsurf")
    done = person()
    assert done.returncode == 1
    assert not person.manifest.exists()
    assert "0 servers" in done.stdout and "/windsurf/" not in done.stderr
    for told in ("~/.cursor/mcp.json", "~/.claude.json", "write portal.yaml"):
        assert told in done.stderr
    person.manifest.write_text("upstreams: {}")
    assert "write portal.yaml" not in person().stderr


def test_what_is_still_to_be_set_is_told(person: Person) -> None:
    person.home.servers("cursor", hub={"command": "hub", "env": {"A": "${env:FIRST}", "B_TOKEN": "hunter2"}})
    assert "set FIRST, B_TOKEN" in person().stderr
    person.manifest.unlink()
    assert "set FIRST, in" in person("--save-secrets").stderr
    person.manifest.unlink()
    assert "set " not in person(FIRST="x").stderr


def test_servers_of_a_projects_file_are_pointed_out(person: Person) -> None:
    person.home.servers("cursor", mine={"command": "x"})
    assert "of the project" not in person().stderr
    person.home.servers("claude-code-project", theirs={"command": "y"})
    done = person("--add")
    assert "theirs: from files of the project" in done.stderr


def test_a_folder_that_is_not_utf8_is_told(person: Person, tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    (folder / ".cursor").mkdir(parents=True)
    text = '{"mcpServers": {"near": {"command": "./x"}, "far": {"command": "y"}}}'
    (folder / ".cursor/mcp.json").write_text(text)
    done = person("--project", str(folder))
    assert done.returncode == 0 and "UTF-8" in done.stdout
    assert list(load_manifest(person.manifest, {}).portal.upstreams) == ["far"]


def test_json_says_everything_and_no_secret(person: Person) -> None:
    person.home.servers("cursor", github=GITHUB, off={"command": "x", "disabled": True})
    person.home.write("windsurf", "[")
    done = person("--json", "--save-secrets")
    facts = json.loads(done.stdout)
    assert not any(secret in done.stdout for secret in SECRETS)
    assert [(each["client"], each["servers"], each["line"]) for each in facts["files"]] == [
        ("cursor", 1, None),
        ("windsurf", 0, 1),
    ]
    (server,) = facts["servers"]
    assert (server["name"], server["is_new"], server["from"][0]["line"]) == ("github", True, 3)
    assert server["spec"]["env"] == {"GITHUB_TOKEN": "${GITHUB_TOKEN}"}
    assert facts["left_out"][0]["name"] == "off" and facts["left_out"][0]["reason"]
    assert [(each["name"], each["kind"], each["is_set"]) for each in facts["variables"]] == [
        ("GITHUB_API_KEY", "secret", True),
        ("GITHUB_TOKEN", "secret", True),
    ]
    assert facts["manifest"] == {"path": str(person.manifest), "was_there": False, "is_written": True}


def test_texts_of_files_cannot_steer_the_terminal(person: Person) -> None:
    person.home.servers("cursor", **{"a\x1b[2J": {"command": "x\x1b[2J"}, "b\x1b[2J": {}})
    done = person()
    assert done.returncode == 0 and "\x1b" not in done.stdout + done.stderr


def test_no_program_of_a_file_is_started(person: Person, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    evil = f"touch {mark}"
    person.home.servers(
        "claude-code-project",
        a={"command": "sh", "args": ["-c", evil]},
        b={"command": f"$({mark})", "env": {"X": f"`{evil}`", "Y": f"${{command:{evil}}}"}},
        c={"url": "https://x.example/mcp", "headersHelper": evil},
    )
    assert person().returncode == 0
    manifest = load_manifest(person.manifest, {})
    assert manifest.portal.upstreams["b"].model_dump()["env"]["Y"] == f"${{command:{evil}}}"
    assert not mark.exists()


def test_a_command_of_the_manifest_is_not_run_to_add_to_it(person: Person, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    person.home.servers("cursor", time={"command": "uvx"})
    person.manifest.write_text(
        f'upstreams:\n  mine: {{command: x, env: {{A: "${{command:touch {mark}}}"}}}}\n'
    )
    assert person("--add").returncode == 0 and "uvx" in person.manifest.read_text()
    assert not mark.exists()


@pytest.mark.parametrize(
    ("manifest", "env"),
    [
        ("upstreams:\n  mine: {command: x}\nno_such_key: 1\n", ""),
        ("upstreams: [\n", ""),
        ("upstreams:\n  mine: {command: x}\n", "what is this\n"),
    ],
)
def test_a_manifest_that_cannot_be_used_is_told_and_left(person: Person, manifest: str, env: str) -> None:
    person.home.servers("cursor", time={"command": "uvx"})
    person.manifest.write_text(manifest)
    person.env.write_text(env)
    person.env.chmod(0o600)
    done = person("--add")
    assert done.returncode == 2 and "portal." in done.stderr and "Traceback" not in done.stderr
    assert person.manifest.read_text() == manifest


def test_a_variable_with_a_default_here_and_none_there_is_still_to_be_set(person: Person) -> None:
    person.home.servers("claude-code", a={"command": "a", "env": {"REGION": "${AWS_REGION:-us-east-1}"}})
    person.home.servers("claude-code-project", b={"command": "b", "env": {"REGION": "${AWS_REGION}"}})
    done = person()
    assert done.returncode == 0 and "set AWS_REGION" in done.stderr
    assert load_manifest(person.manifest, {"AWS_REGION": "x"}).portal.upstreams.keys() == {"a", "b"}


def test_another_config_is_written_where_it_is_asked_for(person: Person, tmp_path: Path) -> None:
    person.home.servers("cursor", github=GITHUB)
    assert person("--config", str(tmp_path / "other.yaml"), "--save-secrets").returncode == 0
    assert load_manifest(tmp_path / "other.yaml", {}).portal.upstreams and (tmp_path / "other.env").exists()
    assert not person.manifest.exists()


def test_every_client_has_its_name_in_the_help(person: Person) -> None:
    help_text = " ".join(person("--help").stdout.split())
    assert all(client.name in help_text for client in CLIENTS)


def test_a_place_that_cannot_be_written_is_told(person: Person) -> None:
    person.home.servers("cursor", github=GITHUB)
    done = person("--config", os.fspath(person.home.folder / "none" / "portal.yaml"))
    assert done.returncode == 1 and "cannot be written" in done.stderr
