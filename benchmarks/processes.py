"""The processes of what is measured: what CPU each has used, what memory each holds (Linux).

Where there is no /proc the numbers are missing, and the benchmarks go on without them.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

Sums = dict[str, float]
"""By role: what the processes of each role have or use together."""


def cpu_by_role(below: int) -> Sums:
    """Milliseconds of CPU that the process `below` and all under it have used so far.

    Of the threads that still live, to the microsecond: what /proc tells of whole processes comes in ticks of 10 ms.
    """
    return _sums(below, _cpu_ms)


def memory_by_role(below: int) -> Sums:
    """Megabytes (proportional set size) that the process `below` and all under it hold."""
    return {role: round(size, 1) for role, size in _sums(below, _memory_mb).items()}


def spent(before: Mapping[str, float], after: Mapping[str, float], rounds: int) -> Sums:
    """What each of `rounds` took, between two looks at what was used so far."""
    return {role: round((used - before.get(role, 0)) / rounds, 2) for role, used in after.items()}


def children(pid: int) -> list[int]:
    """The processes that the threads of a process started."""
    with suppress(OSError):
        lists = Path(f"/proc/{pid}/task").glob("*/children")
        return sorted(int(child) for children in lists for child in children.read_text("utf-8").split())
    return []


def family(pid: int) -> Iterator[int]:
    """The process and all processes under it."""
    yield pid
    for child in children(pid):
        yield from family(child)


def role(command: list[str]) -> str:
    """What a process is for, by its command line; what is none of the known ones is a server's "workers"."""
    marks = {
        "child_supervisor.py": "supervisors",  # before what it supervises, whose command line it carries
        "echo_upstream.py": "upstream",
        "registry_server.py": "upstream",
        "ty": "check",
        "serve": "portal",
    }
    names = [part.rpartition("/")[2] for part in command]
    return next((found for mark, found in marks.items() if mark in names), "workers")


def cpu_ms(pid: int) -> float:
    """Milliseconds of CPU that one process has used so far; 0 where there is no /proc, or once it has ended."""
    with suppress(OSError):
        return _cpu_ms(pid)
    return 0.0


def memory(pid: int) -> float:
    """Megabytes that one process holds; 0 where there is no /proc, or once it has ended."""
    with suppress(OSError):
        return round(_memory_mb(pid), 1)
    return 0.0


def _sums(below: int, measure: Callable[[int], float]) -> Sums:
    sums: Sums = {}
    for pid in family(below):
        with suppress(OSError):  # it may have ended meanwhile
            found = "client" if pid == below else role(_command(pid))
            sums[found] = sums.get(found, 0) + measure(pid)
    return sums


def _command(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")


def _cpu_ms(pid: int) -> float:
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text("utf-8").split()[0]) for thread in threads) / 1e6


def _memory_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text("utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
