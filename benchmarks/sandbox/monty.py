"""pydantic-monty's pool of worker processes; a program of its own, in an environment of its own.

Each script gets a new session of a worker. What scripts call are coroutines of this process, and rows come as objects.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pydantic_monty import AsyncMonty, ResourceLimits  # type: ignore[import-not-found]  # not in our environment

from benchmarks.sandbox import workload
from benchmarks.sandbox.workload import Measures, latency, median_ms, ms

WORKERS = 2
SEQUENTIAL = f"for i in range({workload.CALLS}):\n    await echo(i=i)\nNone"
GATHERED = f"import asyncio\nlen(await asyncio.gather(*[echo(i=i) for i in range({workload.CALLS})]))"
SLOW = f"import asyncio\nlen(await asyncio.gather(*[slow(i=i) for i in range({workload.SLOW_CALLS})]))"
LARGE = "found = await rows()\n[row for row in found if row['id'] % 1200 == 0]"


async def main() -> None:
    held = workload.rows()

    async def rows() -> list[dict[str, object]]:
        return held

    async def echo(i: int) -> dict[str, int]:
        return {"i": i}

    async def slow(i: int) -> dict[str, int]:
        await asyncio.sleep(workload.SLOW_SECONDS)
        return {"i": i}

    started = time.perf_counter()
    async with AsyncMonty(min_processes=WORKERS, max_processes=WORKERS) as pool:
        scripts = Scripts(pool, {"echo": echo, "slow": slow, "rows": rows})
        assert await scripts.run(workload.TRIVIAL) == 2
        measures: Measures = {workload.START: ms(started)}
        measures |= latency(await scripts.trivial_times())
        measures[workload.THROUGHPUT] = await scripts.throughput()
        sizes = [size for pid in _children() if (size := workload.private_mb(pid)) is not None]
        if sizes:
            measures[workload.MEMORY] = sum(sizes) / len(sizes)
        measures |= {
            workload.SEQUENTIAL: await scripts.median(SEQUENTIAL, 5) / workload.CALLS * 1000,
            workload.GATHERED: await scripts.median(GATHERED, 5) / workload.CALLS * 1000,
            workload.SLOW: await scripts.median(SLOW, 10),
            workload.LARGE: await scripts.median(LARGE, 7),
            workload.LOOP_MS: await scripts.median(workload.LOOP, 3),
        }
    workload.report(measures)


class Scripts:
    """Runs scripts in the pool."""

    def __init__(self, pool: AsyncMonty, functions: Mapping[str, Callable[..., object]]) -> None:
        self._pool = pool
        self._functions = dict(functions)
        self._limits = ResourceLimits(
            max_feed_duration_secs=60, max_memory=256 << 20, max_suspensions=100_000
        )

    async def run(self, script: str) -> object:
        async with self._pool.checkout(limits=self._limits) as session:
            return await session.feed_run(script, external_lookup=self._functions)

    async def median(self, script: str, rounds: int) -> float:
        return await median_ms(lambda: self.run(script), rounds)

    async def trivial_times(self) -> list[float]:
        times = []
        for _ in range(workload.TRIVIAL_ROUNDS):
            await asyncio.sleep(workload.PAUSE_SECONDS)
            started = time.perf_counter()
            await self.run(workload.TRIVIAL)
            times.append(ms(started))
        return times

    async def throughput(self) -> float:
        async def client() -> None:
            for _ in range(workload.THROUGHPUT_RUNS // workload.CLIENTS):
                await self.run(workload.TRIVIAL)

        started = time.perf_counter()
        await asyncio.gather(*(client() for _ in range(workload.CLIENTS)))
        return workload.THROUGHPUT_RUNS / (time.perf_counter() - started)


def _children() -> list[int]:
    lists = Path("/proc/self/task").glob("*/children")
    return [int(child) for children in lists for child in children.read_text("utf-8").split()]


if __name__ == "__main__":
    asyncio.run(main())
