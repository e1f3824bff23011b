"""A portal's fleet in a process of its own: a healthy upstream, and one with a fault beside it, which is provoked.

    python -m benchmarks.beside_fault

Each line of its input names a fault, or that there is none, and it says when that is there. Then each empty line is
answered with the milliseconds of calls to the healthy upstream, and any other ends the fleet, which it says, too.
"""

import json
import logging
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, TypeAlias

import anyio
import anyio.to_thread
import structlog

from benchmarks import faulty_http
from manifests.portal_manifest import HttpUpstream, StdioUpstream
from tests.upstreams.peers import RAW_SERVER, open_fleet
from upstreams.errors import UpstreamError
from upstreams.fleet import Fleet

FAULTY_CALL_SECONDS: Final = 0.5
SECONDS: Final = 0.6
"""Of calls that are measured in one go: so that a faulty call is given up among them."""

CALLS_TO_WARM_UP: Final = 5
NOTHING: Final = "no other upstream"
NO_FAULT: Final = "no fault, over stdio"
AT_ONCE: Final = "16 at once: "
"""Before the name of a fault: so many calls provoke it side by side."""

CALLS_AT_ONCE: Final = 16

Spec: TypeAlias = StdioUpstream | HttpUpstream


def stdio(fault: str, folder: Path) -> StdioUpstream:
    behaviour = json.dumps({"fault": fault, "journal": str(folder / f"{fault}.log"), "always": True})
    return StdioUpstream(command=sys.executable, args=(str(RAW_SERVER), behaviour))


async def measure(fleet: Fleet, callers: int) -> list[float]:
    """Milliseconds of calls to the healthy upstream, one after the other, while so many provoke the fault.

    None of their calls is under way before or behind it: that a process is halted must not be taken for a fault.
    """
    async with anyio.create_task_group() as tasks:
        is_over = anyio.Event()
        for _ in range(callers):
            tasks.start_soon(_provoke, fleet, is_over)
        milliseconds = await _call_healthy(fleet)
        is_over.set()
    return milliseconds


async def _call_healthy(fleet: Fleet) -> list[float]:
    taken = []
    end = time.perf_counter() + SECONDS
    while (began := time.perf_counter()) < end:
        await fleet["healthy"].call("fine", {"n": len(taken)}, seconds=60)
        taken.append((time.perf_counter() - began) * 1000)
    return taken[CALLS_TO_WARM_UP:]


@asynccontextmanager
async def open_beside(name: str) -> AsyncIterator[Fleet]:
    """A healthy upstream, with the faulty one."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        async with _faulty(name, path) as specs:
            specs["healthy"] = stdio("none", path)
            async with open_fleet(specs, path, lambda upstream: None) as fleet:
                await fleet.settled(60)
                yield fleet


@asynccontextmanager
async def _faulty(name: str, folder: Path) -> AsyncIterator[dict[str, Spec]]:
    name = name.removeprefix(AT_ONCE)
    if name == NOTHING:
        yield {}
    elif name not in {*faulty_http.FAULTS, *faulty_http.UNASKED}:
        yield {"faulty": stdio("none" if name == NO_FAULT else name, folder)}
    else:
        command = [sys.executable, "-m", "benchmarks.faulty_http", name]
        async with await anyio.open_process(command, stderr=None) as process:
            assert process.stdout
            yield {"faulty": HttpUpstream(url=(await process.stdout.receive()).decode().strip())}
            process.kill()


async def _provoke(fleet: Fleet, is_over: anyio.Event) -> None:
    """Have the fault happen, one call after the other, as a script would that does not give up."""
    while not is_over.is_set():
        for tool in ("act", "look"):
            with suppress(UpstreamError):
                await fleet["faulty"].call(tool, {}, seconds=FAULTY_CALL_SECONDS)
            # So that it is the fault that is measured, and not how many calls the portal takes.
            await anyio.sleep(0.02)


async def _line() -> str:
    return await anyio.to_thread.run_sync(sys.stdin.readline)


def _say(what: object) -> None:
    print(json.dumps(what), flush=True)


async def _beside(name: str) -> None:
    callers = 0 if name == NOTHING else CALLS_AT_ONCE if name.startswith(AT_ONCE) else 1
    async with open_beside(name) as fleet:
        await measure(fleet, callers)
        _say("open")
        while (line := await _line()) == "\n":
            _say(await measure(fleet, callers))
    if line:
        _say("closed")


async def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    logging.disable()
    while name := (await _line()).strip():
        await _beside(name)


if __name__ == "__main__":
    anyio.run(main)
