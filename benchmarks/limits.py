"""Question: how long after its limit does a run go on, and how long does what a script sends hold everybody else up?

    python -m benchmarks.limits

The goal is 100 ms after a limit or a cancellation, and no single message that holds the portal's event loop for more
than about 50 ms. Wall time and cancellation are measured from outside, computing by the worker's own CPU clock: its
limit is one on CPU time. Raw numbers, the commit and the date go to benchmarks/results/limits.json, or `--out FILE`.
"""

import argparse
import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

from benchmarks.measuring import RESULTS, commit, machine, percentile
from manifests.grants import FileGrant, Limits
from sandbox_runtime.call_port import Outcome, ToolCall
from sandbox_runtime.grants.files import Workspaces, open_workspaces
from sandbox_runtime.grants.run_grants import NO_GRANTS, RunGrants
from sandbox_runtime.result import RunResult
from sandbox_runtime.sandbox import Sandbox, open_sandbox

ROUNDS = 20
WALL_SECONDS = 0.2
CPU_SECONDS = 0.2
ENOUGH = Limits(wall_seconds=60, cpu_seconds=60)
TICK_SECONDS = 0.001

RAW = "from wit_world.imports import host\n"
COMPUTING = {
    "busy loop": "while True: pass",
    "loop that catches everything": "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    "loop of tasks": "while True: await asyncio.sleep(0)",
    "catastrophic regular expression": "import re\nre.match('(a+)+$', 'a' * 40 + 'b')",
    "huge integer": "10 ** 10 ** 8",
    "huge integer to text": "import sys\nsys.set_int_max_str_digits(0)\nstr(7 ** 10 ** 7)",
    "sum of a range": "sum(range(10 ** 12))",
    "query without end": "import sqlite3\nsqlite3.connect(':memory:').execute('with recursive c(x) as "
    "(select 1 union all select x + 1 from c) select count(*) from c').fetchone()",
    "copies of 100 MB": "x = bytearray(100_000_000)\nwhile True: x[:50_000_000] = x[50_000_000:]",
    "hashes of 100 MB": "import hashlib\nx = bytes(100_000_000)\nwhile True: hashlib.sha256(x)",
    "searches in 100 MB": "x = bytes(100_000_000)\nwhile True: x.count(b'x')",
}
WAITING = {
    "time.sleep": "import time\ntime.sleep(600)",
    "select": "import select\nselect.select([], [], [], 600)",
    "asyncio.sleep": "await asyncio.sleep(600)",
    "a tool": "await bench.hangs()",
    "fifty tools": "await asyncio.gather(*[bench.hangs() for _ in range(50)])",
    "the host, by a raw call": RAW + "host.exchange('', -1)",
}
# Each sends as much as the limits let through, or more, in one message.
MESSAGES = {
    "text of 10 MB": "'x' * 10_000_000",
    "text of 10 MB, all escapes": "'\\n' * 5_000_000",
    "as many empty lists as a result may hold": "[[]] * 163_000",
    "as many objects": "[{'a': 1}] * 109_000",
    "as many numbers": "[1.5] * 327_000",
    "3,300,000 empty lists, refused": "[[]] * 3_300_000",
    "3,300,000 texts, refused": "[''] * 3_300_000",
    "24,000 rows of 5 MB": "[{'id': i, 'name': f'row {i}', 'note': 'x' * 150} for i in range(24_000)]",
    "block of 3,300,000 empty lists, left out": RAW
    + "host.emit('{\"type\": \"x\", \"x\": [' + '[],' * 3_300_000 + '0]}')",
    "a million blocks": RAW + 'for _ in range(10 ** 6): host.emit(\'{"type": "x"}\')',
    "arguments of 1 MB, all empty lists": "await bench.echo(a=[[]] * 65_000)\nNone",
    "arguments of 1 MB sixty times": "a = [1] * 120_000\n"
    "await asyncio.gather(*[bench.echo(a=a) for _ in range(60)], return_exceptions=True)\nNone",
    "20,000 calls that are refused": RAW
    + "host.exchange('\\n'.join(f'{i} bench.echo {{}}' for i in range(1, 20_000)), 5000)\nNone",
    "200,000 lines of one character": RAW + "for _ in range(200_000): host.print('x')",
}
FILE_BYTES = 10 << 20
FILES = {
    "four files of 10 MiB written": f'with open("WHO", "wb") as f: f.write(b"0123456789abcdef" * {FILE_BYTES // 16})',
    "four files of 10 MiB read": 'with open("WHO", "rb") as f: f.read()\nNone',
}
FILE_RUNS = 4

Overshoots: TypeAlias = Mapping[str, Sequence[float]]
Measure: TypeAlias = Callable[[Sandbox, str], Awaitable[float]]


@dataclass
class Port:
    """Answers calls with their arguments; `bench.hangs` is never answered, tells when it is there and when it ends."""

    hanging: asyncio.Event = field(default_factory=asyncio.Event)
    ended: float = 0.0

    async def __call__(self, call: ToolCall) -> Outcome:
        if call.function == "bench.hangs":
            self.hanging.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.ended = time.perf_counter()
        return Outcome(call.arguments)


async def main() -> None:
    options = _options()
    each = partial(_each, rounds=options.rounds)
    async with open_sandbox(workers=FILE_RUNS, progress=print) as sandbox:
        await beyond_wall(sandbox, WAITING["a tool"])  # the first imports what later ones find
        measures = {
            "ms beyond a limit of the wall clock": await each(sandbox, WAITING | COMPUTING, beyond_wall),
            "CPU ms beyond a limit on computing": await each(sandbox, COMPUTING, beyond_cpu),
            "ms from a cancellation to the end of the run": await each(
                sandbox, WAITING | COMPUTING, after_cancel
            ),
            "ms for which the event loop was held": await each(sandbox, MESSAGES, held),
            "ms for which it was held by files": await each(sandbox, FILES, held_by_files),
        }
    for title, kinds in measures.items():
        print(f"\n{title}: p50, max")
        for kind, values in kinds.items():
            print(f"{percentile(values, 0.5):9.1f} {max(values):9.1f}  {kind}")
    report = {
        "question": (__doc__ or "").splitlines()[0],
        "machine": machine(),
        "commit": commit(),
        "rounds": options.rounds,
        "limits": {"wall_seconds": WALL_SECONDS, "cpu_seconds": CPU_SECONDS},
        "measures": {
            title: {kind: _summary(values) for kind, values in kinds.items()}
            for title, kinds in measures.items()
        },
    }
    options.out.write_text(json.dumps(report, indent=2) + "\n")


async def _each(sandbox: Sandbox, scripts: Mapping[str, str], measure: Measure, rounds: int) -> Overshoots:
    return {kind: [await measure(sandbox, script) for _ in range(rounds)] for kind, script in scripts.items()}


async def beyond_wall(sandbox: Sandbox, script: str) -> float:
    limits = Limits(wall_seconds=WALL_SECONDS, cpu_seconds=60)
    result, seconds = await run(sandbox, script, limits, Port())
    assert result.error is not None and result.error.code == "wall_limit", result
    return (seconds - WALL_SECONDS) * 1000


async def beyond_cpu(sandbox: Sandbox, script: str) -> float:
    limits = Limits(wall_seconds=60, cpu_seconds=CPU_SECONDS)
    result, _ = await run(sandbox, script, limits, Port())
    assert result.error is not None and result.error.code == "cpu_limit", result
    return result.cpu_ms - CPU_SECONDS * 1000


async def after_cancel(sandbox: Sandbox, script: str) -> float:
    """To the end of the run, or of its calls if that is later."""
    port = Port()
    hang = "asyncio.ensure_future(bench.hangs())\nawait bench.echo()\n"
    task = asyncio.create_task(run(sandbox, hang + script, ENOUGH, port))
    await port.hanging.wait()
    await asyncio.sleep(0.02)
    cancelled = time.perf_counter()
    task.cancel()
    await asyncio.wait([task])
    return (max(time.perf_counter(), port.ended) - cancelled) * 1000


async def held(sandbox: Sandbox, script: str) -> float:
    async with watched() as delays:
        await run(sandbox, script, Limits(cpu_seconds=60, tool_calls=200), Port())
    return max(delays) * 1000


async def held_by_files(sandbox: Sandbox, script: str) -> float:
    with TemporaryDirectory() as folder:
        for who in range(FILE_RUNS):
            (Path(folder) / str(who)).write_bytes(bytes(FILE_BYTES))
        grant = FileGrant(workspace=folder, mode="write")
        async with open_workspaces(grant, Path(folder), str) as workspaces, watched() as delays:
            await asyncio.gather(
                *(
                    _run_with_files(sandbox, script.replace("WHO", str(who)), workspaces)
                    for who in range(FILE_RUNS)
                )
            )
    return max(delays) * 1000


async def _run_with_files(sandbox: Sandbox, script: str, workspaces: Workspaces) -> None:
    async with workspaces.files(None) as files:
        result, _ = await run(sandbox, script, ENOUGH, Port(), RunGrants(files=files))
    assert result.error is None, result


async def run(
    sandbox: Sandbox, script: str, limits: Limits, port: Port, grants: RunGrants = NO_GRANTS
) -> tuple[RunResult, float]:
    """The result, and the seconds from the moment it began to run."""
    async with sandbox.run(limits, str, grants=grants) as one:
        await one.prepare(script, ("bench",))
        started = time.perf_counter()
        result = await one.execute({}, port)
        return result, time.perf_counter() - started


@asynccontextmanager
async def watched() -> AsyncIterator[list[float]]:
    """How much later than asked for the event loop came back to a timer of a millisecond, in seconds."""
    delays = [0.0]

    async def watch() -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(TICK_SECONDS)
            delays.append(time.perf_counter() - began - TICK_SECONDS)

    watching = asyncio.create_task(watch())
    try:
        yield delays
        await asyncio.sleep(2 * TICK_SECONDS)
    finally:
        watching.cancel()


def _summary(values: Sequence[float]) -> dict[str, float]:
    return {"p50": round(percentile(values, 0.5), 2), "max": round(max(values), 2)}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of each script")
    parser.add_argument("--out", type=Path, default=RESULTS / "limits.json")
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main())
