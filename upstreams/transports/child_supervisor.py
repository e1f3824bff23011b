"""Supervises one stdio server and its descendants, so that no process outlives the portal.

    python -I -S child_supervisor.py PORTAL_PID OPEN_FILES NAME=NAME=... COMMAND ARGUMENTS...

A process between the portal and the server, which uses the standard library only. The server inherits its streams, the
named variables, and a limit of OPEN_FILES (-1: none). When the server ends, SIGTERM arrives, or the portal is gone,
even by kill -9, every descendant gets SIGTERM, and SIGKILL 0.7 s later. The exit status is the server's, 128 + N for
signal N.

On Linux it also finds descendants that left the process group (`PR_SET_CHILD_SUBREAPER`), and the portal's death sends
a signal (`PR_SET_PDEATHSIG`). Elsewhere it polls its parent, and signals only the server's process group.
"""

import contextlib
import os
import resource
import select
import signal
import sys
import time

GRACE_SECONDS = 0.7
KILL_SECONDS = 1.0
REAP_SECONDS = 0.02
ON_LINUX: bool = sys.platform == "linux"
POLL_SECONDS = 5.0 if ON_LINUX else 0.5
CANNOT_EXECUTE = 126

# The kernel sends it when the *thread* that started us ends, so it only means "check whether the portal is alive".
# SIGCONT, because it also wakes a stopped process.
PARENT_SIGNAL = signal.SIGCONT
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


class ProcessSupervisor:
    """The server, its descendants, and the portal they must not outlive."""

    def __init__(self, portal: int, open_files: int) -> None:
        self._portal = portal
        self._open_files = open_files
        self._stop_requested = False
        self._server = 0
        self._status: int | None = None
        self._wakeups = -1

    def run(self, command: list[str], environment: dict[str, str]) -> int:
        self._listen()
        _prctl(PR_SET_CHILD_SUBREAPER, 1)
        _prctl(PR_SET_PDEATHSIG, PARENT_SIGNAL)
        if self._is_portal_gone():
            return 128 + signal.SIGTERM
        self._server = _start(command, environment, self._open_files)
        _detach_streams()
        while self._status is None and not self._stop_requested and not self._is_portal_gone():
            self._wait(POLL_SECONDS)
            self._reap()
        self._end_descendants(signal.SIGTERM, GRACE_SECONDS)
        self._end_descendants(signal.SIGKILL, KILL_SECONDS)
        return 128 + signal.SIGTERM if self._status is None else self._status

    def _listen(self) -> None:
        self._wakeups, writable = os.pipe()
        os.set_blocking(self._wakeups, False)
        os.set_blocking(writable, False)
        signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._stop)
        for number in (signal.SIGCHLD, PARENT_SIGNAL):
            # The wakeup pipe wakes the loop; the handler does nothing.
            signal.signal(number, lambda *_: None)
        # The portal handles Ctrl-C and a closing terminal, and then stops its servers.
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)

    def _stop(self, _number: int, _frame: object) -> None:
        self._stop_requested = True

    def _is_portal_gone(self) -> bool:
        return os.getppid() != self._portal

    def _wait(self, seconds: float) -> None:
        """Wait at most `seconds` for the death of a child or a signal."""
        select.select([self._wakeups], [], [], seconds)
        with contextlib.suppress(BlockingIOError):
            os.read(self._wakeups, 4096)

    def _reap(self) -> bool:
        """Reap dead children. Returns whether any child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._server:
                code = os.waitstatus_to_exitcode(status)
                self._status = code if code >= 0 else 128 - code

    def _end_descendants(self, number: int, seconds: float) -> None:
        """Signal each descendant once, including new ones, until none is left or the time is over."""
        signalled: set[int] = set()
        deadline = None  # counted from the first signal, because finding them may take long
        while self._has_descendants() and (deadline is None or time.monotonic() < deadline):
            found = self._descendants()
            for pid in found - signalled:
                _send(pid, number)
            signalled |= found
            deadline = deadline or time.monotonic() + seconds
            self._wait(REAP_SECONDS)

    def _has_descendants(self) -> bool:
        has_children = self._reap()
        # Orphans become our children, so without children there are no descendants.
        return has_children if ON_LINUX else _send(-self._server, 0)

    def _descendants(self) -> set[int]:
        """The pids of all descendants; without /proc, the server's negated process group."""
        own = os.getpid()
        # Most kernels have this file (CONFIG_PROC_CHILDREN).
        is_listed = os.path.exists(f"/proc/{own}/task/{own}/children")
        return _descendants_of(own) if is_listed else {-self._server}


def _send(pid: int, number: int) -> bool:
    """Send a signal. Returns whether the process or group exists."""
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True


def _prctl(option: int, value: int) -> None:
    if ON_LINUX:
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _start(command: list[str], environment: dict[str, str], open_files: int) -> int:
    supervisor = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    # This is a copy of the supervisor: it must not return before exec.
    try:
        os.setpgid(0, 0)
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:
            return CANNOT_EXECUTE  # the supervisor was killed before PR_SET_PDEATHSIG took effect
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (open_files, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        )
        os.execve(command[0], command, environment)
    except OSError as error:
        os.write(2, f"cannot run {command[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(CANNOT_EXECUTE)


def _detach_streams() -> None:
    """Close the server's pipes here, so that either side reads EOF when the other is gone."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)


def _descendants_of(root: int) -> set[int]:
    """All descendants. A zombie counts, because its other threads may be running; otherwise it is reaped next."""
    found: set[int] = set()
    reachable = [root]
    while reachable:
        born = [child for child in _children_of(reachable.pop()) if child not in found]
        found.update(born)
        reachable.extend(born)
    return found


def _children_of(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):  # the process ended since; below: one of its threads
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb") as children:
                found += map(int, children.read().split())
    return found


def main() -> int:
    portal, open_files, names, *command = sys.argv[1:]
    environment = {name: os.environ[name] for name in names.split("=") if name in os.environ}
    return ProcessSupervisor(int(portal), int(open_files)).run(command, environment)


if __name__ == "__main__":
    sys.exit(main())
