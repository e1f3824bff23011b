"""The processes below one, on Linux, and the moment when all of them are gone."""

import os
import select
import time
from collections.abc import Iterator, Set
from pathlib import Path

END_SECONDS = 20


class ProcessTree:
    """The descendants a process has now, held by file descriptors that cannot mean another process later.

    Those in `others` do not count: a test's own process may keep a sandbox open for the tests after it.
    """

    def __init__(self, root: int, others: Set[int] = frozenset()) -> None:
        pids = [pid for pid in descendants(root) if pid not in others]
        self.handles = {os.pidfd_open(pid): _command(pid) for pid in pids}

    def survivors(self) -> list[str]:
        """The command lines of those that are still there after `END_SECONDS`."""
        left = dict(self.handles)
        poller = select.poll()
        for handle in left:
            poller.register(handle, select.POLLIN)
        deadline = time.monotonic() + END_SECONDS
        while left and (remaining := deadline - time.monotonic()) > 0:
            for handle, _ in poller.poll(remaining * 1000):
                poller.unregister(handle)
                del left[handle]
        return sorted(left.values())

    def close(self) -> None:
        for handle in self.handles:
            os.close(handle)


def descendants(root: int) -> Iterator[int]:
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    waiting = list(children.get(root, ()))
    while waiting:
        pid = waiting.pop()
        yield pid
        waiting.extend(children.get(pid, ()))


def _command(pid: int) -> str:
    return (
        f"{pid} {Path(f'/proc/{pid}/cmdline').read_bytes().replace(bytes(1), b' ').decode(errors='replace')}"
    )
