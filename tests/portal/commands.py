"""The command `mcp-code-portal`: in this process where that shows the same, else as a process of its own."""

import io
import logging
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import pytest
import structlog

from manifests.json_value import Json
from portal.cli.command_line import run_command
from portal.cli.parser import parse_arguments
from portal.cli.terminal import Terminal
from tests.warm_commands import warm_command

COMMAND = (sys.executable, "-m", "portal")
COMMAND_SECONDS = 60
ROOT = Path(__file__).parents[2]
CHANGING = ("MCP_CODE_PORTAL_CONFIG", "NO_COLOR", "FORCE_COLOR", "TERM")
"""Variables that may be set where the tests run, and change what a command does."""


@dataclass(frozen=True)
class Done:
    """A command that has ended, and what it wrote."""

    returncode: int
    stdout: str
    stderr: str


PortalCommand: TypeAlias = Callable[..., Done]
"""`portal(*arguments, cwd, stdin, env)`: runs a command from start to end in this process."""


class Told(Terminal):
    """A terminal that keeps what it shows."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []
        self.results: list[Json] = []
        self._send, self.printed = anyio.create_memory_object_stream[str](math.inf)

    def note(self, text: str) -> None:
        super().note(text)
        self.notes.append(text)

    def json(self, value: Json) -> None:
        self.results.append(value)

    def result(self, text: str) -> None:
        super().result(text)
        self._send.send_nowait(text)


def portal_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> PortalCommand:
    def portal(*arguments: str, cwd: Path, stdin: str = "", env: dict[str, str] | None = None) -> Done:
        with monkeypatch.context() as place, restored_logs():
            for name in CHANGING:
                place.delenv(name, raising=False)
            for name, value in (env or {}).items():
                place.setenv(name, value)
            place.chdir(cwd)
            place.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8"))
            try:
                status = run_command(parse_arguments(arguments))
            except SystemExit as ended:  # so argparse ends --help and wrong arguments
                status = int(ended.code or 0)
        return Done(status, *capsys.readouterr())

    return portal


@contextmanager
def restored_logs() -> Iterator[None]:
    """Restore the log settings: a command sets them for its process, which other tests share."""
    events, root = structlog.get_config(), logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        structlog.configure(**events)
        root.handlers[:] = handlers
        root.setLevel(level)


def started(
    *arguments: str,
    cwd: Path,
    env: dict[str, str] | None = None,
    command: Sequence[str] = COMMAND,
    **more: Any,
) -> subprocess.Popen[str]:
    """A command as a process of its own; the caller ends it."""
    kept = {name: value for name, value in os.environ.items() if name not in CHANGING}
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(
        [*command, *arguments],
        cwd=cwd,
        text=True,
        encoding="utf-8",
        env={**kept, "PYTHONPATH": str(ROOT), **(env or {})},
        **{**streams, **more},
    )


def finished(*arguments: str, cwd: Path, stdin: str = "", env: dict[str, str] | None = None) -> Done:
    """A process of its own, from start to end."""
    return ended(started(*arguments, cwd=cwd, env=env, command=warm_command()), stdin)


def ended(process: subprocess.Popen[str], stdin: str = "") -> Done:
    stdout, stderr = process.communicate(stdin, COMMAND_SECONDS)
    return Done(process.returncode, stdout, stderr)
