"""Question: what does the portal add to a call that the SDK makes anyway, when it is authorised and validated?

    python -m benchmarks.authorize

One upstream over stdio is called in turns: by the SDK's own client, and through the broker, which looks at rules,
conditions on arguments, budgets, flows and the tool's schema, keeps the ledger, and with `audit` writes two lines to a
file. Goal: at most 0.3 ms more at p50.
`decisions` is the time of `authorize()` alone. Raw numbers go to benchmarks/results/authorize.json.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from itertools import count
from pathlib import Path

import anyio
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from benchmarks.measuring import RESULTS, in_turns, machine, percentile
from manifests.loader import load_manifest
from manifests.manifest import Manifest
from portal.app.composition import open_portal
from portal.base.caller import LOCAL
from portal.calls.broker import Broker
from portal.calls.caller_upstreams import CallerUpstreams
from portal.calls.fetch import Fetchers
from portal.calls.pipeline import Pipeline
from portal.calls.run import Gateway, RunContext
from portal.catalog.authority import Authorization, Permit
from portal.library.observed import Observations
from portal.records.audit.audit import RunAudit, open_audit
from portal.records.ledger import Ledger
from portal.server.portal import Portal
from sandbox_runtime.call_port import ToolCall

ARGUMENTS = {"number": 7, "text": "reports/2026/11.md"}
GOAL_MS = 0.3
DECISIONS = 20_000

PLAIN = "capabilities: {}\n"
AUDITED = "audit: {to: audit.jsonl}\n"
RULED = """\
capabilities:
  tools:
    allow: ["*", {tool: up.echo, where: {text: {prefix: reports/}, number: {min: 0, max: 100}}}]
    deny: ["up.delete_*", {annotation: open_world}]
    budgets: [{tool: "up.*", calls: 1000000, per_minute: 1000000}]
  flows: [{from: other, not_to: up}]
"""


def manifest_of(folder: Path, capabilities: str) -> Manifest:
    program = {"command": sys.executable, "args": ["-m", "benchmarks.echo_upstream"], "cwd": str(Path.cwd())}
    upstreams = f"upstreams: {{up: {json.dumps(program)}, other: {{command: none, start: lazy}}}}\n"
    path = folder / "portal.yaml"
    path.write_text(upstreams + capabilities, "utf-8")
    return load_manifest(path, {})


async def calls_of(portal: Portal, audit: RunAudit) -> Pipeline:
    snapshot, authorization = await portal.catalog.fresh(), Authorization(portal.authority, set(), audit)
    own, observations = CallerUpstreams(portal.accounts, authorization.authority.manifest), Observations(None)
    gateway = Gateway(portal.accounts, Fetchers(lambda port: False), observations)
    broker = Broker(own, authorization, observations)
    return Pipeline(RunContext(gateway, snapshot, authorization, own, Ledger(), broker))


def decision_us(portal: Portal) -> float:
    """Microseconds of one `authorize()`, the median of batches."""
    function = portal.catalog.snapshot.library.functions["up.echo"]
    listed = portal.fleet["up"].tools
    authorization = Authorization(portal.authority, set())
    seqs = count(1)
    batches = []
    for _ in range(20):
        began = time.process_time()
        for _ in range(DECISIONS // 20):
            request = authorization.of_function(function, listed, lambda: ARGUMENTS, next(seqs))
            assert isinstance(authorization.authorize(request), Permit)
        batches.append((time.process_time() - began) / (DECISIONS // 20) * 1e6)
    return statistics.median(batches)


async def compared(sdk: Client, capabilities: str, rounds: int) -> tuple[dict[str, list[float]], float]:
    """The times of both ways, and of one decision."""
    with tempfile.TemporaryDirectory() as folder:
        manifest = manifest_of(Path(folder), capabilities)
        async with open_portal(manifest, lambda line: None, runs_scripts=False) as portal:
            await portal.fleet.settled(60, {"up"})
            audit = await open_audit(manifest)
            calls, numbers = await calls_of(portal, audit.run("run_bench", LOCAL, None)), count(1)

            async def bare() -> None:
                await sdk.call_tool("echo", ARGUMENTS)

            async def brokered() -> None:
                number = next(numbers)
                calls.open(number, "up.echo")
                outcome = await calls(ToolCall(number, "up.echo", dict(ARGUMENTS)))
                assert outcome.error is None, outcome.error

            # Computing of this process: what the upstream does, and what else the machine does, is in none of them.
            times = await in_turns({"SDK": bare, "portal": brokered}, rounds, time.process_time)
            return times, decision_us(portal)


SETTINGS = {"without rules": PLAIN, "with rules": RULED, "with rules and audit": RULED + AUDITED}


async def measured(rounds: int) -> dict[str, float]:
    program = ["-m", "benchmarks.echo_upstream"]
    server = StdioServerParameters(command=sys.executable, args=program, cwd=Path.cwd())
    numbers: dict[str, float] = {}
    async with Client(stdio_client(server)) as sdk:
        await sdk.list_tools()
        for name, capabilities in SETTINGS.items():
            times, decision = await compared(sdk, capabilities, rounds)
            medians = {way: percentile(values, 0.5) for way, values in times.items()}
            numbers[f"the SDK alone, beside it {name}, p50, ms of computing"] = medians["SDK"]
            numbers[f"through the broker {name}, p50, ms of computing"] = medians["portal"]
            numbers[f"more {name}, p50, ms of computing"] = medians["portal"] - medians["SDK"]
            numbers[f"one decision {name}, us"] = decision
    return {name: round(number, 3) for name, number in numbers.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2000)
    rounds = parser.parse_args().rounds
    numbers = anyio.run(measured, rounds)
    for name, number in numbers.items():
        print(f"{name:55} {number:8.3f}")
    worst = max(number for name, number in numbers.items() if name.startswith("more "))
    print(
        f"{worst:.3f} ms more at p50: {'within' if worst <= GOAL_MS else 'beyond'} the goal of {GOAL_MS} ms"
    )
    result = {
        "question": (__doc__ or "").splitlines()[0],
        "rounds": rounds,
        "machine": machine(),
        "numbers": numbers,
    }
    (RESULTS / "authorize.json").write_text(json.dumps(result, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
