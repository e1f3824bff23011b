"""Commands whose streams are closed, or take nothing, from the beginning."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.portal.commands import COMMAND, COMMAND_SECONDS
from tests.portal.peers import raw, raw_tools, write_manifest


def redirected(arguments: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    """A command that a shell starts, with redirections among its arguments."""
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {arguments}', "sh", *COMMAND],
        cwd=cwd,
        env=buffered,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
    )


@pytest.mark.parametrize("arguments", ["serve <&-", "serve >&-", "run script.py >&-"])
def test_closed_stream_ends_no_command(tmp_path: Path, arguments: str) -> None:
    (tmp_path / "script.py").write_text("print('said')")
    done = redirected(arguments, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def test_upstream_is_called_and_told_though_stdin_and_stdout_are_closed(tmp_path: Path) -> None:
    write_manifest(tmp_path, {"up": raw(tools=raw_tools("echo"))})
    (tmp_path / "script.py").write_text("await up.echo()")
    done = redirected("run script.py <&- >&-", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "up.echo" in done.stderr


@pytest.mark.parametrize("arguments", ["schema"])
def test_output_that_cannot_be_written_is_one_readable_error(tmp_path: Path, arguments: str) -> None:
    done = redirected(f"{arguments} >/dev/full", tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("error: ") == 1
    assert "Exception" not in done.stderr and "Traceback" not in done.stderr
