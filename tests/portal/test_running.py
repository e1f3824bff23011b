"""Portals of one user find each other."""

import os
import subprocess
import sys

import pytest

from manifests.own_files import UNFINISHED
from portal.app.running import RunningPortal, announced, running_portals

KILLED = """
import os
from portal.app.running import RunningPortal, announced
with announced(RunningPortal(os.getpid(), "/killed/portal.yaml")):
    print(flush=True)
    input()
"""


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_portal_is_found_while_it_runs():
    portal = RunningPortal(os.getpid(), "/here/portal.yaml", "127.0.0.1", 8080)
    with announced(portal):
        assert running_portals() == [portal]
    assert running_portals() == []


def test_portal_says_on_which_files_it_runs():
    with announced(
        RunningPortal(os.getpid(), "/here/portal.yaml", hashes={"portal.yaml": "a longer one"})
    ) as announce:
        announce({"a": "b"})
        assert running_portals() == [RunningPortal(os.getpid(), "/here/portal.yaml", hashes={"a": "b"})]


def test_killed_portal_is_not_found_and_leaves_no_file(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", KILLED], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    assert [each.pid for each in running_portals()] == [process.pid]
    process.kill()
    process.wait()
    assert running_portals() == []
    assert [*(tmp_path / "state").rglob("*.json")] == []


def test_portal_without_a_writable_state_folder_runs(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with announced(RunningPortal(os.getpid())):
        assert running_portals() == []


def test_file_of_a_portal_that_starts_is_nobody_elses(tmp_path):
    folder = tmp_path / "state/mcp-code-portal/portals"
    folder.mkdir(parents=True)
    (folder / f"{UNFINISHED}{os.getpid()}-x.json").write_text("{}")
    assert running_portals() == []
    assert [*folder.iterdir()] != []
