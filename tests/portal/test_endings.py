"""Ctrl-C and SIGTERM end every command in order and soon, and leave no process behind. Linux: looks at /proc."""

import json
import os
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

import pytest

from tests.acceptance.process_tree import ProcessTree
from tests.portal.commands import COMMAND_SECONDS, started
from tests.portal.peers import raw, raw_tools, write_manifest

SIGNALS = pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM], ids=lambda sent: sent.name)
STATUSES = {signal.SIGINT: 130, signal.SIGTERM: 143}
SERVING = {signal.SIGINT: 130, signal.SIGTERM: 0}

FIFO_SCRIPT = """
import asyncio
try:
    await raw.crash(acts_on={fifo!r})
except ToolError:
    pass
await asyncio.sleep(1_000)
"""
CLIENT = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_manifest(tmp_path, {"raw": raw(tools=raw_tools("crash"))})
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "script.py").write_text(FIFO_SCRIPT.format(fifo=str(tmp_path / "fifo")))
    return tmp_path


@contextmanager
def running(*arguments: str, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """A command that is to end within the block, and to leave no file. Its state is in memory: a disk may be slow."""
    temporary = cwd / "temporary"
    temporary.mkdir()
    with TemporaryDirectory(dir="/dev/shm") as state:
        process = started(*arguments, cwd=cwd, env={"TMPDIR": str(temporary), "XDG_STATE_HOME": state})
        try:
            yield process
            assert list(temporary.iterdir()) == []
        finally:
            process.kill()
            process.communicate()


def ended_by(process: subprocess.Popen[str], sent: signal.Signals) -> int:
    """The exit status after the signal; nothing below the process is left."""
    tree = tree_below(process.pid)
    try:
        process.send_signal(sent)
        status = process.wait(COMMAND_SECONDS)
        assert tree.survivors() == []
    finally:
        tree.close()
    return status


def tree_below(pid: int) -> ProcessTree:
    while True:
        try:
            return ProcessTree(pid)
        except (ProcessLookupError, FileNotFoundError):  # one of them ended while they were looked at
            continue


def wait_for_line(stream: IO[str] | None, words: str) -> None:
    assert stream is not None
    for line in stream:
        if words in line:
            return
    raise AssertionError(f"{words!r} was not told")


def wait_for_writer(fifo: Path) -> None:
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert select.select([reader], [], [], COMMAND_SECONDS)[0], "the script did not begin"
    finally:
        os.close(reader)


def test_a_script_in_the_middle_of_its_run(folder: Path) -> None:
    with running("run", "script.py", cwd=folder) as process:
        wait_for_writer(folder / "fifo")
        assert ended_by(process, signal.SIGTERM) == STATUSES[signal.SIGTERM]
        out, err = process.communicate()
    assert out == ""
    assert "Traceback" not in err


@pytest.mark.parametrize("as_json", [False, True])
def test_a_script_with_calls_in_flight_tells_what_they_may_have_done(tmp_path: Path, as_json: bool) -> None:
    limits = {"limits": {"parallel_calls": 2}}
    write_manifest(tmp_path, {"raw": raw(tools=raw_tools("echo", "hang"))}, capabilities=limits)
    os.mkfifo(fifo := tmp_path / "fifo")
    calls = f"raw.echo(), raw.hang(), raw.hang(acts_on={str(fifo)!r}), raw.echo()"
    (tmp_path / "script.py").write_text(f"import asyncio\nawait asyncio.gather({calls})")
    with running("run", "script.py", *(["--json"] if as_json else []), cwd=tmp_path) as process:
        wait_for_writer(fifo)
        assert ended_by(process, signal.SIGINT) == STATUSES[signal.SIGINT]
        out, err = process.communicate()
        assert "cut off" not in err
    if as_json:
        answer = json.loads(out)
        assert (answer["status"], answer["error"]["code"]) == ("error", "cancelled")
        states = [row["state"] for row in answer["calls"]]
    else:
        rows = [line.split() for line in err.splitlines()]
        states = [row[1] for row in rows if row and row[0].isdigit()]
    assert states == ["done", "unknown", "unknown", "not_started"]


@SIGNALS
def test_a_server_that_is_still_starting(folder: Path, sent: signal.Signals) -> None:
    (folder / "portal.yaml").write_text("upstreams: {}\nserver: {token: '${command:cat fifo}'}")
    with running("serve", cwd=folder) as process, (folder / "fifo").open("wb"):  # opened once it is read
        assert ended_by(process, sent) == STATUSES[sent]


@SIGNALS
def test_a_server_on_stdio_whose_client_stays(folder: Path, sent: signal.Signals) -> None:
    with running("serve", cwd=folder) as process:
        assert process.stdin and process.stdout
        request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": CLIENT}
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        assert "mcp-code-portal" in process.stdout.readline()
        wait_for_line(process.stderr, "upstream_connected")
        assert ended_by(process, sent) == SERVING[sent]


def test_a_server_on_stdio_whose_client_leaves_in_the_middle_of_a_script(folder: Path) -> None:
    code = (folder / "script.py").read_text()
    messages: list[dict[str, object]] = [
        {"id": 1, "method": "initialize", "params": CLIENT},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "execute_code", "arguments": {"code": code}}},
    ]
    with running("serve", cwd=folder) as process:
        assert process.stdin
        for message in messages:
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        process.stdin.flush()
        wait_for_writer(folder / "fifo")
        tree = tree_below(process.pid)
        try:
            process.stdin.close()
            process.stdin = None
            assert process.wait(COMMAND_SECONDS) == 0
            assert tree.survivors() == []
        finally:
            tree.close()
