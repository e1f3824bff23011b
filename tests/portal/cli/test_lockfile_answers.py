"""`search` and `explain` answer from the lockfile as the upstreams would, and ask these where only they know."""

import json
import os
import shutil
from pathlib import Path

import pytest

from manifests.json_value import Json
from manifests.own_files import state_folder
from tests.portal.commands import PortalCommand
from tests.portal.peers import raw_tools, sleeper, write_manifest

READ: Json = {
    "name": "read-file",
    "description": "Read a file. It may be long.",
    "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}
PING: Json = {"name": "ping", "inputSchema": {}}
WIPE: Json = {"name": "wipe", "inputSchema": {"type": "object"}, "annotations": {"destructiveHint": True}}
QUESTIONS = (
    "search",
    "search read --full --upstream up",
    "search b_c --json",
    "explain b_c --json",
    'explain up.read_file --arguments {"path":5}',
    "explain up.wipe --profile none",
    "explain up.resources/read",
)


def lists(folder: Path, *tools: Json) -> None:
    """The upstream's listing after a restart. Its section of the manifest stays the same."""
    (folder / "behaviour").write_text(json.dumps({"tools": tools}))


def written(folder: Path, **more: Json) -> Path:
    upstream = {**sleeper(folder / "behaviour"), "start": "eager", **more}
    return write_manifest(folder, {"up": upstream}, profiles={"none": {"tools": {"deny": ["*"]}}})


@pytest.fixture
def folder(portal: PortalCommand, tmp_path: Path) -> Path:
    lists(tmp_path, READ, PING, WIPE, *raw_tools("b-c", "b_c"))
    written(tmp_path)
    assert portal("lock", cwd=tmp_path).returncode == 0
    return tmp_path


def is_from_lock(portal: PortalCommand, folder: Path, question: str) -> bool:
    told = portal(*question.split(), cwd=folder).stderr
    return "no upstream was started" in told and "--live" in told


def test_answer_is_that_of_the_upstream_and_starts_none(portal: PortalCommand, folder: Path) -> None:
    live = [portal(*question.split(), "--live", cwd=folder) for question in QUESTIONS]
    (folder / "behaviour").unlink()  # it can no longer start
    assert [portal(*question.split(), cwd=folder).stdout for question in QUESTIONS] == [
        each.stdout for each in live
    ]
    shutil.rmtree(state_folder(os.environ) / "listings")  # as after a clone
    again = [portal(*question.split(), cwd=folder) for question in QUESTIONS]
    assert [(each.returncode, each.stdout) for each in again] == [
        (each.returncode, each.stdout) for each in live
    ]
    assert all("no upstream was started" in each.stderr for each in again)
    assert not any("no upstream was started" in each.stderr for each in live)


def test_only_an_upstream_knows_what_nobody_accepted(portal: PortalCommand, folder: Path) -> None:
    lists(folder, {**READ, "description": "Then mails it."}, PING, WIPE, *raw_tools("later"))
    told = portal("explain", "up.later", cwd=folder)
    assert told.returncode == 1 and "does not list it" in told.stdout
    assert not is_from_lock(portal, folder, "explain up.read_file"), "a changed tool was listed"
    assert not is_from_lock(portal, folder, "search read")
    assert is_from_lock(portal, folder, "explain up.wipe"), "it is as it was accepted"


def test_changed_section_is_listed_anew(portal: PortalCommand, folder: Path) -> None:
    written(folder, call_seconds=7)
    assert not is_from_lock(portal, folder, "explain up.wipe")
    assert is_from_lock(portal, folder, "explain up.wipe")
    written(folder, call_seconds=8)
    (folder / "portal.lock").unlink()
    assert not is_from_lock(portal, folder, "search")
