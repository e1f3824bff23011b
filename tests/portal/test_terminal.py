"""What a person sees on a terminal, and a program in a pipe."""

import json
import os
import re
import subprocess
import termios
from pathlib import Path

import pytest

from portal.cli.terminal import counted
from tests.portal.commands import COMMAND_SECONDS, started
from tests.portal.peers import raw


def on_terminal(*arguments: str, cwd: Path, env: dict[str, str], columns: int = 80) -> str:
    """All that a command without input writes on a terminal."""
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (25, columns))
    process = started(*arguments, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen = b""
    try:
        while chunk := os.read(ours, 65_536):
            seen += chunk
    except OSError:  # so Linux tells that nobody has the terminal open any more
        pass
    finally:
        os.close(ours)
        process.wait(COMMAND_SECONDS)
    return seen.decode()


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colours_can_be_turned_off(tmp_path: Path, env: dict[str, str]) -> None:
    (tmp_path / "portal.yaml").write_text("nonsense: 1\n")
    shown = on_terminal("check", cwd=tmp_path, env={"TERM": "xterm-256color", **env})
    assert "error:" in shown
    assert "\x1b[3" not in shown and "\x1b[9" not in shown, shown


def test_an_error_has_a_colour_on_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "portal.yaml").write_text("nonsense: 1\n")
    shown = on_terminal("check", cwd=tmp_path, env={"TERM": "xterm-256color"})
    assert "\x1b[" in shown
    assert "error:" in shown


@pytest.mark.parametrize("env", [{"COLUMNS": "300"}, {"COLUMNS": "40"}, {"TERM": "dumb"}, {}])
@pytest.mark.parametrize("columns", [60, 200])
def test_rows_are_those_of_the_terminal(tmp_path: Path, env: dict[str, str], columns: int) -> None:
    (tmp_path / "portal.yaml").write_text("{}\n")
    given = {"NO_COLOR": "1", "TERM": "xterm", **env}
    shown = on_terminal("check", "--profile", "x" * 900, cwd=tmp_path, env=given, columns=columns)
    first, *others = re.sub(r"\x1b\[[0-9;]*m", "", shown[shown.index("no profile") :]).split("\r\n")
    rows = [row for row in others if "xx" in row]
    assert len(first) < columns == max(map(len, rows)), shown
    assert {row[:6] for row in rows} == {"    | "}


def test_rows_of_the_log_are_those_of_the_terminal(tmp_path: Path) -> None:
    upstream = raw(stderr="x" * 300, exits_with=3)
    (tmp_path / "portal.yaml").write_text(json.dumps({"upstreams": {"up": upstream}}))
    given = {"NO_COLOR": "1", "TERM": "xterm", "COLUMNS": "200"}
    shown = on_terminal("lock", "--log-level", "warning", cwd=tmp_path, env=given, columns=60)
    told = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown[shown.index("upstream_not_reached") :])
    rows = [row for row in told.partition("upstream=up")[0].split("\r\n") if "xx" in row]
    assert max(map(len, rows)) == 60, shown
    assert {row[:6] for row in rows} == {"    | "}


def test_waiting_is_shown_on_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("'done'")
    shown = on_terminal("run", "script.py", cwd=tmp_path, env={"TERM": "xterm-256color"})
    assert "running script.py" in shown
    assert '"done"' in shown


def test_one_thing_is_not_several() -> None:
    assert [counted(number, "error") for number in (0, 1, 2)] == ["0 errors", "1 error", "2 errors"]
