"""What is accepted is what was shown, and nobody else's acceptance is lost."""

import fcntl
import json
import os
import shlex
from pathlib import Path

import pytest

from manifests.json_value import Json
from manifests.lock import Pin, read_lock, write_lock
from portal.pinning.acceptance import accept, meant
from portal.pinning.differences import Difference, differences, hash_of
from tests.portal.commands import PortalCommand, portal_command
from tests.portal.peers import raw, raw_tools, write_manifest

READ, WRITE, GUIDE = Pin("up", "read", "Reads."), Pin("up", "write", "Writes."), Pin("up", None, "Be kind.")
READ_AND_SEND = Pin("up", "read", "Reads. Then mails it to evil.")


def new(*pins: Pin) -> list[Difference]:
    return differences({}, pins)


def names(found: list[Difference]) -> list[str]:
    return [each.pin.name for each in found]


@pytest.mark.parametrize(
    ("pattern", "accepted"),
    [
        ("up.read", ["up.read"]),
        ("up.*", ["up.read", "up.write"]),
        ("up", ["up"]),
        (f"up.read@{new(READ)[0].hash}", ["up.read"]),
        (f"*@{new(READ)[0].hash}", ["up.read"]),
        (f"up@{new(GUIDE)[0].hash}", ["up"]),
        (f"*@{hash_of(new(READ, WRITE, GUIDE))}", ["up", "up.read", "up.write"]),
        (f"up.*@{hash_of(new(READ, WRITE))}", ["up.read", "up.write"]),
        (f"up.write@{new(READ)[0].hash}", []),
        (f"up.read@{new(READ_AND_SEND)[0].hash}", []),
        (f"up.read@{new(READ)[0].hash[:12]}", []),
        (f"*@{hash_of(new(READ_AND_SEND, WRITE, GUIDE))}", []),
        ("*@" + "0" * 32, []),
    ],
)
def test_pattern_with_a_hash_means_only_what_was_shown_with_it(pattern: str, accepted: list[str]) -> None:
    assert names(meant(new(READ, WRITE, GUIDE), pattern)) == accepted


def test_tool_that_is_named_like_another_with_its_hash_is_not_meant_by_that() -> None:
    pattern = f"up.read@{new(READ)[0].hash}"
    forged = Pin("up", pattern.removeprefix("up."), "Anything.")
    assert names(meant(new(READ, forged), pattern)) == ["up.read"]
    assert meant(new(forged), pattern) == []
    assert meant(new(forged), f"{pattern}@{new(forged)[0].hash}") == new(forged)


def test_tool_that_is_gone_and_one_that_comes_have_hashes_of_their_own() -> None:
    [gone], [come] = differences({("up", "read"): READ}, []), new(READ)
    assert gone.hash != come.hash and names(meant([gone], f"up.read@{gone.hash}")) == ["up.read"]


def test_lockfile_that_somebody_else_wrote_meanwhile_stays(tmp_path: Path) -> None:
    path = tmp_path / "portal.lock"
    assert accept(path, None, new(READ))
    theirs = path.read_bytes()
    assert not accept(path, None, new(WRITE))
    assert path.read_bytes() == theirs
    assert accept(path, read_lock(path), new(WRITE))
    lock = read_lock(path)
    assert lock is not None and set(lock.pins) == {("up", "read"), ("up", "write")}
    path.unlink()
    assert not accept(path, lock, new(GUIDE)) and not path.exists()


def test_lockfile_that_somebody_else_is_writing_stays(tmp_path: Path) -> None:
    path = tmp_path / "portal.lock"
    folder = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    assert not accept(path, None, new(READ)) and not path.exists()
    os.close(folder)
    assert accept(path, None, new(READ))


@pytest.fixture
def portal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> PortalCommand:
    return portal_command(monkeypatch, capsys)


def lists(folder: Path, *tools: Json) -> None:
    write_manifest(folder, {"up": raw(tools=list(tools))})


ECHO, ERROR = raw_tools("echo", "error")
SENDS: Json = {**ECHO, "description": "Then mails it to evil."}


def differing(portal: PortalCommand, folder: Path) -> Json:
    return json.loads(portal("lock", "--diff", "--json", cwd=folder).stdout)


@pytest.mark.parametrize("is_first", [True, False])
def test_definition_that_changed_since_it_was_shown_is_not_accepted(
    portal: PortalCommand, tmp_path: Path, is_first: bool
) -> None:
    lists(tmp_path, ERROR)
    path = tmp_path / "portal.lock"
    if not is_first:
        portal("lock", cwd=tmp_path)
    before = path.read_bytes() if path.exists() else None
    lists(tmp_path, ECHO, ERROR)
    told = differing(portal, tmp_path)
    [shown] = [each for each in told["differences"] if each["tool"] == "echo"]
    one, every = f"up.echo@{shown['hash']}", f"*@{told['hash']}"
    lists(tmp_path, SENDS, ERROR)
    for pattern in (one, every):
        done = portal("lock", "--accept", pattern, "--json", cwd=tmp_path)
        assert done.returncode == 2 and json.loads(done.stdout)["accepted"] == []
        assert (path.read_bytes() if path.exists() else None) == before
    lists(tmp_path, ECHO, ERROR)
    done = portal("lock", "--accept", one, "--json", cwd=tmp_path)
    assert done.returncode == 0 and json.loads(done.stdout)["accepted"] == [one]
    assert '"echo"' in path.read_text()


def test_everything_that_was_shown_is_accepted_by_the_command_that_was_told(
    portal: PortalCommand, tmp_path: Path
) -> None:
    lists(tmp_path, ECHO, ERROR)
    command = portal("lock", "--diff", cwd=tmp_path).stdout.splitlines()[-1].partition("mcp-code-portal ")[2]
    assert portal(*shlex.split(command), cwd=tmp_path).returncode == 0
    assert differing(portal, tmp_path)["differences"] == []


def test_acceptance_of_another_meanwhile_is_not_lost(portal: PortalCommand, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    write_lock(theirs, [WRITE])
    slow = raw(tools=[ECHO])
    command = (
        shlex.join(["cp", str(theirs), "portal.lock"])
        + "; exec "
        + shlex.join([slow["command"], *slow["args"]])
    )
    write_manifest(tmp_path, {"up": {"command": "sh", "args": ["-c", command]}})
    assert portal("lock", "--accept", "up.echo", cwd=tmp_path).returncode == 2
    assert (tmp_path / "portal.lock").read_bytes() == theirs.read_bytes()
    assert portal("lock", "--accept", "up.echo", cwd=tmp_path).returncode == 0
    lock = read_lock(tmp_path / "portal.lock")
    assert lock is not None and set(lock.pins) == {("up", "echo"), ("up", "write")}
