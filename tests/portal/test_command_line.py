"""The commands as a person or a script uses them: results on stdout, all else on stderr, and an exit status."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from manifests.json_value import Json
from tests.portal.commands import COMMAND_SECONDS, PortalCommand, finished, started
from tests.portal.peers import raw, raw_tools, write_manifest
from tests.upstreams.peers import closed_port

SCRIPT = "print('said')\nfound = await store.echo(n=41)\nfound['n'] + 1\n"
SECRET = "s3cret-of-the-tests"


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
        "run",
        "run x.py --timeout 0",
        "run x.py --timeout nan",
        "run x.py --timeout soon",
        "search x --limit 0",
        "search x --limit many",
        "serve --http nowhere",
        "serve --http 127.0.0.1:99999",
        "check --log-level loud",
        "run missing.py",
        "check --config missing.yaml",
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
    (tmp_path / "store.pyi").write_text("mine = 1\n")
    done = portal("stubs", "--out", str(tmp_path), cwd=folder)
    assert done.returncode == 1
    assert "store.pyi" in done.stderr
    assert (tmp_path / "store.pyi").read_text() == "mine = 1\n"
    done = portal("stubs", "--out", str(tmp_path / "store.pyi"), cwd=folder)
    assert done.returncode == 1
    assert "error:" in done.stderr


def test_check_starts_upstreams_that_wait_for_their_first_call(portal: PortalCommand, tmp_path: Path) -> None:
    resting, broken = {**raw(), "start": "lazy"}, {**raw(exits_with=3), "start": "lazy"}
    write_manifest(tmp_path, {"resting": resting, "broken": broken})
    told = json.loads(portal("check", "--json", cwd=tmp_path).stdout)
    assert {row["name"]: row["status"] for row in told["upstreams"]} == {"resting": "ready", "broken": "down"}


def test_check_tells_everything_that_is_wrong_and_no_secret(portal: PortalCommand, tmp_path: Path) -> None:
    upstreams: dict[str, dict[str, Json]] = {
        "dead": {
            "url": f"http://127.0.0.1:{closed_port()}/mcp",
            "headers": {"Authorization": "Bearer ${TOKEN}"},
        },
        "ending": {**raw(exits_with=3), "env": {"TOKEN": "${TOKEN}"}},
    }
    upstreams["ending"]["args"] = [
        "-c",
        "import os, sys; sys.exit('no: ' + os.environ['TOKEN'] + ' \x1b[31m')",
    ]
    write_manifest(tmp_path, upstreams)
    for arguments in (["check"], ["check", "--json"], ["search", "x"], ["stubs"]):
        done = portal(*arguments, cwd=tmp_path, env={"TOKEN": SECRET})
        told = done.stdout + done.stderr
        assert done.returncode == (0 if arguments[0] == "search" else 1)
        assert "dead" in told and "ending" in told
        assert SECRET not in told
        assert "\x1b" not in told


def test_the_schema_is_printed_even_when_the_manifest_is_broken(
    portal: PortalCommand, tmp_path: Path
) -> None:
    (tmp_path / "portal.yaml").write_text("upstream: {}\n")
    done = portal("schema", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "upstreams" in json.loads(done.stdout)["properties"]


@pytest.mark.parametrize("arguments", [["stubs"], ["run", "script.py"]])
def test_a_reader_that_goes_away_ends_a_command_quietly(folder: Path, arguments: list[str]) -> None:
    (folder / "script.py").write_text(SCRIPT)
    process = started(*arguments, cwd=folder)
    assert process.stdin and process.stdout and process.stderr
    process.stdout.close()
    told = process.stderr.read()
    assert process.wait(COMMAND_SECONDS) in (0, 1)
    assert "Traceback" not in told and "BrokenPipe" not in told
    process.stdin.close()
    process.stderr.close()


def test_serving_on_a_port_that_is_taken_is_told(portal: PortalCommand, bare: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = portal("serve", "--http", f"127.0.0.1:{taken.getsockname()[1]}", cwd=bare)
    assert (done.returncode, done.stdout) == (1, "")
    assert str(taken) not in done.stderr
    assert "cannot listen" in done.stderr


def test_serving_ends_when_the_client_closes_stdin_and_stdout_is_the_protocols(folder: Path) -> None:
    client = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client}
    stdin = f"nonsense\n{json.dumps(request)}\n"
    done = finished("serve", "--log-level", "debug", cwd=folder, stdin=stdin)
    assert done.returncode == 0
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    (answer,) = [message for message in messages if message.get("id") == 1]
    assert answer["result"]["serverInfo"]["name"] == "mcp-code-portal"
