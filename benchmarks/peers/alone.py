"""A system by itself: how it starts, what it holds and uses, what a model reads of it."""

import contextlib
import os
import statistics
import time
from collections.abc import AsyncIterator
from typing import Any

import anyio
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from benchmarks import processes
from benchmarks.peers.direct import Direct
from benchmarks.peers.system import CACHE, WANTED, Launch, System, Upstreams
from portal.base.tokens import compact, count_tokens

Row = dict[str, Any]
"""What is known of one system: JSON."""

TASK_SECONDS = 60
STARTS, START_SECONDS = 2, 10
"""A system that needed so long to its first calls is not started again."""
CPU_ROUNDS = 30
CPU_SECONDS = 2
NOT_ITS_OWN = ("client", "upstream")


class WrongAnswerError(Exception):
    """A system did not answer what it was asked for."""


@contextlib.asynccontextmanager
async def running(system: System, launch: Launch) -> AsyncIterator[Client]:
    logs = CACHE / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    parameters = StdioServerParameters(
        command=launch.command[0], args=launch.command[1:], env=dict(os.environ) | launch.env, cwd=logs
    )
    with (logs / f"{system.name}.txt").open("w") as log:
        async with Client(stdio_client(parameters, errlog=log)) as client:
            yield client


async def perform(system: System, client: Client, task: str) -> float:
    """Do one task and check the answer; gives milliseconds.

    Raises:
        WrongAnswerError: It is another.
        TimeoutError: There is none within `TASK_SECONDS`.
    """
    began = time.perf_counter()
    with anyio.fail_after(TASK_SECONDS):
        answer = await system.tasks.perform(client, task)
    taken = _ms_since(began)
    if answer != WANTED[task]:
        raise WrongAnswerError(f"wrong answer to {task}: {answer!r:.200}")
    return taken


async def measure_alone(system: System, launch: Launch, upstreams: Upstreams) -> Row:
    row: Row = {"start_ms": await _starts(system, launch)}
    async with running(system, launch) as client:
        row["tools"] = await system.count_tools(client) + _count_unseen(system, upstreams)
        row |= await _definitions(system, client, upstreams)
        row["keeps_state"] = await system.tasks.keeps_state(client)
        row["five_calls_cpu_ms"] = await _cpu(system, client)
        row["memory_mb"] = _own(processes.memory_by_role(os.getpid()))
    return row


async def fill_caches(system: System, launch: Launch) -> None:
    """Start it and let it answer once: the first start after an installation may compile for seconds."""
    async with running(system, launch) as client:
        await system.tasks.perform(client, min(system.tasks.names(), key=list(WANTED).index))


async def _starts(system: System, launch: Launch) -> dict[str, int]:
    began = time.perf_counter()
    starts = [await _start(system, launch)]
    while len(starts) < STARTS and _ms_since(began) < START_SECONDS * 1000:
        starts.append(await _start(system, launch))
    return {key: round(statistics.median(start[key] for start in starts)) for key in starts[0]}


async def _start(system: System, launch: Launch) -> dict[str, float]:
    """Milliseconds from its start to its first answers, one after the other."""
    began = time.perf_counter()
    times = {}
    async with running(system, launch) as client:
        await client.list_tools()
        times["tools_list"] = _ms_since(began)
        for task in ("trivial", "five_calls"):
            if task in system.tasks.names():
                await perform(system, client, task)
                times[task] = _ms_since(began)
    return times


async def _definitions(system: System, client: Client, upstreams: Upstreams) -> Row:
    """What a model reads before it does anything, in tokens of o200k_base."""
    shown = [tool.model_dump(by_alias=True) for tool in (await client.list_tools()).tools]
    if _count_unseen(system, upstreams):
        shown += upstreams.recorded
    keys = ("name", "description", "inputSchema")
    return {
        "shown_tools": len(shown),
        "definition_tokens": count_tokens(compact([{key: tool.get(key) for key in keys} for tool in shown])),
        "instruction_tokens": count_tokens(client.instructions or ""),
    }


def _count_unseen(system: System, upstreams: Upstreams) -> int:
    """Without a portal a model sees the tools of the other upstreams too, which the benchmark does not connect to."""
    return len(upstreams.recorded) if isinstance(system, Direct) else 0


async def _cpu(system: System, client: Client) -> dict[str, float]:
    """Milliseconds of CPU for five calls: of the client, the upstreams, and the system between them."""
    before, began, rounds = processes.cpu_by_role(os.getpid()), time.perf_counter(), 0
    while rounds < CPU_ROUNDS and _ms_since(began) < CPU_SECONDS * 1000:
        await perform(system, client, "five_calls")
        rounds += 1
    used = processes.spent(before, processes.cpu_by_role(os.getpid()), rounds)
    return {"system": _own(used)} | {role: used.get(role, 0.0) for role in NOT_ITS_OWN}


def _own(by_role: dict[str, float]) -> float:
    return round(sum(value for role, value in by_role.items() if role not in NOT_ITS_OWN), 2)


def _ms_since(began: float) -> float:
    return (time.perf_counter() - began) * 1000
