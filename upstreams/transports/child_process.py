"""The process of a stdio upstream: how it is started, what it says on stderr, and that nothing of it is left."""

import os
import resource
import shutil
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
import structlog
from anyio.abc import ByteReceiveStream, ByteSendStream, Process

from manifests.portal_manifest import StdioUpstream
from upstreams.errors import UpstreamUnavailableError
from upstreams.redaction import Redaction

INHERITED: Final = ("PATH", "HOME", "LANG", "TMPDIR")
"""What every child gets of the portal's environment, when set; nothing else."""

EOF_GRACE_SECONDS: Final = 0.9

SUPERVISOR_SECONDS: Final = 6.0
"""A server that ignores both EOF and SIGTERM is gone after 1.6 s; where hundreds end at once it takes longer."""

KILLED_SECONDS: Final = 2.0

OPEN_FILES: Final = 65_536
"""A stdio server takes four of the portal's open files, and on many systems a process begins with 1,024."""

OPEN_FILES_AT_START: Final = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
"""The servers get these: a program that waits with `select` can only wait for the first 1,024."""

STDERR_LINES: Final = 50
_STDERR_LINE_BYTES: Final = 8192
_STDERR_PAUSE_SECONDS: Final = 0.01
"""After each piece of 64 KiB: a child that writes without end must not take all of the loop."""

_REST_OF_STDERR_SECONDS: Final = 0.3

_INSTALL_HINTS: Final = {
    "uvx": "install uv (https://docs.astral.sh/uv)",
    "uv": "install uv (https://docs.astral.sh/uv)",
    "npx": "install Node.js",
    "node": "install Node.js",
    "docker": "install Docker",
}

_SHORT_PATH: Final = "programs started from a desktop have a shorter PATH than those started from a shell"

log = structlog.get_logger()


def allow_open_files() -> None:
    """Let this process have `OPEN_FILES` open, or as many as the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@dataclass(frozen=True)
class ChildCommand:
    """A process to start: its supervisor's command line, exact environment and folder."""

    command: tuple[str, ...]
    environment: dict[str, str]
    folder: Path

    @classmethod
    def of(cls, spec: StdioUpstream, folder: Path, environ: Mapping[str, str]) -> "ChildCommand":
        """Find the command as a shell in the child's folder would. Raises UpstreamUnavailableError: it is not there."""
        environment = {name: environ[name] for name in INHERITED if name in environ} | dict(spec.env)
        cwd = os.path.expanduser(spec.cwd or "")
        working_folder = folder / cwd
        if not working_folder.is_dir():
            where = "" if os.path.isabs(cwd) else " in the manifest's folder"
            raise UpstreamUnavailableError(f"its working directory {spec.cwd!r} does not exist{where}")
        executable = _find(spec.command, environment, working_folder)
        supervisor = Path(__file__).with_name("child_supervisor.py")
        # The names travel beside the values: the supervisor passes on exactly these.
        supervise = (sys.executable, "-I", "-S", str(supervisor), str(os.getpid()), str(OPEN_FILES_AT_START))
        return cls((*supervise, "=".join(environment), executable, *spec.args), environment, working_folder)


def _find(command: str, environment: Mapping[str, str], folder: Path) -> str:
    if os.sep in command:
        path = folder / os.path.expanduser(command)
        if not path.exists():
            raise UpstreamUnavailableError(f"command {command!r} does not exist")
        if not os.access(path, os.X_OK) or path.is_dir():
            raise UpstreamUnavailableError(f"command {command!r} is not executable")
        return str(path)
    # Relative entries of PATH are the child's, so they count from its folder.
    search = os.pathsep.join(
        str(folder / entry) for entry in environment.get("PATH", os.defpath).split(os.pathsep)
    )
    found = shutil.which(command, path=search)
    if found is None:
        hint = f"{_INSTALL_HINTS.get(command, 'install it')}, or give its full path"
        raise UpstreamUnavailableError(f"command {command!r} was not found on PATH; {hint}: {_SHORT_PATH}")
    return found


@asynccontextmanager
async def open_child(command: ChildCommand, redact: Redaction) -> AsyncIterator["Child"]:
    """A child, which ends on leaving with all its descendants. Raises UpstreamUnavailableError: it does not start."""
    try:
        process = await anyio.open_process(
            command.command, cwd=command.folder, env=command.environment, start_new_session=True
        )
    except (OSError, ValueError) as error:
        raise UpstreamUnavailableError(f"could not be started: {error}") from error
    child = Child(process, redact)
    async with anyio.create_task_group() as tasks:
        assert process.stderr
        tasks.start_soon(child.stderr.follow, process.stderr)
        try:
            yield child
        finally:
            with anyio.CancelScope(shield=True):
                await child.end()
            tasks.cancel_scope.cancel()


class Child:
    """One server; `process` is its supervisor, which leads a session (`child_supervisor.py`)."""

    def __init__(self, process: Process, redact: Redaction) -> None:
        assert process.stdin and process.stdout
        self.stdin: ByteSendStream = process.stdin
        self.stdout: ByteReceiveStream = process.stdout
        self.stderr = StderrTail(redact)
        self._process = process

    async def exit_status(self, fault: str) -> str:
        """How it ended, or its `fault` if it lives on; waits a moment for either, and for the rest of its stderr."""
        if await self._has_ended(EOF_GRACE_SECONDS):
            status = self._process.returncode or 0
            # The supervisor reports a signal the way shells do.
            fault = f"ended by signal {status - 128}" if status > 128 else f"exited with status {status}"
        with anyio.move_on_after(_REST_OF_STDERR_SECONDS):
            await self.stderr.finished.wait()
        return fault

    async def end(self) -> None:
        """Close the server's stdin, then have its supervisor end it with all its descendants; takes 9 s at most."""
        process = self._process
        with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self.stdin.aclose()
        if not await self._has_ended(EOF_GRACE_SECONDS):
            _send(process.pid, signal.SIGTERM)
            if not await self._has_ended(SUPERVISOR_SECONDS):
                log.warning("supervisor_killed", pid=process.pid)
                _send(process.pid, signal.SIGKILL)  # the kernel ends its server
                if not await self._has_ended(KILLED_SECONDS):
                    log.warning("child_abandoned", pid=process.pid)
                    return
        await process.aclose()

    async def _has_ended(self, seconds: float) -> bool:
        """Whether it has, after at most `seconds`."""
        with anyio.move_on_after(seconds):
            await self._process.wait()
        return self._process.returncode is not None


def _send(pid: int, number: int) -> None:
    # The process's own method may collect the exit status of a child before asyncio does, which then lacks it.
    with suppress(ProcessLookupError):
        os.kill(pid, number)


class StderrTail:
    """The last fifty lines that a child wrote to stderr, scrubbed; never passed on to ours."""

    def __init__(self, redact: Redaction) -> None:
        self._redact = redact
        self._lines: deque[bytes] = deque(maxlen=STDERR_LINES)
        self._partial = b""
        self.finished = anyio.Event()

    async def follow(self, stderr: ByteReceiveStream) -> None:
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            async for chunk in stderr:
                *lines, rest = (self._partial + chunk).rsplit(b"\n", STDERR_LINES)
                if lines:
                    lines[0] = lines[0].rpartition(b"\n")[2]  # the first item is all that stands before
                self._lines.extend(line[:_STDERR_LINE_BYTES] for line in lines if line.strip())
                self._partial = rest[:_STDERR_LINE_BYTES]
                await anyio.sleep(_STDERR_PAUSE_SECONDS)
        self.finished.set()

    def lines(self) -> tuple[str, ...]:
        """Each without secrets, on one line, of at most 200 characters."""
        return tuple(
            self._redact.excerpt(line, 200) for line in [*self._lines, self._partial] if line.strip()
        )

    def last_line(self) -> str:
        """The last line."""
        return (self.lines() or ("",))[-1]
