"""pyeryx: CPython in wasm in this very process; a program of its own, in an environment of its own.

Each script gets a sandbox of its own, made before the time is taken, as a spare of a pool would be. What scripts call
are functions of this process; rows come as objects, and the value of a script is its variable `result`.
"""

import time
from concurrent.futures import ThreadPoolExecutor

import eryx  # type: ignore[import-not-found]  # not in our environment

from benchmarks.measuring import percentile
from benchmarks.sandbox import workload
from benchmarks.sandbox.workload import Measures, latency, ms

THREADS = 2
TRIVIAL = f"result = {workload.TRIVIAL}"
SEQUENTIAL = f"for i in range({workload.CALLS}):\n    await echo(i=i)"
GATHERED = (
    f"import asyncio\nresult = len(await asyncio.gather(*[echo(i=i) for i in range({workload.CALLS})]))"
)
SLOW = (
    f"import asyncio\nresult = len(await asyncio.gather(*[slow(i=i) for i in range({workload.SLOW_CALLS})]))"
)
LARGE = "found = await rows()\nresult = [row for row in found if row['id'] % 1200 == 0]"
LOOP = f"result = {workload.LOOP.rpartition(chr(10))[2]}"


def main() -> None:
    started = time.perf_counter()
    assert run(sandbox(), TRIVIAL) == 2
    measures: Measures = {workload.START: ms(started)}
    times = []
    for _ in range(workload.TRIVIAL_ROUNDS):
        ready = sandbox()
        time.sleep(workload.PAUSE_SECONDS)
        started = time.perf_counter()
        run(ready, TRIVIAL)
        times.append(ms(started))
    measures |= {
        **latency(times),
        workload.THROUGHPUT: throughput(),
        workload.SEQUENTIAL: median(SEQUENTIAL, 5) / workload.CALLS * 1000,
        workload.GATHERED: median(GATHERED, 5) / workload.CALLS * 1000,
        workload.SLOW: median(SLOW, 10),
        workload.LARGE: median(LARGE, 7),
        workload.LOOP_MS: median(workload.LOOP.rpartition("\n")[0] + "\n" + LOOP, 3),
    }
    workload.report(measures)


ROWS = workload.rows()


def rows() -> list[dict[str, object]]:
    return ROWS


def echo(i: int) -> dict[str, int]:
    return {"i": i}


async def slow(i: int) -> dict[str, int]:
    import asyncio

    await asyncio.sleep(workload.SLOW_SECONDS)
    return {"i": i}


def sandbox() -> eryx.Sandbox:
    limits = eryx.ResourceLimits(
        execution_timeout_ms=60_000, max_callback_invocations=100_000, max_memory_bytes=256 << 20
    )
    callbacks = [{"name": fn.__name__, "fn": fn} for fn in (echo, slow, rows)]
    return eryx.Sandbox(resource_limits=limits, callbacks=callbacks)


def run(ready: eryx.Sandbox, script: str) -> object:
    return ready.execute(script).result


def median(script: str, rounds: int) -> float:
    times = []
    for _ in range(rounds):
        ready = sandbox()
        started = time.perf_counter()
        run(ready, script)
        times.append(ms(started))
    return percentile(times, 0.5)


def throughput() -> float:
    started = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(lambda _: run(sandbox(), TRIVIAL), range(workload.THROUGHPUT_RUNS)))
    return workload.THROUGHPUT_RUNS / (time.perf_counter() - started)


if __name__ == "__main__":
    main()
