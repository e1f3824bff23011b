"""Question: what does the journal add to a script in the foreground, over the same script without one?

    python -m benchmarks.journal

Two portals in one process, one with a store of runs and one without, run each script in turns: one without calls, with
1 and with 20 gathered calls that may be repeated, and with as many that may not, which the journal has before they are
sent. Behind them are stdio upstreams that answer at once, with 1 and with 1,000 tools. Goals, at p50: at most 0.1 ms
more without unsafe calls, at most 2 ms with them.

`computing` is processor time of the portal's own process until after the answer, the store's thread included; `fsync`
is that of the disk alone, which each transaction before an unsafe call waits for; `on loop` is the share of the writes
that the event loop committed by itself. Raw numbers go to
benchmarks/results/journal.json.
"""

import argparse
import gc
import json
import os
import statistics
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio

from benchmarks.measuring import RESULTS, machine, percentile
from manifests.loader import load_manifest
from portal.app.composition import open_portal
from portal.base.requests import ExecuteCode
from portal.cli.serve import OBJECTS_BETWEEN_COLLECTIONS
from portal.records.logs import configure_logs
from portal.server.portal import Portal

TOOLS = (1, 1_000)
READING_GOAL_MS, UNSAFE_GOAL_MS = 0.1, 2.0
GATHERED = "len(await asyncio.gather(*(up.echo(number=n) for n in range(20))))"
SCRIPTS = {
    "no call": ("1", READING_GOAL_MS),
    "1 repeatable call": ("(await safe.echo(number=1))['number']", READING_GOAL_MS),
    "20 repeatable calls, gathered": (GATHERED.replace("up.", "safe."), READING_GOAL_MS),
    "1 unsafe call": ("(await up.echo(number=1))['number']", UNSAFE_GOAL_MS),
    "20 unsafe calls, gathered": (GATHERED, UNSAFE_GOAL_MS),
}
"""What they are, and the goal for what the journal may add."""

WARM_UP = 20
REST_SECONDS = 0.01
"""Between runs, so that what one portal still does after its answer does not delay the other."""

START_SECONDS = 120


def write_manifest(folder: Path, tools: int) -> Path:
    program = {
        "command": sys.executable,
        "args": ["-m", "benchmarks.echo_upstream", str(tools)],
        "cwd": str(Path.cwd()),
    }
    upstreams = {"up": program, "safe": {**program, "retries": {"allow": ["*"]}}}
    path = folder / "portal.yaml"
    path.write_text(json.dumps({"upstreams": upstreams, "runs": {"store": "runs.sqlite"}}), "utf-8")
    return path


async def measured(tools: int, rounds: int) -> list[dict[str, Any]]:
    """A row for each script."""
    with tempfile.TemporaryDirectory() as folder:
        manifest = load_manifest(write_manifest(Path(folder), tools), {})
        async with AsyncExitStack() as stack:
            opened = {
                "without": await stack.enter_async_context(
                    open_portal(manifest, lambda line: None, runs="unkept")
                ),
                "with": await stack.enter_async_context(open_portal(manifest, lambda line: None)),
            }
            for portal in opened.values():
                await portal.sandbox()
                await portal.fleet.settled(START_SECONDS)
            return [
                {"tools": tools, "script": name, "goal_ms": goal, **await in_turns(opened, code, rounds)}
                for name, (code, goal) in SCRIPTS.items()
            ]


async def in_turns(portals: dict[str, Portal], code: str, rounds: int) -> dict[str, Any]:
    """What the script takes in each portal, and what more with the journal. The portals take turns at being first."""
    taken: dict[str, list[float]] = {name: [] for name in portals}
    computed: dict[str, list[float]] = {name: [] for name in portals}
    store = portals["with"].runs.store
    assert store is not None
    before = {**store.written}
    for number in range(rounds + WARM_UP):
        for name in sorted(portals, reverse=bool(number % 2)):
            cpu, began = time.process_time(), time.perf_counter()
            answer = await portals[name].execution.run(ExecuteCode(code))
            ms = (time.perf_counter() - began) * 1000
            await anyio.sleep(REST_SECONDS)
            cpu_ms = (time.process_time() - cpu) * 1000
            assert answer.status == "ok", answer
            if number >= WARM_UP:
                taken[name].append(ms)
                computed[name].append(cpu_ms)
    pairs = zip(taken["with"], taken["without"], strict=True)
    written = {who: count - before[who] for who, count in store.written.items()}
    return {
        "written": written,
        "on_loop_percent": round(100 * written["loop"] / max(1, sum(written.values()))),
        **{f"{name}_p50_ms": round(percentile(values, 0.5), 2) for name, values in taken.items()},
        **{f"{name}_p99_ms": round(percentile(values, 0.99), 2) for name, values in taken.items()},
        "more_p50_ms": round(percentile(taken["with"], 0.5) - percentile(taken["without"], 0.5), 3),
        "more_in_pairs_ms": round(statistics.median(one - other for one, other in pairs), 3),
        "more_computing_ms": round(
            percentile(computed["with"], 0.5) - percentile(computed["without"], 0.5), 3
        ),
    }


def fsync_ms(rounds: int = 200) -> dict[str, float]:
    """Milliseconds to bring 4 KiB to the disk on which the store is."""
    with tempfile.NamedTemporaryFile() as file:
        taken = []
        for _ in range(rounds):
            file.write(os.urandom(4096))
            file.flush()
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            taken.append((time.perf_counter() - began) * 1000)
    return {"p50_ms": round(percentile(taken, 0.5), 2), "p99_ms": round(percentile(taken, 0.99), 2)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=500)
    options = parser.parse_args()
    configure_logs("error")
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)  # as `serve` does
    result = {"question": (__doc__ or "").splitlines()[0], "rounds": options.rounds, "machine": machine()}
    result["fsync"] = fsync_ms()
    print(f"fsync: {result['fsync']}")
    result["rows"] = rows = [row for tools in TOOLS for row in anyio.run(measured, tools, options.rounds)]
    print(
        f"{'tools':>5}  {'script':30} {'without':>8} {'with':>8} {'more':>7} {'in pairs':>8} {'computing':>9} "
        f"{'on loop':>8}  goal"
    )
    for row in rows:
        met = "met" if row["more_p50_ms"] <= row["goal_ms"] else "missed"
        print(
            f"{row['tools']:5}  {row['script']:30} {row['without_p50_ms']:8.2f} {row['with_p50_ms']:8.2f} "
            f"{row['more_p50_ms']:7.3f} {row['more_in_pairs_ms']:8.3f} {row['more_computing_ms']:9.3f}  "
            f"{row['on_loop_percent']:7} %  {row['goal_ms']} {met}"
        )
    (RESULTS / "journal.json").write_text(json.dumps(result, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
