"""What every sandbox is asked to do, and how often. It runs in the others' environments, too: standard library only."""

import json
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from benchmarks.measuring import percentile

Measures = dict[str, float]

CLIENTS = 8
PAUSE_SECONDS = 0.004
"""Between two trivial scripts: as long as a sandbox may take to make the next instance ready."""
TRIVIAL = "1 + 1"
TRIVIAL_ROUNDS = 1000
THROUGHPUT_RUNS = 2400
CALLS = 1000
SLOW_CALLS = 50
SLOW_SECONDS = 0.05
LOOP = (
    "def f():\n    total = 0\n    for i in range(3_000_000):\n        total += i % 7\n    return total\nf()"
)

TRIVIAL_P50 = "trivial script, p50, ms"
TRIVIAL_P99 = "trivial script, p99, ms"
SEQUENTIAL = f"{CALLS:,} sequential calls, p50, us per call"
GATHERED = f"{CALLS:,} gathered calls, p50, us per call"
SLOW = f"{SLOW_CALLS} parallel calls of {SLOW_SECONDS * 1000:.0f} ms, p50, ms"
LARGE = "a 5 MB result filtered to 20 rows, p50, ms"
LOOP_MS = "loop of 3,000,000 rounds, p50, ms"
THROUGHPUT = f"trivial scripts per second, {CLIENTS} clients"
MEMORY = "private memory of a worker or an instance, MB"
START = "start to first result, ms"


def rows() -> list[dict[str, object]]:
    """5 MB as JSON."""
    return [
        {"id": i, "name": f"row {i}", "tags": ["a", "b"], "note": "x" * 130, "score": i / 7}
        for i in range(24_000)
    ]


def ms(started: float) -> float:
    return (time.perf_counter() - started) * 1000


async def median_ms(run: Callable[[], Awaitable[object]], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        await run()
        times.append(ms(started))
    return percentile(times, 0.5)


def latency(times: Sequence[float]) -> Measures:
    return {TRIVIAL_P50: percentile(times, 0.5), TRIVIAL_P99: percentile(times, 0.99)}


def private_mb(pid: int | str = "self") -> float | None:
    """What only this process holds and has written to; None where there is no /proc."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text("utf-8").splitlines()
    except OSError:
        return None
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty")) / 1000


def report(measures: Measures) -> None:
    """To the process that started this one."""
    print(json.dumps(measures), flush=True)
