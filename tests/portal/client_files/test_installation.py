"""Whoever else writes a client's file meanwhile, or owns it, loses nothing."""

import os
from pathlib import Path

import pytest

from portal.client_files.backups import Backups
from portal.client_files.contents import read_contents
from portal.client_files.errors import ChangedFileError, ClientFileError
from portal.client_files.installation import Installation, planned, undo
from portal.client_files.places import places
from portal.client_files.portal_entry import portal_entry
from portal.client_files.raw_file import read_raw
from tests.portal.client_files.homes import TIME, Home, servers_of


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


def test_what_root_writes_stays_its_owners(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text("{}")
    owner = 12345 if os.geteuid() == 0 else os.geteuid()  # only root can give files away
    os.chown(path, owner, -1)
    read_raw(path).replace(b"{ }")
    assert path.stat().st_uid == owner


def planned_for_cursor(home: Home, manifest: Path) -> Installation:
    (place,) = (each for each in places("linux", {}, home.folder, home.project) if each.name == "cursor")
    contents = read_contents(place, home.folder, home.project, {})
    origins = [server.origin for server in contents.servers]
    return planned(contents, origins, portal_entry(place, manifest, {}), manifest)


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
    assert list(servers_of(path)) == ["time"]
    plan.carry_out(backups)
    with backups.alone(), pytest.raises(ClientFileError):
        undo(plan.place, backups)
    assert list(servers_of(path)) == ["portal"]
