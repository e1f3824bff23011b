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


async def end_child(process: Process) -> None:
    """Close the server's stdin, then have its supervisor end it; returns when all its descendants have ended.

    That is within 3 s, and within 9 s where the machine has no time for it, or where the supervisor is stuck.
    """
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
    _end_the_unsupervised(process)


async def guard(process: Process) -> None:
    """Wait for the end of a supervisor; of one that was killed, end what it had to end."""
    await process.wait()
    _end_the_unsupervised(process)


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


def _end_the_unsupervised(process: Process) -> None:
    """A supervisor never ends by a signal of itself: somebody killed it, and the kernel its server, but no others.

    Those are still in its session, unless they have left it.
    """
    if sys.platform != "linux" or (process.returncode or 0) >= 0:
        return
    for name in os.listdir("/proc"):
        with suppress(OSError, ValueError):
            if os.getsid(pid := int(name)) == process.pid:
                os.kill(pid, signal.SIGKILL)
