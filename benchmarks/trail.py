"""Question: what does the trail of runs cost a script, over the same script without one?

    python -m benchmarks.trail

Four portals over stdio, each a process with a store of its own, run a trivial script in blocks of 200, in turns: two
with `runs.trail: calls`, and two with `off`. Goal: the means of both kinds differ by no more than two portals of one
kind do, at p50 and at p99. A block takes longer than the 0.25 s after which rows are written, so each portal writes
during its own blocks. `computing` is processor time of the portal itself. Then two of them run 10,000 scripts in a
row: what they hold more after that (goal: at most 5 MB), and how many rows there are a second later. Raw numbers go to
benchmarks/results/trail.json.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections import deque
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from mcp import Client, StdioServerParameters

from benchmarks.measuring import RESULTS, commit, machine, percentile
from benchmarks.processes import children, cpu_ms, memory
from portal.records.store.run_tables import RunTables
from portal.records.store.sqlite import SqliteDatabase

PORTALS = {"calls": "calls", "off": "off", "calls again": "calls", "off again": "off"}
"""Their names, and their `runs.trail`: each twice, since two processes of one kind differ, too."""

BLOCK = 200
IN_A_ROW = 10_000
REST_SECONDS = 0.5
"""After a block, so that its last rows are written, too."""


def write_manifest(folder: Path, trail: str) -> Path:
    folder.mkdir()
    path = folder / "portal.yaml"
    path.write_text(json.dumps({"runs": {"store": "runs.sqlite", "trail": trail}}), "utf-8")
    return path


async def started(stack: AsyncExitStack, folder: Path, trail: str) -> tuple[Client, int]:
    """A portal over stdio, and its process."""
    manifest = await anyio.to_thread.run_sync(write_manifest, folder, trail)
    arguments = ["-m", "portal", "serve", "--log-level", "error", "--config", str(manifest)]
    server = StdioServerParameters(command=sys.executable, args=arguments, cwd=Path.cwd())
    before = {*children(os.getpid())}
    client = await stack.enter_async_context(Client(server))
    (process,) = {*children(os.getpid())} - before
    return client, process


async def ran(client: Client, times: int) -> list[float]:
    """The milliseconds of each of so many trivial scripts."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        result = await client.call_tool("execute_code", {"code": "1 + 1"})
        taken.append((time.perf_counter() - began) * 1000)
        assert not result.is_error, result
    return taken


async def measured(rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        async with AsyncExitStack() as stack:
            clients = {
                name: await started(stack, Path(place) / name, trail) for name, trail in PORTALS.items()
            }
            for client, _ in clients.values():
                await ran(client, BLOCK)
            times: dict[str, list[float]] = {name: [] for name in clients}
            computing = dict.fromkeys(clients, 0.0)
            order = deque(clients)
            for _ in range(max(1, rounds // BLOCK)):
                order.rotate(-1)
                for name in order:
                    client, process = clients[name]
                    before = cpu_ms(process)
                    times[name] += await ran(client, BLOCK)
                    await anyio.sleep(REST_SECONDS)
                    computing[name] += cpu_ms(process) - before
            found: dict[str, Any] = {
                name: told(values) | {"computing_ms": round(computing[name] / len(values), 3)}
                for name, values in times.items()
            }
            for share in ("p50_ms", "p99_ms", "computing_ms"):
                own, one, again, other = (found[name][share] for name in PORTALS)
                found[f"{share}_more"] = round((own + again - one - other) / 2, 3)
                found[f"{share}_noise"] = round(max(abs(own - again), abs(one - other)), 3)
            found["in_a_row"] = [
                await in_a_row(Path(place) / each, *clients[each]) for each in ("calls", "off")
            ]
            return found


def told(values: list[float]) -> dict[str, float]:
    return {"p50_ms": round(percentile(values, 0.5), 3), "p99_ms": round(percentile(values, 0.99), 3)}


async def in_a_row(folder: Path, client: Client, process: int) -> dict[str, Any]:
    """What the portal holds more after many runs, and its rows."""
    before, rows = memory(process), counted(folder)
    began = time.perf_counter()
    await ran(client, IN_A_ROW)
    seconds = time.perf_counter() - began
    await anyio.sleep(1)
    return {
        "portal": folder.name,
        "runs": IN_A_ROW,
        "rows": counted(folder) - rows,
        "seconds": round(seconds, 1),
        "more_mb": round(memory(process) - before, 1),
    }


def counted(folder: Path) -> int:
    tables = RunTables(SqliteDatabase(folder / "runs.sqlite"), None)
    try:
        return tables.history_counts(None)["all"]
    finally:
        tables.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=4_000)
    options = parser.parse_args()
    question = (__doc__ or "").splitlines()[0]
    result = {"question": question, "machine": machine(), "commit": commit(), "rounds": options.rounds}
    result |= anyio.run(measured, options.rounds)
    print(json.dumps(result, indent=1))
    (RESULTS / "trail.json").write_text(json.dumps(result, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
