"""What every benchmark needs: where raw results go, what machine this is, percentiles, a free port."""

import os
import platform
import socket
import subprocess
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results"


def machine() -> dict[str, str | int | float | None]:
    """What is measured on, and how busy it is right now with other things (`load`: of the last minute)."""
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "mcp": version("mcp"),
        "wasmtime": version("wasmtime"),
        "date": time.strftime("%Y-%m-%d"),
    }


def commit() -> str:
    """The commit that is measured, with a + when the tree has changes."""
    return _told_by_git("rev-parse", "HEAD") + ("" if is_clean() else "+")


def is_clean() -> bool:
    """Whether the tree is that of its commit, but for results: those of one benchmark are no change to the next."""
    return not _told_by_git(
        "status", "--porcelain", "--untracked-files=no", "--", ".", ":!benchmarks/results"
    )


def _told_by_git(*question: str) -> str:
    command = ["git", "-C", str(Path(__file__).resolve().parents[1]), *question]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


async def in_turns(
    actions: Mapping[str, Callable[[], Awaitable[object]]], rounds: int
) -> dict[str, list[float]]:
    """Milliseconds of each action, after a fifth as many rounds that do not count.

    The actions take turns at being the first.
    """
    times: dict[str, list[float]] = {name: [] for name in actions}
    order = deque(actions)
    for number in range(-rounds // 5, rounds):
        order.rotate(-1)
        for name in order:
            began = time.perf_counter()
            await actions[name]()
            if number >= 0:
                times[name].append((time.perf_counter() - began) * 1000)
    return times


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0 to 1) of `values` lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int, *, seconds: float) -> None:
    """Return when something listens on the port of loopback.

    Raises:
        TimeoutError: Nothing does within `seconds`.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise TimeoutError(f"nothing listens on port {port} after {seconds:g} s") from None
            time.sleep(0.05)
        else:
            return
