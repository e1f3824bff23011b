"""Question: what do 10,000 parked runs cost, how fast does one wake, and what do others notice when 1,000 wake at once?

    python -m benchmarks.parked

The script makes five calls, asks a person, and makes a sixth call, which may not be repeated. Some of the runs are
parked by the portal itself; the others are copies of their rows under new ids. Measured are

- memory of `mcp-code-portal serve` and all processes under it (goal: at most 300 MB), with and without parked runs;
- a wake, from a person's word until the sixth call is sent (goal: 20 ms), and until the run has ended;
- trivial scripts of a new caller while 1,000 runs that were approved in one transaction wake, beside the same before;
- 500 pairs of a yes from the portal and a no from another process at one moment: the first wins, the other is told.

Raw numbers go to benchmarks/results/parked.json.
"""

import argparse
import gc
import json
import os
import random
import secrets
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from benchmarks.journal import fsync_ms, write_manifest
from benchmarks.measuring import RESULTS, machine, percentile
from benchmarks.processes import cpu_by_role, memory_by_role, spent
from manifests.loader import load_manifest
from portal.app.composition import open_portal
from portal.base.caller import LOCAL
from portal.base.errors import RunsError
from portal.base.requests import ExecuteCode
from portal.cli.serve import OBJECTS_BETWEEN_COLLECTIONS
from portal.identity.approvers import Approvers, Decider
from portal.records.logs import configure_logs
from portal.records.store.records import StoredRun
from portal.records.store.run_tables import RunTables
from portal.records.store.sqlite import SqliteDatabase
from portal.runs.decisions import decide_call
from portal.server.portal import Portal
from upstreams.upstream import Upstream

SCRIPT = """
found = await asyncio.gather(*(safe.echo(number=n) for n in range(5)))
await portal.approve("go on?")
(await up.echo(number=len(found)))["number"]
"""
RESULT = 5
MEMORY_GOAL_MB, WAKE_GOAL_MS = 300, 20
REAL = 200
"""Runs that the portal parks itself."""

WAKES, STORM, PAIRS = 300, 1_000, 500
BATCH = 500
START_SECONDS = 120
LONGEST_SECONDS = 600


async def all_parked(portal: Portal, count: int) -> float:
    """Park runs until there are so many. Returns the seconds that a run took which the portal parked itself."""
    store, real = portal.runs.store_or_error(), min(REAL, count)
    began = time.perf_counter()
    runs = [
        (await portal.runs.start(portal.execution.profile, ExecuteCode(SCRIPT), LOCAL)).run_id
        for _ in range(real)
    ]
    while True:
        news = portal.runs.changes.news
        states = Counter(row.state for row in await store.read(partial(RunTables.listed, limit=real)))
        if states["waiting"] == real:
            break
        await news.wait()
    seconds = (time.perf_counter() - began) / real
    originals = [stored for run in runs if (stored := await store.read(partial(RunTables.load, run=run)))]
    for first in range(real, count, BATCH):
        numbers = range(first, min(first + BATCH, count))
        await store.write(partial(_copy, originals=[originals[number % real] for number in numbers]))
    return seconds


def _copy(file: RunTables, originals: Iterable[StoredRun]) -> None:
    for stored in originals:
        row = replace(stored.row, id=f"run_{secrets.token_hex(16)}")
        file.create(row, stored.head)
        for chunk in stored.chunks:
            file.advance(row.id, row.epoch, chunk=chunk)
        file.advance(row.id, row.epoch, calls=[replace(call, run=row.id) for call in stored.calls])
        file.park(row.id, row.epoch, [call.seq for call in stored.calls if call.state == "waiting"])


async def served_memory(manifest: Path) -> dict[str, float]:
    """Megabytes of a portal over stdio after its first script, by role, and the seconds until then."""
    command = [*("-m", "portal", "serve", "--config", str(manifest)), "--log-level", "error"]
    began = time.perf_counter()
    parameters = StdioServerParameters(command=sys.executable, args=command, env=dict(os.environ))
    async with Client(stdio_client(parameters)) as client:
        await client.call_tool("execute_code", {"code": "(await up.echo(number=1))['number']"})
        seconds = time.perf_counter() - began
        roles = memory_by_role(os.getpid())
    own = {role: size for role, size in roles.items() if role not in ("client", "upstream")}
    return {**own, "all_mb": round(sum(own.values()), 1), "first_answer_s": round(seconds, 1)}


async def until_ended(portal: Portal, runs: Collection[str]) -> None:
    store = portal.runs.store_or_error()
    with anyio.fail_after(LONGEST_SECONDS):
        while True:
            news = portal.runs.changes.news
            if not await store.read(partial(RunTables.epochs, runs=[*runs])):
                return
            await news.wait()


async def wakes(portal: Portal, runs: Sequence[str]) -> dict[str, Any]:
    """Milliseconds from a person's word until the run's next call is sent, and until it has ended."""
    sent: list[float] = []
    call = Upstream.call

    async def noted(upstream: Upstream, *parts: Any, **named: Any) -> Any:
        sent.append(time.perf_counter())
        return await call(upstream, *parts, **named)

    Upstream.call = noted  # type: ignore[assignment, method-assign]
    to_call, to_end = [], []
    before = cpu_by_role(os.getpid())
    for run in runs:
        began = time.perf_counter()
        await portal.runs.decide(run, None, Decider("a person"), is_approved=True)
        await until_ended(portal, [run])
        to_end.append((time.perf_counter() - began) * 1000)
        to_call.append((sent[-1] - began) * 1000)
        assert (await portal.runs.answer(run, None)).result == RESULT
    Upstream.call = call  # type: ignore[method-assign]
    assert len(sent) == len(runs), "a call before the wake was made again"
    computing = spent(before, cpu_by_role(os.getpid()), len(runs))
    return {
        "until the next call": spread(to_call),
        "until the end": spread(to_end),
        "computing_ms": computing,
    }


async def storm(portal: Portal, runs: Sequence[str]) -> dict[str, Any]:
    """A new caller's trivial scripts, before and while these runs wake."""
    alone, beside = [], []
    while len(alone) < WAKES:
        alone.append(await trivial_ms(portal))
    decide = partial(_approve_all, runs=runs)
    began = time.perf_counter()
    await portal.runs.store_or_error().write(decide, is_lasting=True)
    async with anyio.create_task_group() as tasks:

        async def call() -> None:
            while True:
                beside.append(await trivial_ms(portal))

        tasks.start_soon(call)
        portal.runs.changes.wake(runs[0])
        await until_ended(portal, runs)
        seconds = time.perf_counter() - began
        tasks.cancel_scope.cancel()
    for run in runs:
        assert (await portal.runs.answer(run, None)).result == RESULT
    return {
        "runs": len(runs),
        "seconds until all ended": round(seconds, 2),
        "scripts meanwhile": len(beside),
        "a trivial script, alone": spread(alone),
        "a trivial script, beside": spread(beside),
    }


def _approve_all(file: RunTables, runs: Sequence[str]) -> None:
    for run in runs:
        decide_call(file, run, None, Decider("a person"), Approvers(), is_approved=True)


async def trivial_ms(portal: Portal) -> float:
    began = time.perf_counter()
    answer = await portal.execution.run(ExecuteCode("1"))
    assert answer.status == "ok", answer
    return (time.perf_counter() - began) * 1000


async def races(portal: Portal, file: Path, runs: Sequence[str]) -> dict[str, int]:
    """Who won, the portal with its yes or the other process with its no, and what was wrong."""
    command = [sys.executable, "-m", "benchmarks.parked", "--deny", str(file)]
    won: Counter[str] = Counter()
    starting = partial(subprocess.Popen, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with await anyio.to_thread.run_sync(starting) as other:
        assert other.stdin is not None and other.stdout is not None
        await anyio.to_thread.run_sync(other.stdout.readline)
        for run in runs:
            other.stdin.write(f"{run}\n")
            other.stdin.flush()
            await anyio.sleep(random.random() * 0.002)  # neither is always the first
            try:
                await portal.runs.decide(run, None, Decider("the portal"), is_approved=True)
                ours = "won"
            except RunsError as error:
                ours = error.code
            theirs = (await anyio.to_thread.run_sync(other.stdout.readline)).strip()
            await until_ended(portal, [run])
            answer = await portal.runs.answer(run, None)
            code = answer.error.code if answer.error else ""
            found = {ours, theirs}
            if (ours, answer.result) == ("won", RESULT) and found <= {"won", "already_decided", "run_ended"}:
                won["the portal"] += theirs != "won"
                won["both"] += theirs == "won"
            elif (theirs, code) == ("won", "denied") and found <= {"won", "already_decided", "run_ended"}:
                won["the other process"] += 1
            else:
                won[f"wrong: {ours}, {theirs}, {answer.status} {code}"] += 1
        other.stdin.close()
    return dict(won)


def deny_what_comes(path: Path) -> None:
    """The other process: denies each run of stdin, as the command line does, and says what came of it."""
    file = RunTables(SqliteDatabase(path), None)
    print("ready", flush=True)
    for line in sys.stdin:
        time.sleep(random.random() * 0.004)
        try:
            with file.transaction(is_lasting=True):
                decide_call(file, line.strip(), None, Decider("another"), Approvers(), is_approved=False)
            print("won", flush=True)
        except RunsError as error:
            print(error.code, flush=True)
    file.close()


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def spread(values: Sequence[float]) -> dict[str, float]:
    return {"p50_ms": round(percentile(values, 0.5), 1), "p99_ms": round(percentile(values, 0.99), 1)}


async def measured(count: int, folder: Path) -> dict[str, Any]:
    manifest = write_manifest(folder, 1)
    found: dict[str, Any] = {"parked": count, "memory without": await served_memory(manifest)}
    loaded = load_manifest(manifest, {})
    say(json.dumps(found))
    async with open_portal(loaded, lambda line: None) as portal:
        await portal.sandbox()
        await portal.fleet.settled(START_SECONDS)
        found["ms each that the portal parked itself"] = round(await all_parked(portal, count) * 1000, 1)
    found["disk_mb"] = round((folder / "runs.sqlite").stat().st_size / 1e6, 1)
    found["memory with"] = await served_memory(manifest)
    async with open_portal(loaded, lambda line: None) as portal:
        await portal.sandbox()
        await portal.fleet.settled(START_SECONDS)
        rows = await portal.runs.store_or_error().read(partial(RunTables.listed, limit=count))
        runs = [row.id for row in rows if row.state == "waiting"]
        say(f"{len(runs)} are parked: waking one after the other")
        found["wakes"] = await wakes(portal, runs[:WAKES])
        say(json.dumps(found["wakes"]))
        found["races"] = await races(portal, folder / "runs.sqlite", runs[WAKES : WAKES + PAIRS])
        say(json.dumps(found["races"]))
        found["storm"] = await storm(portal, runs[WAKES + PAIRS : WAKES + PAIRS + STORM])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parked", type=int, default=10_000, help="at least 2,000")
    parser.add_argument("--deny", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.deny:
        deny_what_comes(options.deny)
        return
    configure_logs("error")
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)  # as `serve` does
    result = {"question": (__doc__ or "").splitlines()[0], "machine": machine(), "fsync": fsync_ms()}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = str(Path(folder) / "state")
        result |= anyio.run(measured, options.parked, Path(folder))
    print(json.dumps(result, indent=1))
    (RESULTS / "parked.json").write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    is_small = result["memory with"]["all_mb"] <= MEMORY_GOAL_MB
    is_quick = result["wakes"]["until the next call"]["p99_ms"] <= WAKE_GOAL_MS
    print(f"{MEMORY_GOAL_MB} MB: {'met' if is_small else 'missed'}")
    print(f"{WAKE_GOAL_MS} ms: {'met' if is_quick else 'missed'}")


if __name__ == "__main__":
    main()
