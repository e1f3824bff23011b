"""Question: how long do calls to an upstream that is well take while another one beside it has a fault?

    python -m benchmarks.faults [FAULT ...]

The goal is under 1.5 times as long, at p50 and at p99, for every fault. A healthy stdio server is called one call after
the other, and the faulty one beside it, over and over, through one fleet. The rounds without a fault are taken between
those with one, because the machine changes. Raw numbers go to benchmarks/results/faults.json.

Second question (`--starts N`): how long do N upstream configurations take that start at once, how much memory, and how
long is a call to one that is ready kept waiting meanwhile?
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeAlias

import anyio
import structlog

from benchmarks.measuring import RESULTS, commit, machine, percentile
from manifests.upstream_sections import HttpUpstream, StdioUpstream
from tests.upstreams.faults import http_server
from tests.upstreams.faults.bench import STDIO_SERVER
from tests.upstreams.faults.http_server import FaultyHttpServer, acted, status
from upstreams.errors import UpstreamError
from upstreams.fleet import Fleet, open_fleet
from upstreams.upstream import Upstream

GOAL = 1.5
CALLS = 50
ROUNDS = 8
FAULTY_CALL_SECONDS = 0.5

STDIO_FAULTS = (
    "trickle",
    "hang_after_acting",
    "stop_reading",
    "crash_after_acting",
    "close_stdout",
    "garbage",
    "too_long",
    "too_many_values",
    "many_beginnings",
    "batch_of_nothing",
    "no_newline",
    "never_ending_line",
    "wrong_id",
    "answer_twice",
    "flood_answers",
    "flood_stderr",
    "flood_stderr_lines",
    "flood_stderr_blank",
    "flood_stdout",
    "flood_requests",
    "flood_progress",
    "storm_of_changes",
    "exit_at_start",
    "flood_at_start",
    "endless_pages",
)
HTTP_FAULTS: dict[str, http_server.Fault] = {
    "no fault, for comparison": http_server.Exchange.succeed,
    "HTTP 401": status("401 Unauthorized"),
    "HTTP 429": status("429 Too Many Requests"),
    "HTTP 503": status("503 Service Unavailable"),
    "hang": acted(http_server.hang),
    "reset": acted(http_server.reset),
    "reset in the body": acted(http_server.reset_in_the_body),
    "endless body": acted(http_server.body_that_never_ends),
    "compressed bomb": acted(http_server.compressed_bomb),
    "packed twice": acted(http_server.packed_twice),
    "packed and endless": http_server.packed_and_endless,
    "event stream and silence": acted(http_server.event_stream_and_silence),
    "event stream broken off": http_server.event_stream_broken_off,
    **{
        f"event stream of {name}": acted(http_server.flood_of_events(unit))
        for name, unit in http_server.EVENTS_OF_NOTHING.items()
    },
    "endless drops": acted(http_server.endless_drops),
    "trickled body": acted(http_server.trickled_body),
    "too many values": acted(http_server.too_many_values),
    "event with too many values": acted(http_server.event_with_too_many_values),
}
UNASKED: dict[str, http_server.Fault] = {
    f"unasked stream of {name}": http_server.flood_of_events(unit)
    for name, unit in http_server.EVENTS_OF_NOTHING.items()
}
Spec: TypeAlias = StdioUpstream | HttpUpstream
Call: TypeAlias = Callable[[], Awaitable[object]]


def stdio(fault: str, folder: Path) -> StdioUpstream:
    behaviour = json.dumps({"fault": fault, "log": str(folder / f"{fault}.log"), "always": True})
    return StdioUpstream(command=sys.executable, args=(str(STDIO_SERVER), behaviour))


@asynccontextmanager
async def faulty(name: str, folder: Path) -> AsyncIterator[Spec]:
    if name in STDIO_FAULTS:
        yield stdio(name, folder)
        return
    # In a process of its own, as servers are: what it does must not count as the portal's work.
    command = [sys.executable, "-m", "benchmarks.faults", "--serve", name]
    async with await anyio.open_process(command, stderr=None) as process:
        assert process.stdout
        url = (await process.stdout.receive()).decode().strip()
        yield HttpUpstream(url=url)
        process.kill()


async def serve(name: str) -> None:
    """One faulty HTTP server, until killed; tells its URL."""
    faulty_server = FaultyHttpServer(HTTP_FAULTS.get(name, http_server.Exchange.succeed), always=True)
    faulty_server.unasked = UNASKED.get(name)
    async with faulty_server.serving() as server:
        print(server.url, flush=True)
        await anyio.sleep_forever()


async def measure(fleet: Fleet) -> list[float]:
    """Milliseconds of calls to the healthy upstream, one after the other."""
    taken = []
    for number in range(CALLS):
        began = time.perf_counter()
        await fleet["healthy"].call("fine", {"n": number}, seconds=60)
        taken.append((time.perf_counter() - began) * 1000)
    return taken


async def provoke(fleet: Fleet) -> None:
    """Have the fault happen, one call after the other, as a script would that does not give up."""
    while True:
        for tool in ("act", "look"):
            with suppress(UpstreamError):
                await fleet["faulty"].call(tool, {}, seconds=FAULTY_CALL_SECONDS)
            # So that it is the fault that is measured, and not how many calls the portal takes.
            await anyio.sleep(0.02)


async def ratio(name: str) -> dict[str, float]:
    """p50 and p99 beside the fault, and as multiples of those without."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        quiet: list[float] = []
        beside: list[float] = []
        async with faulty(name, path) as spec:
            specs: dict[str, Spec] = {"healthy": stdio("none", path), "faulty": spec}
            async with open_fleet(specs, path, lambda upstream: None) as fleet:
                await fleet.settled(60)
                await measure(fleet)
                for _ in range(ROUNDS):
                    quiet += await measure(fleet)
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(provoke, fleet)
                        beside += await measure(fleet)
                        tasks.cancel_scope.cancel()
    numbers = {f"p{share:.0f}_ms": round(percentile(beside, share / 100), 2) for share in (50, 99)}
    ratios = {
        f"p{share:.0f}_times": round(percentile(beside, share / 100) / percentile(quiet, share / 100), 2)
        for share in (50, 99)
    }
    return {**numbers, **ratios}


async def start_at_once(count: int) -> dict[str, float]:
    """`count` stdio servers, of which every tenth hangs and every tenth ends; HTTP ones cost next to nothing."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        kinds = {0: "silent_at_start", 5: "exit_at_start"}
        specs: dict[str, Spec] = {"first": stdio("none", path)}
        for number in range(count - 1):
            fault = kinds.get(number % 10, "none")
            spec = stdio(fault, path)
            specs[f"u{number}"] = (
                spec.model_copy(update={"connect_seconds": 300}) if fault == "none" else spec
            )
        well = sum(kinds.get(number % 10) is None for number in range(count - 1)) + 1
        began = time.perf_counter()
        taken: list[float] = []
        ready: set[str] = set()
        all_ready = anyio.Event()

        def note(upstream: Upstream) -> None:
            if upstream.state.status == "ready":
                ready.add(upstream.name)
            if len(ready) == well:
                all_ready.set()

        async with open_fleet(specs, path, note) as fleet:

            async def call_the_first() -> None:
                while True:
                    at = time.perf_counter()
                    await fleet["first"].call("fine", {}, seconds=60)
                    taken.append((time.perf_counter() - at) * 1000)
                    await anyio.sleep(0.02)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call_the_first)
                await all_ready.wait()
                seconds = time.perf_counter() - began
                tasks.cancel_scope.cancel()
            memory = own_memory_mb()
        return {
            "upstreams": count,
            "ready": well,
            "seconds_until_all_that_work_are_ready": round(seconds, 1),
            "portal_mb": memory,
            "call_meanwhile_p50_ms": round(percentile(taken, 0.5), 1),
            "call_meanwhile_p99_ms": round(percentile(taken, 0.99), 1),
        }


def own_memory_mb() -> float:
    """Resident, of this process alone; on Linux."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * 4096 / 1e6, 1)


async def main(names: list[str], starts: int) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    results = {"machine": machine(), "commit": commit(), "goal_times": GOAL, "faults": {}, "starts": None}
    path = RESULTS / "faults.json"
    if starts:
        results["starts"] = await start_at_once(starts)
        print(results["starts"])
    for name in names:
        results["faults"][name] = numbers = await ratio(name)
        verdict = "" if max(numbers["p50_times"], numbers["p99_times"]) < GOAL else "  over the goal"
        print(f"{name:28} {numbers}{verdict}", flush=True)
    path.write_text(json.dumps(results, indent=1) + "\n")
    print(f"raw numbers: {path}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("faults", nargs="*", default=[*STDIO_FAULTS, *HTTP_FAULTS, *UNASKED])
    parser.add_argument("--starts", type=int, default=0)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        anyio.run(serve, options.serve)
    else:
        anyio.run(main, options.faults, options.starts)
