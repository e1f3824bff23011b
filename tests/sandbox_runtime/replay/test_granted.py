"""Files and environment variables of a run are in its record: a replay needs neither, and changes nothing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sandbox_runtime.grants.run_grants import RunGrants
from sandbox_runtime.recording import Record
from sandbox_runtime.replay import Repetition, replay, resume
from sandbox_runtime.sandbox import Sandbox
from tests.sandbox_runtime.granted_files import granted
from tests.sandbox_runtime.replay.recorder import Recorder, facts
from tests.sandbox_runtime.running import EchoPort, Runner, where

SCRIPT = """
import csv, os, pathlib
with open("rows.csv", "w", newline="") as file:
    csv.writer(file).writerows([[1, "a"], [2, "b"]])
with open("log", "a") as file:
    file.write("one\\n")
answer = await git.git_log(i=1)
pathlib.Path("folder").mkdir()
[open("rows.csv").read(), os.listdir(), os.stat("log").st_mtime_ns, answer]"""


@asynccontextmanager
async def files_of(run: Runner, folder: Path) -> AsyncIterator[RunGrants]:
    async with granted(run, folder) as files, files.workspaces.files(None) as service:
        yield RunGrants(files=service)


def emptied(folder: Path) -> list[str]:
    """Remove all in a folder, and tell what it was."""
    paths = sorted(folder.rglob("*"), reverse=True)
    for path in paths:
        path.rmdir() if path.is_dir() else path.unlink()
    return [path.name for path in paths]


async def test_replay_uses_no_file(sandbox: Sandbox, run: Runner, recorded: Recorder, tmp_path: Path) -> None:
    async with files_of(run, tmp_path) as grants:
        result, record = await recorded(SCRIPT, grants=grants)
    assert result.error is None
    emptied(tmp_path)
    assert facts(await replay(sandbox, record, where)) == facts(result)
    assert emptied(tmp_path) == []


def before_the_answer_to(record: Record, operation: str) -> Record:
    """The record up to where an operation was handed out, without its answer."""
    sent = next(i for i, e in enumerate(record.events) if e.kind == "sent" and operation in e.text)
    assert record.events[sent + 1].kind == "answered"
    return record.until(sent + 1)


async def test_change_under_way_is_not_repeated(
    sandbox: Sandbox, run: Runner, recorded: Recorder, tmp_path: Path
) -> None:
    script = """
try:
    with open("log", "a") as file:
        file.write("x")
except OSError as error:
    print(error)
"over"
"""
    async with files_of(run, tmp_path) as grants:
        _, record = await recorded(script, grants=grants)
        assert (tmp_path / "log").read_text() == "x"
        interrupted = Repetition(before_the_answer_to(record, "portal.files.append"), goes_on=True)
        result = await resume(sandbox, interrupted, where, EchoPort(), grants=grants)
    assert (result.value, "interrupted" in result.stdout) == ("over", True)
    assert (tmp_path / "log").read_text() == "x"


async def test_files_go_on_after_resuming(
    sandbox: Sandbox, run: Runner, recorded: Recorder, tmp_path: Path
) -> None:
    script = 'open("a", "w").write("1")\nawait git.git_log()\nopen("b", "w").write("2")\nopen("a").read()'
    async with files_of(run, tmp_path) as grants:
        _, record = await recorded(script, grants=grants)
        (tmp_path / "b").unlink()
        (tmp_path / "a").write_text("3")
        interrupted = Repetition(before_the_answer_to(record, "git.git_log"), goes_on=True)
        result = await resume(sandbox, interrupted, where, EchoPort(), grants=grants)
    assert (result.error, result.value) == (None, "3")
    assert (tmp_path / "b").read_text() == "2"
