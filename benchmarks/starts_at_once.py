"""How long many upstreams take that start at once, among them such as never answer."""

import tempfile
import time
from pathlib import Path
from typing import Final

import anyio

from benchmarks.beside_fault import Spec, stdio
from benchmarks.measuring import percentile
from tests.upstreams.peers import open_fleet
from upstreams.fleet import Fleet
from upstreams.upstream import Upstream

_KINDS: Final = {0: "silent_at_start", 5: "exit_at_start"}
"""By the last digit of their number."""


async def start_at_once(count: int) -> dict[str, float]:
    """`count` stdio servers, of which every tenth hangs and every tenth ends; HTTP ones cost next to nothing."""
    with tempfile.TemporaryDirectory() as folder:
        specs = _specs(count, Path(folder))
        well = sum(_KINDS.get(number % 10) is None for number in range(count - 1)) + 1
        began = time.perf_counter()
        taken: list[float] = []
        ready: set[str] = set()
        all_ready = anyio.Event()

        def note(upstream: Upstream) -> None:
            if upstream.state.status == "ready":
                ready.add(upstream.name)
            if len(ready) == well:
                all_ready.set()

        async with (
            open_fleet(specs, Path(folder), note) as fleet,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(_call_the_first, fleet, taken)
            await all_ready.wait()
            seconds = time.perf_counter() - began
            memory = _own_memory_mb()
            tasks.cancel_scope.cancel()
    return {
        "upstreams": count,
        "ready": well,
        "seconds_until_all_that_work_are_ready": round(seconds, 1),
        "portal_mb": memory,
        "call_meanwhile_p50_ms": round(percentile(taken, 0.5), 1),
        "call_meanwhile_p99_ms": round(percentile(taken, 0.99), 1),
    }


def _specs(count: int, folder: Path) -> dict[str, Spec]:
    specs: dict[str, Spec] = {"first": stdio("none", folder)}
    for number in range(count - 1):
        fault = _KINDS.get(number % 10, "none")
        spec = stdio(fault, folder)
        specs[f"u{number}"] = spec.model_copy(update={"connect_seconds": 300}) if fault == "none" else spec
    return specs


async def _call_the_first(fleet: Fleet, taken: list[float]) -> None:
    while True:
        at = time.perf_counter()
        await fleet["first"].call("fine", {}, seconds=60)
        taken.append((time.perf_counter() - at) * 1000)
        await anyio.sleep(0.02)


def _own_memory_mb() -> float:
    """Resident, of this process alone; on Linux."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * 4096 / 1e6, 1)
