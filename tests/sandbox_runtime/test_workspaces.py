"""Owners of files, quotas, and the files that remain after each ending of a run."""

import asyncio
from pathlib import Path

import pytest

from manifests.grants import FileGrant, Limits
from sandbox_runtime.errors import WorkspaceError
from sandbox_runtime.grants.files import open_workspaces
from sandbox_runtime.grants.run_grants import RunGrants
from sandbox_runtime.sandbox import Sandbox, Session
from tests.sandbox_runtime.granted_files import FileRunner, granted
from tests.sandbox_runtime.running import Runner, where

WRITE = 'open("f", "w").write("{}")\n'


async def test_without_a_grant_the_error_says_who_can_grant_a_folder(run: Runner) -> None:
    for script in ('open("data.csv")', 'import os\nos.listdir(".")'):
        error = await run.error(script)
        assert "operator" in error.hint


CHANGES = """
import os
told = []
for do in (
    lambda: open("x", "w"), lambda: open("given.txt", "a"), lambda: open("given.txt", "r+"), lambda: os.mkdir("d"),
    lambda: os.remove("given.txt"), lambda: os.rename("given.txt", "y"),
):
    try:
        do()
    except OSError as error:
        told.append(os.strerror(error.errno))
[open("/workspace/given.txt").read(), os.access("given.txt", os.W_OK), told]
"""


async def test_only_reading_is_granted_unless_the_manifest_says_more(run: Runner, tmp_path: Path) -> None:
    (tmp_path / "given.txt").write_text("given")
    async with granted(run, tmp_path, mode="read") as files:
        assert await files.value(CHANGES) == ["given", False, ["Read-only file system"] * 6]
    assert files.names() == ["given.txt"]


async def test_file_that_was_never_closed_is_saved_at_the_end(files: FileRunner) -> None:
    await files.value('f = open("a", "w")\nf.write("never closed")\n1')
    await files.error('g = open("b", "w")\ng.write("before the error")\n1 / 0')
    assert await files.value('[open("a").read(), open("b").read()]') == ["never closed", "before the error"]


async def test_open_file_of_a_session_goes_on_in_its_next_run(files: FileRunner, session: Session) -> None:
    await files.value('f = open("log", "w")\nf.write("one ")', session)
    assert (files.folder / "log").read_text() == "one "
    await files.value('f.write("two")\nf.close()', session)
    assert (files.folder / "log").read_text() == "one two"


async def test_what_others_wrote_meanwhile_is_not_overwritten(files: FileRunner) -> None:
    script = """
f = open("f", "w")
f.write("one")
f.flush()
open("f", "a").write("two")
f.write("three")
try:
    f.flush()
except OSError as error:
    told = str(error)
told, open("f").read()
"""
    told, content = await files.value(script)
    assert "changed in between" in told and content == "onetwo"


async def test_file_of_a_run_that_is_stopped_is_the_old_one(files: FileRunner) -> None:
    (files.folder / "f").write_text("old")
    result = await files(
        'f = open("f", "w")\nf.write("new")\nwhile True: pass', limits=Limits(cpu_seconds=0.2)
    )
    assert result.error is not None
    assert result.error.code == "cpu_limit"
    assert ((files.folder / "f").read_text(), files.names()) == ("old", ["f"])


async def test_file_that_cannot_be_saved_at_the_end_is_a_notice(run: Runner, tmp_path: Path) -> None:
    async with granted(run, tmp_path, total_bytes=10) as files:
        for writing in ('f = open("f", "w")\nf.write("x" * 100)', 'open("f", "w").write("x" * 100)'):
            result = await files(f'{writing}\n"value"')
            assert (result.value, result.error, result.stdout) == ("value", None, "")
            assert [notice for notice in result.notices if "'f'" in notice and "total_bytes" in notice]


async def test_operations_are_counted_and_refused_beyond_the_limit(run: Runner, tmp_path: Path) -> None:
    script = (
        'import os\nn = 0\ntry:\n    while True:\n        os.path.exists("f")\n        n += 1\n'
        "except ToolError as error: told = error.code\n[n, told]"
    )
    async with granted(run, tmp_path, operations=7) as files:
        assert await files.value(script) == [7, "file_operations_limit"]
        async with files.workspaces.files(None) as service:
            assert service is not None and service.tallies() == []


async def test_what_was_done_is_counted_by_kind_and_end(run: Runner, tmp_path: Path) -> None:
    script = 'import os\nopen("f", "w").write("x")\nopen("f").read()\nos.path.exists("y")\nos.mkdir("f/g")'
    async with granted(run, tmp_path) as files, files.workspaces.files(None) as service:
        assert service is not None
        await run(script, grants=RunGrants(files=service))
        counts = {(tally.is_writing, tally.state): tally.count for tally in service.tallies()}
    assert counts == {(True, "done"): 2, (False, "done"): 1, (False, "failed"): 1, (True, "failed"): 1}


async def test_session_or_run_has_own_files_until_it_ends(
    run: Runner, sandbox: Sandbox, tmp_path: Path
) -> None:
    one, other = await asyncio.gather(sandbox.open_session(), sandbox.open_session())
    async with granted(run, tmp_path, share="session") as files:
        for session in (one, other):
            await files.value(WRITE.format(id(session)), session)
        assert await files.value('open("f").read()', one) == str(id(one))
        assert await files.value("import os\nos.listdir()") == []
        one.close()
        assert await files.value('open("f").read()', other) == str(id(other))
        assert len([name for name in files.names() if name.endswith("/f")]) == 1
    other.close()
    async with granted(run, tmp_path, share="run") as files:
        assert await files.value(WRITE.format("mine") + 'open("f").read()') == "mine"
        assert await files.value("import os\nos.listdir()") == []
        assert [name for name in files.names() if "/" in name] == []
    assert files.names() == []


@pytest.mark.parametrize("workspace", ["missing", "a_file", "/proc/self"])
async def test_workspace_that_cannot_be_used_is_said_at_the_start(tmp_path: Path, workspace: str) -> None:
    (tmp_path / "a_file").write_text("")
    with pytest.raises(WorkspaceError):
        async with open_workspaces(
            FileGrant(workspace=workspace, mode="write", share="run"), tmp_path, where
        ):
            pass


@pytest.mark.parametrize(
    ("operation", "changes"),
    [
        ("os.mkdir('d')", 1),
        ("os.remove('given.txt')", 1),
        ("os.rename('given.txt', 'y')", 1),
        ("open('given.txt').read()", 0),
        ("os.listdir(), os.stat('given.txt')", 0),
    ],
)
async def test_change_waits_for_what_comes_before_it(
    run: Runner, tmp_path: Path, operation: str, changes: int
) -> None:
    async with granted(run, tmp_path) as files, files.workspaces.files(None) as service:
        assert service is not None
        (tmp_path / "given.txt").write_text("given")
        seen: list[list[str]] = []

        async def before_change() -> None:
            seen.append(files.names())

        service.before_change = before_change
        result = await run(f"import os\n{operation}\n1", grants=RunGrants(files=service))
    assert result.value == 1
    assert seen == [["given.txt"]] * changes


async def test_change_whose_condition_fails_is_not_made(run: Runner, tmp_path: Path) -> None:
    async def before_change() -> None:
        raise OSError("the disk of the journal is full")

    async with granted(run, tmp_path) as files, files.workspaces.files(None) as service:
        assert service is not None
        service.before_change = before_change
        with pytest.raises(OSError, match="journal"):
            await run('open("f", "w").write("1")', grants=RunGrants(files=service))
    assert files.names() == []
