"""Question: what does a script cost through this portal, beside other portals that run scripts?

    python -m benchmarks.peers [--registries FILE] [--rounds 100] [--only NAME ...]

All systems stand in front of the same stdio upstream: first of it alone, then of the tools of recorded registries too,
served over HTTP. In one run they do the same tasks in turns, through an MCP client over stdio, each in its own idiom:
a trivial script, five upstream calls one after the other, five gathered; each answer is checked. Each is also looked
at alone: start to first answers, CPU and memory of its processes, tokens of what it shows to a model, and whether a
script sees what an earlier one left behind. Peers are installed into .cache/peers first, from PyPI and npm; the rest
takes under five minutes on an idle machine. Writes benchmarks/results/peers.json; with --only, or without registries,
it prints what it measured and writes nothing.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import anyio

from benchmarks.measuring import RESULTS, machine
from benchmarks.peers.alone import Row, fill_caches, measure_alone
from benchmarks.peers.direct import Direct
from benchmarks.peers.eryx import Eryx
from benchmarks.peers.executor import Executor
from benchmarks.peers.fastmcp import FastMCP
from benchmarks.peers.portal import Portal
from benchmarks.peers.report import print_setting
from benchmarks.peers.system import CannotError, Launch, System, Upstreams
from benchmarks.peers.turns import measure_in_turns
from benchmarks.portal import ECHO
from benchmarks.registries import REGISTRIES, read_tools, served

TOOLS = 150
"""So many tools at most stand behind a system in the second setting."""

NOT_MEASURED = {
    "UTCP code-mode": "its MCP server could not be had from npm, nor its sandbox, isolated-vm, built with Node 20",
    "pydantic-ai-harness": "runs inside an agent, and is no MCP server",
    "@cloudflare/codemode": "a library for Cloudflare Workers, and no MCP server by itself",
    "pctx, Bifrost, mcpproxy, ToolHive, Docker MCP Gateway": "programs that come from elsewhere than PyPI and npm",
    "elusznik's code execution bridge": "not on PyPI, and needs a container engine",
}


async def run(options: argparse.Namespace) -> None:
    report: Row = {"question": (__doc__ or "").splitlines()[0], "machine": machine(), "settings": []}
    if (load := os.getloadavg()[0]) > 1:
        print(f"The machine is busy (load {load:.1f}): these will not be its best numbers.", file=sys.stderr)
    is_whole = not options.only and options.registries.exists()
    recorded = choose(read_tools(options.registries)) if options.registries.exists() else {}
    for names in ([], list(recorded)) if recorded else ([],):
        with served(options.registries, names) as urls:
            tools = [tool for name in names for tool in recorded[name]]
            setting = await measure(Upstreams(ECHO, urls, tools), options)
        print_setting(setting)
        report["settings"].append(setting)
    report["not_measured"] = NOT_MEASURED
    if is_whole:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "peers.json").write_text(json.dumps(report, indent=1) + "\n", "utf-8")


def choose(registries: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """The first registries that together have at most `TOOLS` tools."""
    chosen: dict[str, list[Any]] = {}
    for name, tools in registries.items():
        if sum(map(len, chosen.values())) + len(tools) >= TOOLS:
            break
        chosen[name] = tools
    return chosen


async def measure(upstreams: Upstreams, options: argparse.Namespace) -> Row:
    began = time.monotonic()
    rows: list[Row] = []
    able: list[tuple[System, Launch]] = []
    for system in systems(options.only):
        row = {"system": system.name}
        try:
            launch = await anyio.to_thread.run_sync(system.prepare, upstreams)
            if not upstreams.urls:
                await fill_caches(system, launch)
            print(f"{system.name}: measuring it alone ...", file=sys.stderr)
            row |= asdict(system.about()) | await measure_alone(system, launch, upstreams)
            able.append((system, launch))
        except Exception as error:
            row["cannot"] = reason(error)
            print(f"{system.name}: {row['cannot']}", file=sys.stderr)
        rows.append(row)
    print("measuring all in turns ...", file=sys.stderr)
    times = await measure_in_turns(able, options.rounds)
    return {
        "servers": 1 + len(upstreams.urls),
        "tools": 1 + len(upstreams.recorded),
        "rounds": options.rounds,
        "seconds": round(time.monotonic() - began),
        "systems": [row | times.get(row["system"], {}) for row in rows],
    }


def systems(only: Sequence[str]) -> list[System]:
    known: list[System] = [Direct(), Portal(), FastMCP(), Eryx(), Executor()]
    return [system for system in known if not only or system.name in only]


def reason(error: BaseException) -> str:
    """In one line, of the first of the errors that a task group gathered."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = str(error).strip() or type(error).__name__
    return text if isinstance(error, CannotError) else f"{type(error).__name__}: {text[:300]}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--registries", type=Path, default=REGISTRIES)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME")
    anyio.run(run, parser.parse_args())


if __name__ == "__main__":
    main()
