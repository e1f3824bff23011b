"""How a stdio server ends, and that nothing of it is left."""

import os
import signal
import sys
from contextlib import suppress
from typing import Final

import anyio
import structlog
from anyio.abc import Process

from upstreams.child_supervisor import descendants_of, listed_children, scanned_children

EOF_GRACE_SECONDS: Final = 0.9

SUPERVISOR_SECONDS: Final = 6.0
"""A server that ignores both EOF and SIGTERM is gone after 1.6 s. The rest is for machines on which hundreds end at
once: a supervisor that still works must not be killed, for that would set free what it has not found yet."""

KILLED_SECONDS: Final = 2.0

log = structlog.get_logger()


class ChildEnd:
    """The end of one server; `process` is its supervisor, which leads a session."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._has_looked = False

    async def guard(self) -> None:
        """Wait for the end of the supervisor; if it was killed, end what it had to end."""
        await self._process.wait()
        self._end_the_unsupervised()

    async def end(self) -> None:
        """Close the server's stdin, then have its supervisor end it; returns when all its descendants have ended.

        That is within 3 s, and within 9 s where the machine has no time for it, or where the supervisor is stuck.
        """
        process = self._process
        assert process.stdin
        with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            await process.stdin.aclose()
        if not await has_ended(process, EOF_GRACE_SECONDS):
            _send(process.pid, signal.SIGTERM)
            if not await has_ended(process, SUPERVISOR_SECONDS):
                log.warning("supervisor_killed", pid=process.pid)
                await anyio.to_thread.run_sync(_kill_with_descendants, process.pid)
                if not await has_ended(process, KILLED_SECONDS):
                    log.warning("child_abandoned", pid=process.pid)
                    return
        await process.aclose()
        self._end_the_unsupervised()

    def _end_the_unsupervised(self) -> None:
        """A supervisor never ends by a signal of itself: somebody killed it, and the kernel its server, but no others.

        Those are still in its session, unless they have left it. Once that is empty, its number may be another's.
        """
        if sys.platform != "linux" or (self._process.returncode or 0) >= 0 or self._has_looked:
            return
        self._has_looked = True
        for name in os.listdir("/proc"):
            with suppress(OSError, ValueError):
                if os.getsid(pid := int(name)) == self._process.pid:
                    os.kill(pid, signal.SIGKILL)


async def has_ended(process: Process, seconds: float) -> bool:
    """Whether it has, after at most `seconds`."""
    with anyio.move_on_after(seconds):
        await process.wait()
    return process.returncode is not None


def _send(pid: int, number: int) -> None:
    # Not by the process's own method: that one collects the exit status of a child that has just ended, if it comes
    # before asyncio, which then complains on stderr and does not know the status.
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _kill_with_descendants(supervisor: int) -> None:
    descendants: set[int] = set()
    if sys.platform == "linux":
        descendants = descendants_of(supervisor, listed_children() or scanned_children())
    for pid in (supervisor, *descendants):
        _send(pid, signal.SIGKILL)
