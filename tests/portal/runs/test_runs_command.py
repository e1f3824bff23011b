"""`mcp-code-portal runs` works on the store of runs, whether or not a portal uses it."""

import json
import os
import pty
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from manifests.grants import Limits
from manifests.json_value import Json
from manifests.loader import load_manifest
from portal.answer import Answer
from portal.definitions import ExecuteCode
from portal.runs.decisions import decide_call
from portal.runs.past import HEAD, EntryRow, Past, RunHead, dump_chunk, new_row
from portal.sessions import LOCAL
from portal.store.places import FilePlace, held_place, open_tables
from portal.store.records import CallRow
from portal.store.run_tables import RunTables
from portal.store.sqlite import SqliteDatabase
from sandbox_runtime.calls import Outcome, ToolCall
from sandbox_runtime.recording import Record, Recording
from sandbox_runtime.sandbox import open_sandbox
from tests.portal.commands import COMMAND, COMMAND_SECONDS, PortalCommand
from tests.sandbox_runtime.running import where

RUN = f"run_aaaa{'0' * 28}"
OTHER = f"run_aaab{'0' * 28}"
SCRIPT = """\
# release \x1b[2J notes
log = await git.git_log(count=2)
print("seen", log)
await git.git_log(count=3)
"""
TABLE = {"git": {"git_log": "async def git_log(**arguments) -> dict"}}
ASKED: Json = {
    "upstream": "git",
    "function": "git.push",
    "arguments": {"branch": "main\u202e", "force": True},
    "arguments_sha256": "5" * 64,
    "rule": "capabilities.tools.ask: git.push",
    "where": "portal.yaml:3:9",
}


async def recorded(script: str) -> Record:
    """The record of a script, from its start to its end."""
    recording = Recording()

    async def port(call: ToolCall) -> Outcome:
        return Outcome({"seq": call.seq})

    async with (
        open_sandbox(workers=1, progress=print) as sandbox,
        sandbox.run(Limits(), where, recording=recording) as run,
    ):
        await run.prepare(script, ("git",))
        await run.execute(TABLE, port)
    assert recording.record is not None
    return recording.record


@pytest.fixture(scope="module")
def record() -> Record:
    return anyio.run(recorded, SCRIPT)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "portal.yaml").write_text("upstreams: {}\nruns: {store: runs.sqlite}\n")
    return tmp_path


@pytest.fixture
def store(folder: Path) -> Iterator[RunTables]:
    file = RunTables(SqliteDatabase(folder / "runs.sqlite"), None)
    yield file
    file.close()


def begin(store: RunTables, run: str = RUN, record: Record | None = None, *calls: CallRow) -> None:
    """A run of SCRIPT in the store, whose journal has all events of the record."""
    started = None if record is None else replace(record, events=())
    head = RunHead(ExecuteCode(SCRIPT), LOCAL, None, started)
    entries = [EntryRow(n, "git.git_log", "done", "", 1.5, 0.0, None, (), "git") for n in (1, 2)]
    with store.transaction():
        store.create(new_row(run, "somebody", head, None, 30), HEAD.dump_json(head))
        if record is not None:
            store.advance(run, 1, chunk=dump_chunk(record.events, tuple(entries)))
        store.advance(run, 1, calls=calls)


def asking(run: str = RUN, seq: int = 3) -> CallRow:
    return CallRow(run, seq, "ask", "git.push", "waiting", shown=json.dumps(ASKED).encode())


def park(store: RunTables, run: str = RUN) -> None:
    with store.transaction():
        store.park(run, 1, [call.seq for call in store.calls(run)])


def end(store: RunTables, answer: Answer) -> None:
    with store.transaction():
        store.finish(answer.run_id, answer.status, answer.dump())


# Lists and details


def test_open_runs_are_listed_with_what_they_wait_for(
    portal: PortalCommand, folder: Path, store: RunTables
) -> None:
    begin(store, RUN, None, asking())
    park(store)
    begin(store, OTHER)
    end(store, Answer("ok", OTHER))
    done = portal("runs", cwd=folder)
    assert (done.returncode, OTHER in done.stdout) == (0, False)
    assert re.search(rf"{RUN} +waiting +\d+ s +ask git.push +# release", done.stdout)
    everything = json.loads(portal("runs", "list", "--all", "--json", cwd=folder).stdout)
    assert [(each["run_id"], each["state"]) for each in everything] == [(RUN, "waiting"), (OTHER, "ok")]
    newest = json.loads(portal("runs", "list", "--all", "--limit", "1", "--json", cwd=folder).stdout)
    assert [each["run_id"] for each in newest] == [RUN]


def test_list_keeps_ids_whole_on_a_narrow_terminal(
    portal: PortalCommand, folder: Path, store: RunTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(store, RUN, None, asking())
    monkeypatch.setattr("portal.cli.terminal._PIPE_COLUMNS", 80)
    lines = portal("runs", cwd=folder).stdout.splitlines()
    assert len(lines) == 2 and RUN in lines[1]
    assert max(map(len, lines)) <= 80


def test_there_may_be_no_store_yet(portal: PortalCommand, folder: Path) -> None:
    done = portal("runs", cwd=folder)
    assert (done.returncode, done.stdout) == (0, "")
    assert not (folder / "runs.sqlite").exists()


def test_stores_of_all_portals_are_shown(portal: PortalCommand, folder: Path, own_state: None) -> None:
    (folder / "portal.yaml").write_text("upstreams: {}\n")
    manifest = load_manifest(folder / "portal.yaml", {})
    with held_place(manifest) as first, held_place(manifest) as second:
        for place, run in ((first, RUN), (second, OTHER)):
            file = open_tables(place, manifest)
            begin(file, run)
            file.close()
        listed = json.loads(portal("runs", "--json", cwd=folder).stdout)
        assert {each["run_id"] for each in listed} == {RUN, OTHER}
        assert isinstance(first, FilePlace)
        (first.path.with_name("2.sqlite")).write_bytes(b"no store of runs" * 100)
        done = portal("runs", "show", RUN, cwd=folder)
        assert done.returncode == 0
        assert "damaged" in done.stderr


def test_a_unique_beginning_of_an_id_is_enough(portal: PortalCommand, folder: Path, store: RunTables) -> None:
    begin(store, RUN)
    begin(store, OTHER)
    shown = json.loads(portal("runs", "show", "run_aaab", "--json", cwd=folder).stdout)
    assert shown["run_id"] == OTHER
    for unclear, said in (("run_aaa", "no run"), ("run_aaac", "no run"), ("", "no run")):
        done = portal("runs", "show", unclear, cwd=folder)
        assert (done.returncode, said in done.stderr) == (1, True)
    begin(store, f"{OTHER[:-1]}1")
    done = portal("runs", "show", "run_aaab", cwd=folder)
    assert done.returncode == 1
    assert OTHER in done.stderr


def test_show_escapes_what_scripts_and_upstreams_wrote(
    portal: PortalCommand, folder: Path, store: RunTables
) -> None:
    begin(store, RUN, None, asking())
    park(store)
    done = portal("runs", "show", RUN, cwd=folder)
    assert done.returncode == 0
    assert "\x1b" not in done.stdout and "\u202e" not in done.stdout
    for told in ("# release <U+001B>[2J notes", "main<U+202E>", "portal.yaml:3:9", "5" * 64, "git.push"):
        assert told in done.stdout


# Waiting


@pytest.fixture
def ends_meanwhile(monkeypatch: pytest.MonkeyPatch, store: RunTables) -> Callable[[Answer], None]:
    """The run ends when the command has seen that no portal holds the store."""

    def arrange(answer: Answer) -> None:
        monkeypatch.setattr(FilePlace, "is_used", lambda place, file: end(store, answer))

    return arrange


def test_wait_prints_the_answer_as_run_does(
    portal: PortalCommand, folder: Path, store: RunTables, ends_meanwhile: Callable[[Answer], None]
) -> None:
    begin(store)
    ends_meanwhile(Answer("ok", RUN, result=[1, 2], stdout="hello"))
    done = portal("runs", "wait", RUN, cwd=folder)
    assert done.returncode == 0
    assert done.stdout.startswith("hello\n[\n  1,")
    assert "no portal" in done.stderr


def test_wait_tells_failure_from_timeout(portal: PortalCommand, folder: Path, store: RunTables) -> None:
    begin(store)
    assert portal("runs", "wait", RUN, "--timeout", "0.01", cwd=folder).returncode == 4
    assert portal("runs", "cancel", RUN, cwd=folder).returncode == 0
    done = portal("runs", "wait", RUN, "--json", cwd=folder)
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (1, "cancelled")
    assert portal("runs", "cancel", RUN, cwd=folder).returncode == 1


def test_watch_prints_the_log_until_the_run_ends(
    portal: PortalCommand, folder: Path, store: RunTables, ends_meanwhile: Callable[[Answer], None]
) -> None:
    begin(store, RUN, None, asking())
    park(store)
    ends_meanwhile(Answer("ok", RUN))
    done = portal("runs", "watch", RUN, "--json", cwd=folder)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["kind"] for each in told] == ["began", "waiting", "waiting", "ok"]
    assert (told[1]["seq"], told[1]["function"]) == (3, "git.push")


# Decisions


def test_approval_shows_the_call_and_who_approved(
    portal: PortalCommand, folder: Path, store: RunTables
) -> None:
    begin(store, RUN, None, asking())
    park(store)
    done = portal("runs", "approve", RUN, "--arguments", '{"branch": "next"}', cwd=folder)
    assert done.returncode == 0
    assert '"force": true' in done.stdout and '"branch": "next"' in done.stdout
    assert done.stdout.index("git.push") < done.stdout.index("approved")
    call = store.call(RUN, 3)
    assert call is not None and call.decision is not None
    assert (call.state, json.loads(call.decision)["arguments"]) == ("approved", {"branch": "next"})
    assert call.decided_by.startswith("cli")
    assert store.due(0.0, [None], 10) == [RUN]
    assert "no portal" in done.stderr


def test_nothing_is_said_about_portals_if_one_goes_on(
    portal: PortalCommand, folder: Path, store: RunTables
) -> None:
    begin(store, RUN, None, asking())
    with held_place(load_manifest(folder / "portal.yaml", {})):
        done = portal("runs", "deny", RUN, "3", "--reason", "not on a Friday", "--json", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["state"] == "denied"
    call = store.call(RUN, 3)
    assert call is not None and b"not on a Friday" in (call.decision or b"")


def test_first_decision_wins(portal: PortalCommand, folder: Path, store: RunTables) -> None:
    begin(store, RUN, None, asking())
    with store.transaction():
        decide_call(store, RUN, 3, is_approved=False, by="http")
    done = portal("runs", "approve", RUN, "3", cwd=folder)
    assert done.returncode == 1
    assert "already denied by http" in done.stderr


def test_one_of_several_calls_has_to_be_named(portal: PortalCommand, folder: Path, store: RunTables) -> None:
    begin(store, RUN, None, asking(), asking(seq=4))
    done = portal("runs", "approve", RUN, cwd=folder)
    assert done.returncode == 1
    assert "3 (git.push), 4 (git.push)" in done.stderr
    assert [call.state for call in store.calls(RUN)] == ["waiting", "waiting"]


@pytest.mark.parametrize("arguments", ["[1]", "{", "null"])
def test_arguments_have_to_be_an_object(
    portal: PortalCommand, folder: Path, store: RunTables, arguments: str
) -> None:
    begin(store, RUN, None, asking())
    assert portal("runs", "approve", RUN, "--arguments", arguments, cwd=folder).returncode == 2
    assert [call.state for call in store.calls(RUN)] == ["waiting"]


# Replay and fork


def test_replay_shows_each_step_and_that_it_is_identical(
    portal: PortalCommand, folder: Path, store: RunTables, record: Record
) -> None:
    begin(store, RUN, record)
    done = portal("runs", "replay", RUN, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert re.search(r"1 +call +git.git_log \{.*2\}\n +1 +answer +git.git_log \{.*1\}\n", done.stdout)
    assert done.stdout.endswith("the replay is identical\n")
    told = json.loads(portal("runs", "replay", RUN, "--json", cwd=folder).stdout)
    assert (told["differs"], told["result"], told["error"]) == (None, {"seq": 2}, None)


def test_replay_stops_at_a_call(
    portal: PortalCommand, folder: Path, store: RunTables, record: Record
) -> None:
    begin(store, RUN, record)
    done = portal("runs", "replay", RUN, "--at", "2", "--json", cwd=folder)
    told = json.loads(done.stdout)
    assert (done.returncode, told["differs"], "result" in told) == (0, None, False)
    assert (told["steps"][-1]["kind"], told["steps"][-1]["seq"]) == ("call", 2)
    assert portal("runs", "replay", RUN, "--at", "3", cwd=folder).returncode == 1


def test_replay_of_a_changed_script_says_where_it_differs(
    portal: PortalCommand, folder: Path, store: RunTables, record: Record
) -> None:
    begin(store, RUN, replace(record, script=SCRIPT.replace("seen", "saw")))
    done = portal("runs", "replay", RUN, "--json", cwd=folder)
    differs = json.loads(done.stdout)["differs"]
    assert (done.returncode, differs["got"].startswith("printed: saw")) == (1, True)


def test_a_run_without_a_record_is_neither_replayed_nor_forked(
    portal: PortalCommand, folder: Path, store: RunTables
) -> None:
    begin(store)
    for command in (("replay", RUN), ("fork", RUN, "--at", "1", "--yes")):
        done = portal("runs", *command, cwd=folder)
        assert (done.returncode, "no record" in done.stderr) == (1, True)


def test_fork_begins_with_what_was_answered(
    portal: PortalCommand, folder: Path, store: RunTables, record: Record
) -> None:
    begin(store, RUN, record)
    (folder / "new.py").write_text(SCRIPT.replace("count=3", "count=4"))
    done = portal("runs", "fork", RUN, "--at", "2", "--script", "new.py", "--yes", "--json", cwd=folder)
    told = json.loads(done.stdout)
    assert (done.returncode, told["state"], told["parent"]) == (0, "running", RUN)
    assert "1  git.git_log: it was done; its answer is taken from the journal" in done.stderr
    assert "2  git.git_log: it was done; called live, again" in done.stderr
    stored = store.load(told["run_id"])
    head = HEAD.validate_json(stored.head)
    forked = Past.of(stored, head).record
    assert (forked.calls_made, "count=4" in forked.script) == (1, True)


def test_gathered_calls_are_made_again_together(
    portal: PortalCommand, folder: Path, store: RunTables
) -> None:
    gathered = "await asyncio.gather(git.git_log(count=1), git.git_log(count=2))"
    begin(store, RUN, anyio.run(recorded, gathered))
    done = portal("runs", "fork", RUN, "--at", "2", "--yes", "--json", cwd=folder)
    assert "1  git.git_log: it was done; called live, again" in done.stderr
    stored = store.load(json.loads(done.stdout)["run_id"])
    past = Past.of(stored, HEAD.validate_json(stored.head))
    assert (past.record.calls_made, [*past.entries]) == (0, [])


def test_fork_without_anybody_who_confirms_is_refused(
    portal: PortalCommand, folder: Path, store: RunTables, record: Record
) -> None:
    begin(store, RUN, record)
    done = portal("runs", "fork", RUN, "--at", "2", cwd=folder, stdin="y\n")
    assert (done.returncode, "--yes" in done.stderr) == (2, True)
    assert [row.id for row in store.listed()] == [RUN]


def test_fork_asks_on_a_terminal(folder: Path, store: RunTables, record: Record) -> None:
    begin(store, RUN, record)
    for answer, forks in ((b"n\n", 0), (b"y\n", 1)):
        person, terminal = pty.openpty()
        command = [*COMMAND, "runs", "fork", RUN, "--at", "2"]
        process = subprocess.Popen(
            command, cwd=folder, stdin=terminal, stderr=terminal, stdout=subprocess.PIPE
        )
        os.close(terminal)
        os.write(person, answer)
        process.communicate(timeout=COMMAND_SECONDS)
        os.close(person)
        assert len(store.listed()) == 1 + forks
