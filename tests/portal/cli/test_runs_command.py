"""`mcp-code-portal runs` works on the store of runs, whether or not a portal uses it."""

import json
import os
import pty
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from manifests.json_value import Json
from manifests.loader import load_manifest
from portal.base.caller import LOCAL
from portal.base.requests import ExecuteCode
from portal.cli.runs import _show_call, _steps
from portal.identity.approvers import Approvers, Decider
from portal.records.store.places import open_tables, place_of, present
from portal.records.store.records import CallRow, short_id
from portal.records.store.run_tables import RunTables
from portal.records.store.sqlite import SqliteDatabase
from portal.runs.answer import Answer
from portal.runs.decisions import decide_call
from portal.runs.past import HEAD, EntryRow, Past, RunHead, dump_chunk, new_row
from sandbox_runtime.call_port import Outcome, ToolCall
from sandbox_runtime.recording import Event, Record
from sandbox_runtime.sandbox import Sandbox
from tests.portal.commands import COMMAND_SECONDS, Done, PortalCommand
from tests.portal.rows import begun
from tests.sandbox_runtime.replay.recorder import Recorder
from tests.warm_commands import warm_command

RUN = f"run_aaaa{'0' * 28}"
OTHER = f"run_aaab{'0' * 28}"
SCRIPT = """\
# release \x1b[2J notes
log = await git.git_log(count=2)
print("seen", log)
await git.git_log(count=3)
"""
ASKED: Json = {
    "upstream": "git",
    "function": "git.push",
    "arguments": {"branch": "main\u202e", "force": True},
    "arguments_sha256": "5" * 64,
    "rule": "capabilities.tools.ask: git.push",
    "where": "portal.yaml:3:9",
}


async def numbered(call: ToolCall) -> Outcome:
    return Outcome({"seq": call.seq})


@pytest.fixture(scope="module")
async def record(sandbox: Sandbox) -> Record:
    return (await Recorder(sandbox)(SCRIPT, port=numbered))[1]


@pytest.fixture(scope="module")
async def gathered(sandbox: Sandbox) -> Record:
    script = "await asyncio.gather(git.git_log(count=1), git.git_log(count=2))"
    return (await Recorder(sandbox)(script, port=numbered))[1]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "portal.yaml").write_text("upstreams: {}\nruns: {store: runs.sqlite}\n")
    return tmp_path


@dataclass(frozen=True)
class Shell:
    """The command `runs`, in a folder with a manifest and a store."""

    portal: PortalCommand
    folder: Path
    store: RunTables

    def __call__(self, *arguments: str, **more: str) -> Done:
        return self.portal("runs", *arguments, cwd=self.folder, **more)

    def json(self, *arguments: str) -> Json:
        return json.loads(self(*arguments, "--json").stdout)

    def begin(self, run: str = RUN, record: Record | None = None) -> None:
        """Begin a run of SCRIPT, whose journal has all events of the record."""
        started = None if record is None else replace(record, events=())
        head = RunHead(ExecuteCode(SCRIPT), LOCAL, None, started)
        entries = [EntryRow(n, "git.git_log", "done", "", 1.5, 0.0, None, (), "git") for n in (1, 2)]
        with self.store.transaction():
            self.store.create(new_row(run, "red//x", head, None, 30), HEAD.dump_json(head), "ann of red")
            if record is not None:
                self.store.advance(run, 1, chunk=dump_chunk(record.events, tuple(entries)))

    def ask(self, *seqs: int, is_parked: bool = False) -> None:
        """Begin a run whose calls with these numbers wait for a person."""
        self.begin()
        shown = json.dumps(ASKED).encode()
        calls = [CallRow(RUN, seq, "ask", "git.push", "waiting", shown=shown) for seq in seqs]
        made = tuple(EntryRow(seq, "git.push", "not_started", "", 1.5, 0.0, None, (), "") for seq in seqs)
        with self.store.transaction():
            self.store.advance(RUN, 1, calls=calls, chunk=dump_chunk((), made))
            if is_parked:
                self.store.park(RUN, 1, seqs)

    def end(self, answer: Answer) -> None:
        with self.store.transaction():
            self.store.finish(answer.run_id, answer.status, answer.dump())

    def forked(self, run: str) -> Past:
        """The beginning of a fork."""
        stored = self.store.load(run)
        return Past.of(stored)[1]


@pytest.fixture
def shell(portal: PortalCommand, folder: Path) -> Iterator[Shell]:
    file = RunTables(SqliteDatabase(folder / "runs.sqlite"), None)
    yield Shell(portal, folder, file)
    file.close()


# Lists and details


def test_open_runs_are_listed_with_what_they_wait_for(shell: Shell) -> None:
    shell.ask(3, is_parked=True)
    shell.begin(OTHER)
    shell.end(Answer("ok", OTHER))
    done = shell()
    assert (done.returncode, short_id(OTHER) in done.stdout) == (0, False)
    assert re.search(
        rf"{short_id(RUN)} +waiting +\d+ s +ann of red +a person: git.push +# release", done.stdout
    )
    everything = shell.json("list", "--all")
    assert [(each["run_id"], each["state"]) for each in everything] == [(RUN, "waiting"), (OTHER, "ok")]
    newest = shell.json("list", "--all", "--limit", "1")
    assert [each["run_id"] for each in newest] == [RUN]


def test_list_keeps_ids_whole_on_a_narrow_terminal(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.ask(3)
    monkeypatch.setattr("portal.cli.terminal._PIPE_COLUMNS", 80)
    lines = shell().stdout.splitlines()
    assert len(lines) == 2 and lines[1].startswith(f"{short_id(RUN)} ")
    assert max(map(len, lines)) <= 80


def test_list_without_a_store_does_not_say_that_there_was_no_run(portal: PortalCommand, folder: Path) -> None:
    done = portal("runs", "list", "--all", cwd=folder)
    assert (done.returncode, done.stdout) == (0, "")
    assert "`ui` also has those that only read" in done.stderr
    assert not (folder / "runs.sqlite").exists()


def test_runs_of_an_earlier_version_wait_for_a_portal_and_are_told_of(
    portal: PortalCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its portals had numbered files, perhaps with a key."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = tmp_path / "portal.yaml"
    path.write_text("upstreams: {}\nruns: {key: a-key-of-some-length}\n")
    manifest = load_manifest(path, {})
    place = place_of(manifest)
    assert isinstance(place, Path)
    earlier = place.with_name("0.sqlite")
    earlier.parent.mkdir(parents=True)
    with closing(open_tables(earlier, manifest)) as tables:
        run = begun(tables)
        with tables.transaction():
            tables.database.execute("UPDATE meta SET value = ? WHERE key = 'format'", (b"3",))
    for action in ((), ("show", run.id)):
        done = portal("runs", *action, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (1, "")
        assert "0.sqlite is of an earlier format" in done.stderr


def test_store_of_an_earlier_version_hides_no_other_where_there_is_no_manifest(
    portal: PortalCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    own = place_of(load_manifest(None, {}))
    assert isinstance(own, Path)
    runs = []
    for place in (own.with_name("0.sqlite"), own.parent.with_name("other") / "runs.sqlite"):
        place.parent.mkdir(parents=True)
        with closing(open_tables(place, None)) as tables:
            runs.append(begun(tables))
            if place.parent == own.parent:
                with tables.transaction():
                    tables.database.execute("UPDATE meta SET value = ? WHERE key = 'format'", (b"3",))
    done = portal("runs", cwd=tmp_path)
    assert [short_id(run.id) in done.stdout for run in runs] == [False, True]
    assert "0.sqlite is of an earlier format" in done.stderr


def test_beginning_of_two_ids_changes_neither(shell: Shell) -> None:
    runs = [OTHER, f"{OTHER[:-1]}1"]
    for run in runs:
        shell.begin(run)
    done = shell("cancel", "aaab")
    assert (done.returncode, "ambiguous_run: several runs begin with 'aaab'" in done.stderr) == (1, True)
    assert all(each.removeprefix("run_") in done.stderr for each in runs)


def test_show_escapes_what_scripts_and_upstreams_wrote(shell: Shell) -> None:
    shell.ask(3, is_parked=True)
    done = shell("show", RUN)
    assert done.returncode == 0
    assert "\x1b" not in done.stdout and "\u202e" not in done.stdout
    for told in ("# release <U+001B>[2J notes", "main<U+202E>", "portal.yaml:3:9", "5" * 64, "git.push"):
        assert told in done.stdout


@pytest.mark.parametrize("is_parked", [True, False])
def test_show_says_that_a_call_waits(shell: Shell, is_parked: bool) -> None:
    shell.ask(3, is_parked=is_parked)
    assert re.search(r"^ +3  waiting +1.5 ms  git.push$", shell("show", RUN).stderr, re.MULTILINE)


# Waiting


# In two of these the run ends when the command has seen that no portal holds the store.


def test_wait_prints_the_answer_as_run_does(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.begin()
    answer = Answer("ok", RUN, result=[1, 2], stdout="hello")
    monkeypatch.setattr(RunTables, "has_replicas", lambda tables: shell.end(answer))
    done = shell("wait", RUN)
    assert done.returncode == 0
    assert done.stdout.startswith("hello\n[\n  1,")
    assert "no portal" in done.stderr


def test_wait_tells_failure_from_timeout(shell: Shell) -> None:
    shell.begin()
    assert shell("wait", RUN, "--timeout", "0.01").returncode == 4
    assert shell("cancel", RUN).returncode == 0
    done = shell("wait", RUN, "--json")
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (1, "cancelled")
    assert shell("cancel", RUN).returncode == 1


def test_watch_prints_the_log_until_the_run_ends(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.ask(3, is_parked=True)
    monkeypatch.setattr(RunTables, "has_replicas", lambda tables: shell.end(Answer("ok", RUN)))
    done = shell("watch", RUN, "--json")
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["kind"] for each in told] == ["began", "waiting", "waiting", "ok"]
    assert (told[1]["seq"], told[1]["function"]) == (3, "git.push")


# Decisions


def test_approval_shows_the_call_and_who_approved(shell: Shell) -> None:
    shell.ask(3, is_parked=True)
    done = shell("approve", RUN, "--arguments", '{"branch": "next"}', "--yes")
    assert done.returncode == 0
    assert "\n      force: true\n" in done.stdout and '"branch": "next"' in done.stdout
    assert done.stdout.index("git.push") < done.stdout.index("approved")
    call = shell.store.call(RUN, 3)
    assert (call.state, json.loads(call.decision)["arguments"]) == ("approved", {"branch": "next"})
    assert call.decided_by.startswith("cli") and call.decided_by.endswith(" --yes")
    told = shell("show", RUN).stdout
    assert "approved: call 3 (git.push)" in told and call.decided_by in told and f"at{' ' * 15}20" in told
    assert told.count("# release") == 1
    assert [*shell.store.due(0.0, [None], 10)] == [RUN]
    assert "no portal" in done.stderr


def test_approval_of_later_calls_is_ended_by_denying_it(shell: Shell) -> None:
    shell.ask(3)
    with shell.store.transaction():
        shell.store.advance(
            RUN, 1, calls=[replace(shell.store.call(RUN, 3), seq=4, shown=b'{"may_stand": true}')]
        )
        decide_call(shell.store, RUN, 4, Decider("client"), Approvers(), is_approved=True, stands=True)
    assert "stands           for 50 later calls" in shell("show", RUN).stdout
    done = shell("deny", RUN, "4")
    assert (done.returncode, "revoked" in done.stdout) == (0, True)
    assert shell("deny", RUN, "4").returncode == 1
    assert shell.store.call(RUN, 4).state == "approved"


def test_approval_without_a_terminal_changes_nothing(shell: Shell) -> None:
    shell.ask(3, is_parked=True)
    for options in ((), ("--json",)):
        done = shell("approve", RUN, "3", *options, stdin="y\n")
        assert (done.returncode, done.stdout) == (2, "") and "--yes" in done.stderr
    assert shell.store.call(RUN, 3).state == "waiting"


def on_a_terminal(shell: Shell, answer: bytes, *arguments: str) -> str:
    """The output for a person who gives this answer."""
    person, terminal = pty.openpty()
    streams = {"stdin": terminal, "stderr": terminal, "stdout": subprocess.PIPE}
    process = subprocess.Popen([*warm_command(), "runs", *arguments], cwd=shell.folder, **streams)
    os.close(terminal)
    os.write(person, answer)
    process.communicate(timeout=COMMAND_SECONDS)
    read = b""
    with suppress(OSError):  # the terminal's other end is closed
        while more := os.read(person, 65_536):
            read += more
    os.close(person)
    return read.decode()


def test_approval_asks_on_a_terminal(shell: Shell) -> None:
    shell.ask(3, is_parked=True)
    for answer, state in ((b"n\n", "waiting"), (b"y\n", "approved")):
        told = on_a_terminal(shell, answer, "approve", RUN, "--json")
        assert "git.push" in told and "force" in told
        assert shell.store.call(RUN, 3).state == state
    assert not shell.store.call(RUN, 3).decided_by.endswith("--yes")


# From any folder


@pytest.fixture
def elsewhere(portal: PortalCommand, tmp_path: Path, own_state: None) -> Iterator[Shell]:
    """A shell in a folder with another manifest; its store is that of a manifest which is not there."""
    (tmp_path / "other").mkdir()
    (tmp_path / "portal.yaml").write_text("upstreams: {}\n")
    (tmp_path / "other" / "portal.yaml").write_text("upstreams: {}\n")
    manifest = load_manifest(tmp_path / "portal.yaml", {})
    with present(place := place_of(manifest)), closing(open_tables(place, manifest)) as file:
        yield Shell(portal, tmp_path / "other", file)


@pytest.mark.parametrize("has_manifest", [True, False])
def test_run_is_found_by_its_id_from_any_folder(elsewhere: Shell, has_manifest: bool) -> None:
    if not has_manifest:
        (elsewhere.folder / "portal.yaml").unlink()
    elsewhere.ask(3, 4, is_parked=True)
    assert RUN in elsewhere("show", short_id(RUN)).stdout
    assert elsewhere("approve", RUN, "3", "--yes").returncode == 0
    assert elsewhere("deny", RUN, "4").returncode == 0
    assert [call.state for call in elsewhere.store.calls(RUN)] == ["approved", "denied"]
    assert elsewhere("cancel", RUN).returncode == 0
    assert elsewhere("wait", RUN).returncode == 1
    assert elsewhere("show", OTHER).returncode == 1
    assert bool(elsewhere.json("list", "--all")) is not has_manifest


def test_encrypted_run_of_another_folder_needs_its_manifest(
    portal: PortalCommand, tmp_path: Path, own_state: None
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "portal.yaml").write_text("runs: {key: 0123456789abcdef}\n")
    manifest = load_manifest(tmp_path / "portal.yaml", {})
    with present(place := place_of(manifest)), closing(open_tables(place, manifest)) as file:
        shell = Shell(portal, tmp_path / "other", file)
        shell.ask(3, is_parked=True)
        done = shell("approve", RUN, "--yes")
        assert done.returncode == 1 and "--config" in done.stderr and "runs.key" in done.stderr
        assert shell("approve", RUN, "--yes", "--config", "../portal.yaml").returncode == 0


@pytest.mark.parametrize("manifest", ["portal.yaml", "linked.yaml"])
def test_command_that_is_printed_works_where_it_is_printed(
    shell: Shell, tmp_path: Path, manifest: str
) -> None:
    shell.ask(3, is_parked=True)
    (tmp_path / "my folder").mkdir()
    target, env = tmp_path / "my folder" / "portal.yaml", tmp_path / "linked.env"
    target.write_text("upstreams: {up: {command: '${BESIDE_THE_LINK}'}}\nruns: {store: runs.sqlite}\n")
    (tmp_path / "linked.yaml").symlink_to(target)
    env.touch(0o600)
    env.write_text("BESIDE_THE_LINK=x\n")
    waiting = Shell(shell.portal, tmp_path / "my folder", shell.store)
    told = waiting("wait", RUN, "--timeout", "0.01", "--config", f"../{manifest}").stderr
    command = re.search(r"mcp-code-portal (runs approve .*)", told)[1]
    assert waiting.portal(*shlex.split(command), "--yes", cwd=waiting.folder).returncode == 0
    assert shell.store.call(RUN, 3).state == "approved"


def test_nothing_is_said_about_portals_if_one_goes_on(shell: Shell) -> None:
    shell.ask(3)
    with present(shell.folder / "runs.sqlite") as shell.store.holder:
        with shell.store.transaction():
            shell.store.beat("")
        done = shell("deny", RUN, "3", "--reason", "not on a Friday", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["state"] == "denied"
    assert b"not on a Friday" in shell.store.call(RUN, 3).decision


@pytest.mark.parametrize(
    "arguments",
    [{"old": "a\n" * 4_500, "new": "b\n" * 4_500 + "evil"}, {f"n{n}": 0 for n in range(999)} | {"evil": 1}],
)
def test_arguments_that_a_form_would_cut_are_shown_whole(arguments: Json) -> None:
    lines: list[str] = []
    _show_call({"seq": 1, "function": "git.merge", "asked": {"arguments": arguments}}, "waits", lines.append)
    assert any("evil" in each for each in lines) and not any("…" in each for each in lines)


# Replay and fork


def test_replay_shows_each_step_and_that_it_is_identical(shell: Shell, record: Record) -> None:
    shell.begin(RUN, record)
    done = shell("replay", RUN)
    assert done.returncode == 0, done.stderr
    assert re.search(r"1 +call +git.git_log \{.*2\}\n +1 +answer +git.git_log \{.*1\}\n", done.stdout)
    assert done.stdout.endswith("the replay is identical\n")
    told = shell.json("replay", RUN)
    assert (told["differs"], told["result"], told["error"]) == (None, {"seq": 2}, None)


def test_replay_stops_at_a_call(shell: Shell, record: Record) -> None:
    shell.begin(RUN, record)
    done = shell("replay", RUN, "--at", "2", "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["differs"], "result" in told) == (0, None, False)
    assert (told["steps"][-1]["kind"], told["steps"][-1]["seq"]) == ("call", 2)
    assert shell("replay", RUN, "--at", "3").returncode == 1


def test_replay_of_a_changed_script_says_where_it_differs(shell: Shell, record: Record) -> None:
    shell.begin(RUN, replace(record, script=SCRIPT.replace("seen", "saw")))
    done = shell("replay", RUN, "--json")
    differs = json.loads(done.stdout)["differs"]
    assert (done.returncode, differs["got"].startswith("printed: saw")) == (1, True)


def test_a_run_without_a_record_is_neither_replayed_nor_forked(shell: Shell) -> None:
    shell.begin()
    for command in (("replay", RUN), ("fork", RUN, "--at", "1", "--yes")):
        done = shell(*command)
        assert (done.returncode, "no record" in done.stderr) == (1, True)


@pytest.mark.parametrize("sent", ["x a.b {}", "²", "1 a.b {}\n7", f"{'1' * 5_000} a.b {{}}"])
def test_steps_of_a_script_that_sent_nonsense_are_shown(record: Record, sent: str) -> None:
    record = replace(record, events=(Event("sent", sent),))
    assert len([*_steps(record)]) == len(sent.split("\n"))
    assert record.index_of_call(2) is None and set(record.cancelled_ids()) <= {0, 7}


def test_fork_begins_with_what_was_answered(shell: Shell, record: Record) -> None:
    shell.begin(RUN, record)
    (shell.folder / "new.py").write_text(SCRIPT.replace("count=3", "count=4"))
    done = shell("fork", RUN, "--at", "2", "--script", "new.py", "--yes", "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["state"], told["parent"]) == (0, "running", RUN)
    assert "1  git.git_log: it was done; its answer is taken from the journal" in done.stderr
    assert "2  git.git_log: it was done; called live, again" in done.stderr
    forked = shell.forked(told["run_id"]).record
    assert (forked.calls_made, "count=4" in forked.script) == (1, True)


def test_gathered_calls_are_made_again_together(shell: Shell, gathered: Record) -> None:
    shell.begin(RUN, gathered)
    done = shell("fork", RUN, "--at", "2", "--yes", "--json")
    assert "1  git.git_log: it was done; called live, again" in done.stderr
    past = shell.forked(json.loads(done.stdout)["run_id"])
    assert (past.record.calls_made, [*past.entries]) == (0, [])


def test_fork_without_anybody_who_confirms_is_refused(shell: Shell, record: Record) -> None:
    shell.begin(RUN, record)
    done = shell("fork", RUN, "--at", "2", stdin="y\n")
    assert (done.returncode, "--yes" in done.stderr) == (2, True)
    assert [row.id for row in shell.store.listed()] == [RUN]
