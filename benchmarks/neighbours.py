"""Question: what does one caller wait longer while another one floods what they share?

    python -m benchmarks.neighbours [--probes 40] [--rounds 2] [--only NAME]

A portal (`serve --http`) with two tokens. For each shared thing, one caller keeps it as busy as it can, from many
connections at once; the other one sends trivial scripts that need the same thing, one after the other, by turns beside
the flood and alone. Goals, p50: at most 50 ms more; where the flood takes the cores themselves, at most 250 ms more;
no script of the other caller refused, failed, unchecked or lost. Client and upstream are on the same machine.

Raw numbers go to benchmarks/results/neighbours.json.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import anyio
import httpx2

from benchmarks.measuring import RESULTS, commit, free_port, machine, percentile, wait_for_port

COMMAND = str(Path(sys.executable).with_name("mcp-code-portal"))
TOKENS = FLOOD, NEIGHBOUR = "token-of-the-flood", "token-of-the-neighbour"
GOAL_MS, GOAL_OF_CORES_MS = 50, 250
HEADERS = {
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": "2026-07-28",
    "Mcp-Method": "tools/call",
    "Mcp-Name": "execute_code",
}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "neighbours", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
UNCHECKABLE = "class A: pass\ndef f(x):\n" + "".join(
    f"    if isinstance(x, A) or not isinstance(x, (A, int)) or callable(x): x = [x, {n}]\n"
    for n in range(300)
)
KEPT = "import random\nrandom.randbytes(3_000_000).hex()"
WAKES = "for _ in range(9): await portal.sleep(seconds=2)"
SLEEP, CALL = "import asyncio\nawait asyncio.sleep(1)", "(await up.echo(number=0))['number']"


@dataclass(frozen=True)
class Shared:
    """Something that callers share: who floods it does so with `at_once` scripts; the other one sends `probe`."""

    name: str
    at_once: int
    flood: str
    probe: str = "1"
    way: str = "script"
    """script, session or run: in the foreground, in a new session, in the background."""
    goal_ms: int = GOAL_MS


SHARED = (
    Shared("turns of runs", 100, SLEEP, way="run"),
    Shared(
        "runs that wake",
        100,
        WAKES,
        way="run",
        goal_ms=GOAL_OF_CORES_MS,
    ),
    Shared("sessions", 12, SLEEP, way="session"),
    Shared("type checker", 6, UNCHECKABLE + CALL, CALL),
    Shared("store, many writes", 16, f"for _ in range(20): {CALL}", CALL, goal_ms=GOAL_OF_CORES_MS),
    Shared("store, kept results", 16, KEPT, CALL, goal_ms=GOAL_OF_CORES_MS),
    Shared("workers, waiting", 100, SLEEP),
    Shared("workers, computing", 40, "sum(range(10**7))", goal_ms=GOAL_OF_CORES_MS),
)


class Caller:
    """Sends scripts, each a bit different from all others, so that nothing of it is cached."""

    def __init__(self, client: httpx2.AsyncClient, token: str) -> None:
        self._client = client
        self._token = {"Authorization": f"Bearer {token}"}
        self._numbers = itertools.count()

    async def send(self, code: str, way: str) -> dict[str, Any]:
        """The answer of a script, once it has ended."""
        code = f"{code}\n# {next(self._numbers)}"
        if way == "run":
            response = await self._client.post("/runs?wait=60", json={"code": code}, headers=self._token)
            answer: dict[str, Any] = response.json()
            return answer
        more = {"session": "new"} if way == "session" else {}
        parameters = {"name": "execute_code", "arguments": {"code": code, **more}, "_meta": META}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": parameters}
        response = await self._client.post("/mcp", json=message, headers=HEADERS | self._token)
        text = response.text
        if "event-stream" in response.headers["content-type"]:
            text = next(
                line[6:] for line in text.splitlines() if line.startswith("data: {") and '"result"' in line
            )
        return dict(json.loads(text)["result"]["structuredContent"])


async def probed(caller: Caller, shared: Shared, count: int, wrong: list[str]) -> list[float]:
    """Milliseconds that each probe took."""
    times = []
    for _ in range(count):
        began = perf_counter()
        answer = await caller.send(shared.probe, shared.way)
        times.append((perf_counter() - began) * 1000)
        if answer.get("status") != "ok" or any("not checked" in each for each in answer.get("notices", ())):
            wrong.append(str(answer)[:300])
    return times


async def measured(
    shared: Shared, flood: Caller, neighbour: Caller, probes: int, rounds: int
) -> dict[str, Any]:
    """Alone and beside the flood, by turns."""
    alone, beside, wrong, floods = list[float](), list[float](), list[str](), 0
    share = probes // rounds

    async def keep_busy() -> None:
        nonlocal floods
        while True:
            answer = await flood.send(shared.flood, shared.way)
            floods += 1
            if answer.get("status") not in ("ok", "error"):
                await anyio.sleep(0.1)  # at once would only take the cores

    for _ in range(rounds):
        await probed(neighbour, shared, 3, wrong)
        alone += await probed(neighbour, shared, share, wrong)
        async with anyio.create_task_group() as tasks:
            for _ in range(shared.at_once):
                tasks.start_soon(keep_busy)
            await anyio.sleep(2)
            beside += await probed(neighbour, shared, share, wrong)
            tasks.cancel_scope.cancel()
        await anyio.sleep(3)  # what was in the queues ends
    added = percentile(beside, 0.5) - percentile(alone, 0.5)
    row = {"alone": spread(alone), "beside": spread(beside), "goal_ms": shared.goal_ms}
    is_met = added <= shared.goal_ms and not wrong
    return {"shared": shared.name, **row, "scripts of the flood": floods, "wrong": wrong, "is_met": is_met}


def spread(times: list[float]) -> dict[str, float]:
    return {"p50_ms": round(percentile(times, 0.5), 1), "p95_ms": round(percentile(times, 0.95), 1)}


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[Callable[[str], Caller]]:
    """A portal, and its callers by token."""
    upstream = {"command": sys.executable, "args": ["-m", "benchmarks.echo_upstream"], "cwd": str(Path.cwd())}
    server = {"tokens": [{"token": token} for token in TOKENS], "output_tokens": 1000, "structured": True}
    runs = {"store": "runs.sqlite", "quota_mib": 1 << 20}
    path, port = folder / "portal.yaml", free_port()
    path.write_text(json.dumps({"upstreams": {"up": upstream}, "server": server, "runs": runs}), "utf-8")
    command = [COMMAND, "serve", "--config", str(path), "--http", f"127.0.0.1:{port}", "--log-level", "error"]
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)  # noqa: ASYNC220
    try:
        wait_for_port(port, seconds=60)
        limits = httpx2.Limits(max_connections=1000)
        url = f"http://127.0.0.1:{port}"
        async with httpx2.AsyncClient(base_url=url, timeout=120, limits=limits) as client:
            yield lambda token: Caller(client, token)
    finally:
        process.terminate()
        process.wait(60)


async def main(probes: int, rounds: int, only: str) -> None:
    rows = []
    for shared in (each for each in SHARED if only in each.name):
        # Each in a portal of its own: nothing is left of the flood before.
        with tempfile.TemporaryDirectory() as folder:
            async with served(Path(folder)) as caller:
                row = await measured(shared, caller(FLOOD), caller(NEIGHBOUR), probes, rounds)
        rows.append(row)
        alone, beside = row["alone"], row["beside"]
        print(
            f"{shared.name:>24}: p50 {alone['p50_ms']:.1f} ms alone, {beside['p50_ms']:.1f} beside; p95 "
            f"{alone['p95_ms']:.1f} and {beside['p95_ms']:.1f}; {len(row['wrong'])} wrong; goal of "
            f"{shared.goal_ms} ms more: {'met' if row['is_met'] else 'missed'}",
            flush=True,
        )
    question = (__doc__ or "").splitlines()[0]
    result = {"question": question, "machine": machine(), "commit": commit(), "rows": rows}
    if only:
        return
    (RESULTS / "neighbours.json").write_text(json.dumps(result, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--probes", type=int, default=40, help="of the other caller, alone and beside each flood"
    )
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", default="", help="what has this in its name; nothing is written")
    options = parser.parse_args()
    anyio.run(main, options.probes, options.rounds, options.only)
