"""All systems at once, in turns: whatever else happens on the machine meets each of them alike."""

import contextlib
import random
import sys
from collections.abc import Sequence

import anyio
from mcp import Client

from benchmarks.measuring import percentile
from benchmarks.peers.alone import Row, perform, running
from benchmarks.peers.system import WANTED, Launch, System

SETTLE_SECONDS = 3
PAUSE_SECONDS = 0.01
"""Before each task, so that what one system clears up does not fall into the time of the next."""
WARM_UP_SHARE = 0.2
"""So many of the first turns do not count."""
BUDGET_SECONDS = 6
"""A system that has used so much time on a task takes no further turns in it."""
P99_TURNS = 80
"""Fewer turns have no 99th percentile."""

Times = dict[tuple[str, str], list[float]]
"""Milliseconds, by system and task."""


async def measure_in_turns(systems: Sequence[tuple[System, Launch]], rounds: int) -> dict[str, Row]:
    """What each task took each system, by the system's name."""
    async with contextlib.AsyncExitStack() as stack:
        clients = [
            (system, await stack.enter_async_context(running(system, launch))) for system, launch in systems
        ]
        for system, client in clients:
            await system.count_tools(client)  # waits for upstreams, where the system can tell
        await anyio.sleep(SETTLE_SECONDS)
        times = await _take_turns(clients, rounds)
    rows: dict[str, Row] = {system.name: {} for system, _ in systems}
    for (name, task), taken in times.items():
        rows[name][task] = _summary(taken[int(len(taken) * WARM_UP_SHARE) :])
    return rows


async def _take_turns(clients: list[tuple[System, Client]], rounds: int) -> Times:
    times: Times = {(system.name, task): [] for system, _ in clients for task in system.tasks.names()}
    order = random.Random(rounds)
    for number in range(rounds):
        for task in WANTED:
            # In another order each time, so that none always follows the same one.
            for system, client in order.sample(clients, len(clients)):
                taken = times.get((system.name, task))
                if taken is None or sum(taken) > BUDGET_SECONDS * 1000:
                    continue
                await anyio.sleep(PAUSE_SECONDS)
                taken.append(await perform(system, client, task))
        if number % 10 == 9:
            print(".", end="", flush=True, file=sys.stderr)
    print(file=sys.stderr)
    return times


def _summary(taken: list[float]) -> Row:
    row: Row = {"turns": len(taken), "p50_ms": round(percentile(taken, 0.5), 2)}
    if len(taken) >= P99_TURNS:
        row["p99_ms"] = round(percentile(taken, 0.99), 2)
    return row
