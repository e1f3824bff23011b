"""The limit: the same scripts through `exec` in one process, with nothing between them and it. A program of its own."""

import ast
import asyncio
import inspect
import json
import time

from benchmarks.sandbox import workload
from benchmarks.sandbox.workload import Measures, latency, median_ms, ms

SEQUENTIAL = f"for i in range({workload.CALLS}):\n    await echo(i=i)\nNone"
GATHERED = f"import asyncio\nlen(await asyncio.gather(*[echo(i=i) for i in range({workload.CALLS})]))"
SLOW = f"import asyncio\nlen(await asyncio.gather(*[slow(i=i) for i in range({workload.SLOW_CALLS})]))"
LARGE = "import json\nrows = json.loads(await rows())\n[row for row in rows if row['id'] % 1200 == 0]"


async def main() -> None:
    text = json.dumps(workload.rows())

    async def rows() -> str:
        return text

    async def echo(i: int) -> dict[str, int]:
        return {"i": i}

    async def slow(i: int) -> dict[str, int]:
        await asyncio.sleep(workload.SLOW_SECONDS)
        return {"i": i}

    async def run(script: str) -> object:
        return await execute(script, {"echo": echo, "slow": slow, "rows": rows})

    times = []
    for _ in range(workload.TRIVIAL_ROUNDS):
        started = time.perf_counter()
        assert await run(workload.TRIVIAL) == 2
        times.append(ms(started))
    started = time.perf_counter()
    for _ in range(workload.THROUGHPUT_RUNS):
        await run(workload.TRIVIAL)
    measures: Measures = {
        **latency(times),
        workload.THROUGHPUT: workload.THROUGHPUT_RUNS / (time.perf_counter() - started),
        workload.SEQUENTIAL: await median_ms(lambda: run(SEQUENTIAL), 5) / workload.CALLS * 1000,
        workload.GATHERED: await median_ms(lambda: run(GATHERED), 5) / workload.CALLS * 1000,
        workload.SLOW: await median_ms(lambda: run(SLOW), 10),
        workload.LARGE: await median_ms(lambda: run(LARGE), 7),
        workload.LOOP_MS: await median_ms(lambda: run(workload.LOOP), 3),
    }
    workload.report(measures)


async def execute(script: str, names: dict[str, object]) -> object:
    """The value of the last expression."""
    tree = ast.parse(script)
    last = tree.body.pop()
    assert isinstance(last, ast.Expr)
    value: object = None
    for piece, mode in ((tree, "exec"), (ast.Expression(last.value), "eval")):
        value = eval(compile(piece, "script", mode, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        if inspect.isawaitable(value):
            value = await value
    return value


if __name__ == "__main__":
    asyncio.run(main())
