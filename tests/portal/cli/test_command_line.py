"""The commands as a person or a script uses them: results on stdout, all else on stderr, and an exit status."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from manifests.json_value import Json
from portal.cli.command_line import END_SECONDS, run_command
from portal.cli.parser import parse_arguments
from tests.portal.app.test_signed_in_streams import HELLO
from tests.portal.commands import (
    COMMAND,
    COMMAND_SECONDS,
    Done,
    PortalCommand,
    ended,
    finished,
    restored_logs,
    started,
)
from tests.portal.peers import raw, raw_tools, write_manifest
from tests.warm_commands import warm_command


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with portal.yaml, which every command finds by itself."""
    folder = tmp_path_factory.mktemp("command_line")
    tools: list[Json] = [
        *raw_tools("echo"),
        {"name": "error", "inputSchema": {"type": "object"}, "description": "Fail as told."},
    ]
    write_manifest(folder, {"store": raw(tools=tools)})
    return folder


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bare")


@pytest.mark.parametrize(
    "arguments",
    [
        "nonsense",
        "run x.py --timeout 0",
        "run x.py --timeout soon",
        "search x --limit 0",
        "runs list --limit 0",
        "runs approve x --arguments [1]",
        "runs approve x --arguments {",
        "serve --http 127.0.0.1:99999",
        "ui --port 99999",
        "check --log-level loud",
        "check --config .",
    ],
)
def test_what_makes_no_sense_exits_with_2_and_says_why(
    portal: PortalCommand, bare: Path, arguments: str
) -> None:
    done = portal(*arguments.split(), cwd=bare)
    assert (done.returncode, done.stdout) == (2, "")
    assert "error:" in done.stderr


def test_no_command_prints_the_help(portal: PortalCommand, bare: Path) -> None:
    done = portal(cwd=bare)
    assert done.returncode == 0
    assert "serve MCP over stdio" in done.stdout


@pytest.mark.parametrize(
    ("words", "meant"), [("serch x", "search"), ("runs shw x", "show"), ("check --log-level inf", "info")]
)
def test_mistyped_word_names_the_one_that_was_meant(
    portal: PortalCommand, bare: Path, words: str, meant: str
) -> None:
    assert f"did you mean {meant}?" in portal(*words.split(), cwd=bare).stderr


@pytest.mark.parametrize(("command", "below"), [("serve", ""), ("status", "above")])
def test_state_folder_of_another_user_is_an_error_that_says_what_to_do(
    tmp_path: Path, command: str, below: str
) -> None:
    write_manifest(tmp_path, {})
    for name in ("accepted", "portals"):
        (tmp_path / "mcp-code-portal" / name).mkdir(parents=True, mode=0)
    # Root may read them, too, unless it gives that up.
    mortal = () if os.geteuid() else ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
    state = tmp_path / "mcp-code-portal/portals" / below if below else tmp_path
    done = ended(
        started(command, cwd=tmp_path, env={"XDG_STATE_HOME": str(state)}, command=(*mortal, *COMMAND))
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr
    refused = state / "mcp-code-portal" if below else state / "mcp-code-portal/portals"
    assert f"{refused}: " in done.stderr and "sudo chown -R" in done.stderr


def test_serve_over_http_may_drain_beside_its_time_to_end(
    portal: PortalCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = list[float]()
    monkeypatch.setattr("portal.cli.command_line.anyio.run", lambda *told: seconds.append(told[-1]) or 0)
    write_manifest(tmp_path, {}, server={"drain_seconds": 60})
    portal("serve", cwd=tmp_path)
    portal("serve", "--http", "127.0.0.1:0", cwd=tmp_path)
    assert seconds == [END_SECONDS, END_SECONDS + 60]


def test_help_needs_no_library() -> None:
    slow = "{'anyio', 'mcp', 'pydantic', 'rich', 'structlog', 'yaml'}"
    code = f"import sys, portal.cli.parser as p; p.argument_parser().format_help(); print({slow} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_completion_knows_commands_and_files(portal: PortalCommand, bare: Path) -> None:
    script = bare / "complete"
    script.write_text(portal("completion", "bash", cwd=bare).stdout)
    (bare / "REPORT.py").touch()

    def completed(*words: str) -> str:
        typed = f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}"
        called = f"_shtab_mcp_code_portal {words[0]} {words[-1]} {words[-2]}"
        code = f"source ./complete; {typed}; {called}; echo ${{COMPREPLY[@]}}"
        return subprocess.run(
            ["bash", "-c", code], capture_output=True, text=True, check=True, cwd=bare
        ).stdout

    assert completed("mcp-code-portal", "runs", "ap") == "approve\n"
    assert completed("mcp-code-portal", "run", "REP") == "REPORT.py\n"


def test_run_tells_what_the_script_emitted(portal: PortalCommand, bare: Path) -> None:
    block = {"type": "image", "data": "aGkh", "mimeType": "image/png"}
    script = f"portal.emit({block!r})\n"
    assert "image/png" in portal("run", "-", cwd=bare, stdin=script).stderr
    script += f"portal.emit([{{'type': 'video'}}, {{**{block!r}, 'data': 'aG\\nkh'}}])\n"
    answer = json.loads(portal("run", "-", "--json", cwd=bare, stdin=script).stdout)
    assert answer["emitted"] == [block, block]
    assert any("'video'" in notice for notice in answer["notices"])


def test_stubs_leave_files_of_others_alone(portal: PortalCommand, folder: Path, tmp_path: Path) -> None:
    own = tmp_path / "store.pyi"
    own.write_text("mine = 1\n")
    for out in (tmp_path, own):
        done = portal("stubs", "--out", str(out), cwd=folder)
        assert done.returncode == 1 and "store.pyi" in done.stderr
    assert own.read_text() == "mine = 1\n"


def test_stubs_of_an_upstream_that_rests_are_whole(portal: PortalCommand, tmp_path: Path) -> None:
    write_manifest(tmp_path, {"store": {**raw(tools=raw_tools("echo")), "start": "lazy"}})
    done = portal("stubs", cwd=tmp_path)
    assert (done.returncode, "async def echo" in done.stdout, "idle" in done.stderr) == (0, True, False)


def test_stubs_of_one_upstream_take_its_name_or_its_namespace(portal: PortalCommand, tmp_path: Path) -> None:
    write_manifest(tmp_path, {"my store": raw(tools=raw_tools("echo")), "other": raw()})
    for name in ("my store", "my_store"):
        done = portal("stubs", name, cwd=tmp_path)
        assert (done.returncode, "async def echo" in done.stdout) == (0, True), name


def test_stubs_write_the_types_of_every_language_that_is_on(portal: PortalCommand, tmp_path: Path) -> None:
    write_manifest(tmp_path, {"store": raw()}, server={"kernels": {"javascript": True}})
    assert portal("stubs", "--out", "typings", cwd=tmp_path).returncode == 0
    assert {"store.pyi", "store.d.ts", "portal.d.ts"} <= {
        each.name for each in (tmp_path / "typings").iterdir()
    }


def test_check_starts_upstreams_that_wait_for_their_first_call(portal: PortalCommand, tmp_path: Path) -> None:
    resting, broken = {**raw(), "start": "lazy"}, {**raw(exits_with=3), "start": "lazy"}
    write_manifest(tmp_path, {"resting": resting, "broken": broken})
    told = json.loads(portal("check", "--json", cwd=tmp_path).stdout)
    assert {row["name"]: row["status"] for row in told["upstreams"]} == {"resting": "ready", "broken": "down"}
    [row] = json.loads(portal("check", "resting", "--json", cwd=tmp_path).stdout)["upstreams"]
    assert row["status"] == "ready", "also once its tools are known"


def test_commands_about_one_upstream_start_no_other(portal: PortalCommand, tmp_path: Path) -> None:
    other: Json = {"command": sys.executable, "args": ["-c", "open('started', 'w').close()"]}
    write_manifest(tmp_path, {"up": raw(tools=raw_tools("echo")), "other": other})
    for words in (
        "check up",
        "search --upstream up",
        "search --upstream portal",
        "explain up.echo",
        "stubs up",
    ):
        assert (portal(*words.split(), cwd=tmp_path).returncode, words) == (0, words)
        assert not (tmp_path / "started").exists(), words
    portal("check", cwd=tmp_path)
    assert (tmp_path / "started").exists()


def test_the_schema_is_printed_even_when_the_manifest_is_broken(
    portal: PortalCommand, tmp_path: Path
) -> None:
    (tmp_path / "portal.yaml").write_text("upstream: {}\n")
    done = portal("schema", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "upstreams" in json.loads(done.stdout)["properties"]


def test_a_reader_that_goes_away_ends_a_command_quietly(folder: Path) -> None:
    (folder / "script.py").write_text("print('said')\n(await store.echo(n=41))['n'] + 1\n")
    process = started("run", "script.py", cwd=folder, command=warm_command())
    assert process.stdout
    process.stdout.close()
    process.stdout = None
    _, told = process.communicate(timeout=COMMAND_SECONDS)
    assert process.returncode in (0, 1)
    assert "Traceback" not in told and "BrokenPipe" not in told


def test_serving_on_a_port_that_is_taken_is_told(portal: PortalCommand, bare: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = portal("serve", "--http", f"127.0.0.1:{taken.getsockname()[1]}", cwd=bare)
    assert (done.returncode, done.stdout) == (1, "")
    assert str(taken) not in done.stderr
    assert "cannot listen" in done.stderr


def test_serving_ends_with_stdin_and_stdout_is_the_protocols(folder: Path) -> None:
    stdin = f"nonsense\n{json.dumps(HELLO)}\n"
    done = finished("serve", "--log-level", "debug", cwd=folder, stdin=stdin)
    assert done.returncode == 0
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    (answer,) = [message for message in messages if message.get("id") == 1]
    assert answer["result"]["serverInfo"]["name"] == "mcp-code-portal"


def in_shell(line: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    """The command as a shell parses it: `portal` stands for it in the line."""
    return subprocess.run(
        ["sh", "-c", line.replace("portal", '"$@"', 1), "sh", *COMMAND],
        cwd=cwd,
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
    )


@pytest.mark.parametrize("command", ["status --json", "schema"])
def test_full_disk_is_told_in_one_line(tmp_path: Path, command: str) -> None:
    done = in_shell(f"portal {command} > /dev/full", tmp_path)
    assert (done.returncode, done.stderr) == (1, "error: [Errno 28] No space left on device\n")


def test_folder_that_is_gone_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with restored_logs():
        assert run_command(parse_arguments(["check"])) == 1
    assert "the current folder" in capsys.readouterr().err


def test_upstream_is_called_and_told_though_stdin_and_stdout_are_closed(tmp_path: Path) -> None:
    write_manifest(tmp_path, {"up": raw(tools=raw_tools("echo"))})
    (tmp_path / "script.py").write_text("await up.echo()")
    done = in_shell("portal run script.py <&- >&-", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "up.echo" in done.stderr


def test_portal_has_room_for_many_servers_where_a_process_begins_with_few_files(tmp_path: Path) -> None:
    entry = raw(tools=raw_tools("echo"))
    telling = f'ulimit -Sn > {tmp_path}/told; ulimit -Hn >> {tmp_path}/told; exec "$@"'
    tells: Json = {"command": "sh", "args": ["-c", telling, "sh", entry["command"], *entry["args"]]}
    write_manifest(tmp_path, {"one": entry, "two": entry, "three": entry, "tells": tells})
    done = in_shell("ulimit -Sn 20 && ulimit -Hn 4096 && portal stubs", tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "told").read_text().split() == ["20", "4096"], "a child has as few as before"


@pytest.fixture
def go(tmp_path: Path) -> Path:
    """A file that the upstream `slow` waits for. The portal gets no time to wait for it."""
    os.mkfifo(go := tmp_path / "go")
    write_manifest(tmp_path, {"slow": raw(waits_for=str(go)), "store": raw()}, server={"start_seconds": 0.01})
    return go


def done_when_told(go: Path, *arguments: str) -> Done:
    """A command that goes on when it has said what it waits for."""
    process = started(*arguments, cwd=go.parent, command=warm_command())
    try:
        assert process.stderr
        assert "waiting for slow (up to 60 s)\n" in process.stderr, "it did not wait"
        go.write_text("go")
        stdout, stderr = process.communicate(timeout=COMMAND_SECONDS)
    finally:
        process.kill()
    return Done(process.returncode, stdout, stderr)


@pytest.mark.parametrize(
    "reaching", ["(await mcp__slow__echo(n=1))['n']", "len((await portal.search('slow.echo'))['functions'])"]
)
def test_run_waits_for_what_its_script_may_reach(portal: PortalCommand, go: Path, reaching: str) -> None:
    script = go.parent / "script.py"
    script.write_text(reaching)
    assert done_when_told(go, "run", "script.py").stdout == "1\n"
    script.write_text("(await store.echo(n=2))['n']")
    done = portal("run", "script.py", cwd=go.parent)
    assert (done.stdout, "slow" in done.stderr) == ("2\n", False)
