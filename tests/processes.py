"""The worker processes of a portal that runs in this process. Linux: looks at /proc."""

import os
from pathlib import Path


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def fork_servers() -> list[int]:
    return [
        pid for pid in children(os.getpid()) if b"fork_server" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def workers() -> list[int]:
    """The workers of this process: they are forked by a child of it."""
    return [worker for server in fork_servers() for worker in children(server)]
