"""The process of a stdio upstream: starting it, reading its stderr, and ending it with all its descendants."""

import asyncio
import os
import re
import resource
import shutil
import signal
import socket
import sys
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final

import anyio
import structlog
from anyio.abc import ByteReceiveStream, Process

from manifests.portal_manifest import StdioUpstream
from upstreams.errors import UpstreamUnavailableError
from upstreams.redaction import Redaction

INHERITED: Final = ("PATH", "HOME", "LANG", "TMPDIR")
"""The variables that every child inherits from the portal, if set. It inherits no others."""

EOF_GRACE_SECONDS: Final = 0.9

SUPERVISOR_SECONDS: Final = 6.0
"""A server that ignores EOF and SIGTERM is gone after 1.6 s; with hundreds ending at once it takes longer."""

KILLED_SECONDS: Final = 2.0

OPEN_FILES: Final = 65_536
"""A stdio server uses four of the portal's file descriptors, and many systems start a process with 1,024."""

OPEN_FILES_AT_START: Final = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
"""The limit for servers: a program that uses `select` fails with descriptors over 1,024."""

STDERR_LINES: Final = 50
_STDERR_LINE_BYTES: Final = 8192
_STDERR_PAUSE_SECONDS: Final = 0.01
"""Pause after each chunk of 64 KiB, so that a child that floods stderr does not block the event loop."""

_REST_OF_STDERR_SECONDS: Final = 0.3

_INSTALL_HINTS: Final = {
    "uvx": "install uv (https://docs.astral.sh/uv)",
    "uv": "install uv (https://docs.astral.sh/uv)",
    "npx": "install Node.js",
    "node": "install Node.js",
    "docker": "install Docker",
}

_SHORT_PATH: Final = "Programs started from a desktop have a shorter PATH than those started from a shell"

log = structlog.get_logger()


def allow_open_files() -> None:
    """Raise this process's limit of open files to `OPEN_FILES`, or to the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@asynccontextmanager
async def open_child(spec: StdioUpstream, folder: Path, redact: Redaction) -> AsyncIterator["Child"]:
    """Start a child; on exit it ends with all its descendants. Raises UpstreamUnavailableError: it does not start."""
    environment = {name: os.environ[name] for name in INHERITED if name in os.environ} | dict(spec.env)
    command, cwd = _found(spec, environment, folder)
    try:
        read, write = os.pipe()
        with os.fdopen(write) as written:
            # With the streams that anyio opens, each line takes three turns of the loop.
            stdout, _ = await asyncio.get_running_loop().connect_read_pipe(asyncio.Protocol, os.fdopen(read))
            try:
                stdout.pause_reading()  # until its protocol is set
                process, stdin = await _started(command, written, cwd=cwd, env=environment)
            except BaseException:
                stdout.close()
                raise
    except (OSError, ValueError) as error:
        raise UpstreamUnavailableError(f"could not be started: {error}") from error
    child = Child(process, stdin, stdout, redact)
    async with anyio.create_task_group() as tasks:
        assert process.stderr
        tasks.start_soon(child.stderr.follow, process.stderr)
        try:
            yield child
        finally:
            with anyio.CancelScope(shield=True):
                await child.end()
            stdout.close()
            tasks.cancel_scope.cancel()


async def _started(
    command: Sequence[str], stdout: IO[str], **options: Any
) -> tuple[Process, asyncio.StreamWriter]:
    ours, theirs = socket.socketpair()
    with theirs:
        _, stdin = await asyncio.open_connection(sock=ours)
        try:
            process = await anyio.open_process(
                command, stdin=theirs.fileno(), stdout=stdout, start_new_session=True, **options
            )
        except BaseException:
            stdin.close()
            raise
    return process, stdin


def _found(spec: StdioUpstream, environment: Mapping[str, str], folder: Path) -> tuple[Sequence[str], Path]:
    """The command line of the child's supervisor, and the child's folder, as a shell there would find the command."""
    cwd = os.path.expanduser(spec.cwd or "")
    working_folder = folder / cwd
    if not working_folder.is_dir():
        where = "" if os.path.isabs(cwd) else " in the manifest's folder"
        raise UpstreamUnavailableError(f"its working directory {spec.cwd!r} does not exist{where}")
    executable = _find(spec.command, environment, working_folder)
    supervisor = Path(__file__).with_name("child_supervisor.py")
    # The supervisor passes on exactly the named variables.
    supervise = (sys.executable, "-I", "-S", str(supervisor), str(os.getpid()), str(OPEN_FILES_AT_START))
    return (*supervise, "=".join(environment), executable, *spec.args), working_folder


def _find(command: str, environment: Mapping[str, str], folder: Path) -> str:
    program, *arguments = command.split() or [""]
    split = f"put the arguments into args: {{command: {program}, args: [{', '.join(arguments)}]}}"
    if os.sep in command:
        path = folder / os.path.expanduser(command)
        if not path.exists():
            raise UpstreamUnavailableError(
                f"command {command!r} does not exist", remedy=split if arguments else ""
            )
        if not os.access(path, os.X_OK) or path.is_dir():
            raise UpstreamUnavailableError(f"command {command!r} is not executable")
        return str(path)
    # Relative entries of PATH are relative to the child's folder.
    search = os.pathsep.join(
        str(folder / entry) for entry in environment.get("PATH", os.defpath).split(os.pathsep)
    )
    found = shutil.which(command, path=search)
    if found is None:
        hint = split if arguments else f"{_INSTALL_HINTS.get(command, 'install it')}, or give its full path"
        missing = f"command {command!r} was not found on PATH"
        raise UpstreamUnavailableError(missing, remedy=f"{hint}. {_SHORT_PATH}")
    return found


class Child:
    """One server; `process` is its supervisor, which leads a session (`child_supervisor.py`)."""

    def __init__(
        self, process: Process, stdin: asyncio.StreamWriter, stdout: asyncio.ReadTransport, redact: Redaction
    ) -> None:
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = StderrTail(redact)
        self._process = process

    async def exit_status(self, fault: str) -> str:
        """How it ended, or `fault` if it is still running. Waits briefly for its end and for the rest of its stderr."""
        if await self._has_ended(EOF_GRACE_SECONDS):
            status = self._process.returncode or 0
            # The supervisor reports a signal the way shells do.
            is_signal = 128 < status < 128 + signal.NSIG
            fault = f"ended by signal {status - 128}" if is_signal else f"exited with status {status}"
        with anyio.move_on_after(_REST_OF_STDERR_SECONDS):
            await self.stderr.finished.wait()
        return fault

    async def end(self) -> None:
        """Close the server's stdin, then have its supervisor end all its descendants. Takes at most 9 s."""
        process = self._process
        self.stdin.close()
        if not await self._has_ended(EOF_GRACE_SECONDS):
            _send(process.pid, signal.SIGTERM)
            _send(process.pid, signal.SIGCONT)  # it may be stopped
            if not await self._has_ended(SUPERVISOR_SECONDS):
                log.warning("supervisor_killed", pid=process.pid)
                _send(process.pid, signal.SIGKILL)  # the kernel ends its server
                if not await self._has_ended(KILLED_SECONDS):
                    log.warning("child_abandoned", pid=process.pid)
                    return
        await process.aclose()

    async def _has_ended(self, seconds: float) -> bool:
        with anyio.move_on_after(seconds):
            await self._process.wait()
        return self._process.returncode is not None


def _send(pid: int, number: int) -> None:
    # The process's own method may reap the child before asyncio does, which then lacks the exit status.
    with suppress(ProcessLookupError):
        os.kill(pid, number)


class StderrTail:
    """The last 50 lines of a child's stderr, masked. They are not copied to the portal's stderr."""

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
                    lines[0] = lines[0].rpartition(b"\n")[2]  # the first item holds all earlier text
                self._lines.extend(line[:_STDERR_LINE_BYTES] for line in lines if line.strip())
                self._partial = rest[:_STDERR_LINE_BYTES]
                await anyio.sleep(_STDERR_PAUSE_SECONDS)
        self.finished.set()

    async def forget(self) -> None:
        """Drop what was written so far: of a server that is ready, banners and complaints about the probe."""
        if self._lines or self._partial:
            await anyio.sleep(2 * _STDERR_PAUSE_SECONDS)  # the rest may still be unread
        self._lines.clear()
        self._partial = b""

    def lines(self) -> tuple[str, ...]:
        """The lines that have a letter, masked and cut to 200 characters."""
        shown = (self._redact.excerpt(line, 200) for line in [*self._lines, self._partial])
        return tuple(line for line in shown if any(map(str.isalpha, line)))


_MAX_REASON_CHARACTERS: Final = 300
_FRAME: Final = " \t|+-─━═│┃║├╭╮╰╯┌┐└┘▶×✖•"
"""Decoration around text: the tree of an exception group, boxes, and uv's arrows."""

_ERROR: Final = re.compile(
    r"(?:\[cause\]|Caused by|cause): \S"
    r"|(?:[\w$./-]+: |Uncaught |Unhandled \w+ |Fatal |Exception in thread \S+ |\(in promise\) )*"
    r"(?:[\w.$]+\.)?\w*(?:Error|Exception)\b(?! ignored)"
    r"|(?:[\w.-]+: |Configuration )?(?:fatal )?error: |docker: |panic: |fatal: |thread '.*' panicked"
    r"|npm (?:error|ERR!) "
    r"|(?:.{0,60}\W)?(?:ERROR|CRITICAL|FATAL)\b|.{0,60}\blevel\W{1,4}(?:error|fatal)\b"
)
"""How Python, Node, Java, Go, Rust, uv, npm, docker and loggers begin a line that reports an error."""

_NOISE: Final = re.compile(
    r"at |\.\.\. \d+ |File \"|.*Traceback \(most|.*\bsub-exceptions?\)|During handling|The above exception|.*ignored in"
    r"|(?:[\w.]+\.)?CancelledError|Node\.js v|throw |(?:code|errno|syscall|hostname|address|port|path|requireStack): "
    r"|npm (?:warn|notice|WARN)|npm (?:error|ERR!) (?:code|errno|syscall|path|dest|type|cwd|A complete log)\b"
    r"|(?:Run|See|Try|For more) .*help|(?:Installed|Resolved|Prepared|Audited|Downloading|Downloaded|Building|Built) "
    r"|(?:warning|note|hint|help): |\(node:\d+\)|\(Use `node|goroutine \d|exit status|.*\b(?:INFO|DEBUG|info|debug)\b"
    # What the Python SDK 1.x writes about the portal's own probe.
    r"|.*server/discover|.*validation errors? for (?:Client|JSONRPC)|\w+(?:Request|Notification)\.\S+$|For further info"
)
_IS_CONTINUED: Final = re.compile(r".*[:[{(]$|.*\bvalidation errors? for \w+$|Error$")
_CONTINUATION_LINES: Final = 8


def crash_reason(lines: Sequence[str]) -> str:
    """The line with the innermost cause, else the last meaningful one; "" if every line is noise."""
    plain = [line.strip(_FRAME) if any(map(str.isalpha, line)) else "" for line in lines]
    told = [n for n, line in enumerate(plain) if line and not _NOISE.match(line)]
    errors = [n for n in told if _ERROR.match(plain[n]) or "─▶" in lines[n]]
    banner = [n for n in told if not lines[n].strip().endswith(("│", "┃", "║", "|"))]
    if not errors:
        return plain[banner[-1]][:_MAX_REASON_CHARACTERS] if banner else ""
    first = errors[-1]
    if plain[first].startswith("npm "):  # npm puts the most specific line first
        first = next(n for n in errors if plain[n].startswith("npm "))
    reason = re.sub(r"^(?:\[cause\]|Caused by|cause): ", "", plain[first])
    if "─▶" in lines[first] or _IS_CONTINUED.match(reason):
        rest = [line for line in plain[first + 1 :] if line and not _NOISE.match(line)]
        reason = " ".join([reason, *rest[:_CONTINUATION_LINES]])
    return reason[:_MAX_REASON_CHARACTERS]
