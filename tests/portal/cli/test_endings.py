"""Ctrl-C and SIGTERM end every command in order and soon, and leave no process behind. Linux: looks at /proc."""

import ctypes
import json
import os
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.acceptance.process_tree import ProcessTree
from tests.portal.app.test_signed_in_streams import HELLO
from tests.portal.commands import COMMAND_SECONDS, started
from tests.portal.peers import raw, raw_tools, write_manifest


@contextmanager
def running(*arguments: str, cwd: Path, **more: Any) -> Iterator[subprocess.Popen[str]]:
    """A command that is to end within the block, and to leave no file. Its state is in memory: a disk may be slow."""
    temporary = cwd / "temporary"
    temporary.mkdir()
    with TemporaryDirectory(dir="/dev/shm") as state:
        process = started(
            *arguments, cwd=cwd, env={"TMPDIR": str(temporary), "XDG_STATE_HOME": state}, **more
        )
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


def wait_for_writer(fifo: Path) -> None:
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert select.select([reader], [], [], COMMAND_SECONDS)[0], "the script did not begin"
    finally:
        os.close(reader)


def test_a_script_tells_what_calls_in_flight_may_have_done(tmp_path: Path) -> None:
    limits = {"limits": {"parallel_calls": 2}}
    write_manifest(tmp_path, {"raw": raw(tools=raw_tools("echo", "hang"))}, capabilities=limits)
    os.mkfifo(fifo := tmp_path / "fifo")
    calls = f"raw.echo(), raw.hang(), raw.hang(acts_on={str(fifo)!r}), raw.echo()"
    (tmp_path / "script.py").write_text(f"import asyncio\nawait asyncio.gather({calls})")
    with running("run", "script.py", cwd=tmp_path) as process:
        wait_for_writer(fifo)
        assert ended_by(process, signal.SIGINT) == 130
        _, err = process.communicate()
    assert "cancelled: " in err and "cut off" not in err and "Traceback" not in err
    rows = [line.split() for line in err.splitlines()]
    states = [row[1] for row in rows if row and row[0].isdigit()]
    assert states == ["done", "unknown", "unknown", "not_started"]


def test_a_server_that_is_still_starting_is_ended_by_sigterm_and_not_by_a_signal_to_reload(
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "portal.yaml").write_text("upstreams: {}\nserver: {token: '${command:cat fifo}'}")
    serve = running("serve", cwd=tmp_path, start_new_session=True)  # it has no terminal
    with serve as process, (tmp_path / "fifo").open("wb"):  # opened once it is read
        process.send_signal(signal.SIGHUP)
        assert ended_by(process, signal.SIGTERM) == 143


def test_a_signal_that_the_thread_of_a_secret_gets_ends_the_start(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "portal.yaml").write_text("upstreams: {}\nserver: {token: '${command:cat fifo}'}")
    with running("serve", cwd=tmp_path) as process, (tmp_path / "fifo").open("wb"):
        threads = {*map(int, os.listdir(f"/proc/{process.pid}/task"))} - {process.pid}
        ctypes.CDLL(None).tgkill(process.pid, max(threads), signal.SIGTERM)
        assert process.wait(10) == 143


def test_a_server_on_stdio_whose_client_stays(tmp_path: Path) -> None:
    write_manifest(tmp_path, {"raw": raw()})
    with running("serve", cwd=tmp_path) as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdin.write(json.dumps(HELLO) + "\n")
        process.stdin.flush()
        assert "mcp-code-portal" in process.stdout.readline()
        assert any("upstream_connected" in line for line in process.stderr)
        assert ended_by(process, signal.SIGTERM) == 0
