"""What a portal and its sandbox hold at one moment: memory, descriptors, threads, processes, tasks (Linux)."""

import asyncio
import gc
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import children


@dataclass(frozen=True)
class Held:
    """Megabytes, and counts. `portal` is this process; a spawned worker has no fork server above it."""

    runs: int
    portal_mb: float
    portal_descriptors: int
    portal_threads: int
    portal_tasks: int
    portal_objects: int
    fork_server_mb: float
    fork_server_descriptors: int
    workers: int
    workers_mb: float
    largest_worker_mb: float
    most_worker_descriptors: int
    most_worker_threads: int
    zombies: int


def held(runs: int) -> Held:
    """Look after a collection, so that what is only waiting to be collected is no leak."""
    gc.collect()
    own = os.getpid()
    below = children(own)
    servers = [pid for pid in below if b"fork_server" in _command(pid)]
    workers = [pid for pid in below if b"sandbox_runtime.worker.worker\0work\0" in _command(pid)]
    workers += [child for server in servers for child in children(server)]
    living = [pid for pid in workers if _state(pid) not in ("", "Z")]
    sizes = [_private_mb(pid) for pid in living]
    return Held(
        runs=runs,
        portal_mb=_private_mb(own),
        portal_descriptors=_descriptors(own),
        portal_threads=threading.active_count(),
        portal_tasks=len(asyncio.all_tasks()),
        portal_objects=len(gc.get_objects()),
        fork_server_mb=sum(map(_private_mb, servers)),
        fork_server_descriptors=sum(map(_descriptors, servers)),
        workers=len(living),
        workers_mb=sum(sizes),
        largest_worker_mb=max(sizes, default=0),
        most_worker_descriptors=max(map(_descriptors, living), default=0),
        most_worker_threads=max(map(_threads, living), default=0),
        zombies=sum(_state(pid) == "Z" for pid in [*below, *workers]),
    )


def memory_of_tree(pid: int) -> float:
    """Megabytes that a process and all below it hold, what they share counted once."""
    pids = [pid, *(child for each in children(pid) for child in (each, *children(each)))]
    return sum(_proportional_mb(each) for each in {*pids})


def growth(samples: Sequence[Held], field: str) -> float:
    """By how much a straight line through the samples rises from the first to the last."""
    times = [sample.runs for sample in samples]
    values = [getattr(sample, field) for sample in samples]
    middle, mean = sum(times) / len(times), sum(values) / len(values)
    spread = sum((time - middle) ** 2 for time in times)
    if not spread:
        return 0.0
    slope = sum((time - middle) * (value - mean) for time, value in zip(times, values, strict=True)) / spread
    return float(slope * (times[-1] - times[0]))


def _private_mb(pid: int) -> float:
    """What only this process holds: proportional sizes change with the number of its siblings."""
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text("utf-8").splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024
    return 0.0


def _proportional_mb(pid: int) -> float:
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text("utf-8").splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
    return 0.0


def _descriptors(pid: int) -> int:
    with suppress(OSError):
        return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    return 0


def _threads(pid: int) -> int:
    with suppress(OSError):
        return sum(1 for _ in Path(f"/proc/{pid}/task").iterdir())
    return 0


def _command(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def _state(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
    return ""
