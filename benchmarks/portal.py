"""Question: what does a script through the portal cost, with few and with many tools behind it?

    python -m benchmarks.portal [--registries FILE] [--servers 1 150 897 1576]

Everything goes through an MCP client over stdio: a trivial script (over Streamable HTTP, too) beside one direct call,
and five upstream calls in one script (one after the other, and gathered) beside five direct calls, all in turns. The
calls are of a tool that only reads, and of one that declares nothing, whose calls are journaled. `bare` is the floor of
both (benchmarks/bare_relay.py). Then start to first answers; memory of the portal and all its processes, just after the
last script and at rest, and a script that begins then. The servers behind the portal are recorded registries served
over HTTP, next to one stdio upstream that answers at once; beyond those that were recorded, the same again under other
names: 1,576 servers have 11,000 tools. Each portal starts twice: `cold` without compiled namespaces on disk, and then
with them. Writes benchmarks/results/portal.json.
"""

import argparse
import contextlib
import itertools
import json
import os
import shutil
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from benchmarks import processes
from benchmarks.measuring import RESULTS, free_port, in_turns, machine, percentile, wait_for_port
from benchmarks.registries import REGISTRIES, read_tools, served
from portal.catalog.check.language_server import REST_SECONDS
from sandbox_runtime.aot import default_cache

ROOT = Path(__file__).resolve().parent.parent
ECHO = [sys.executable, str(ROOT / "benchmarks" / "echo_upstream.py")]
READING = [*ECHO, "reads"]
BARE = [sys.executable, "-m", "benchmarks.bare_relay"]
# Quiet: a line about each script and call would bury the numbers.
PORTAL = [sys.executable, "-m", "portal", "serve", "--log-level", "warning"]
ROUNDS = 200
DEADLINE_SECONDS = 600

TRIVIAL = "1 + 1"
READS = "r = [await echo.read(number=i) for i in range(5)]\n[x['number'] for x in r]"
SEQUENTIAL = "r = [await echo.echo(number=i) for i in range(5)]\n[x['number'] for x in r]"
GATHERED = """import asyncio
r = await asyncio.gather(*[echo.echo(number=i) for i in range(5)])
[x['number'] for x in r]"""


@contextlib.asynccontextmanager
async def connected(command: list[str]) -> AsyncIterator[Client]:
    parameters = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
    async with Client(stdio_client(parameters)) as client:
        yield client


@contextlib.asynccontextmanager
async def connected_over_http(manifest: Path) -> AsyncIterator[Client]:
    """With a portal of its own, which has nothing else to do then: all that is behind it has started."""
    port = free_port()
    address = f"127.0.0.1:{port}"
    command = [*PORTAL, "--config", str(manifest), "--http", address]
    async with await anyio.open_process(command, stdout=None, stderr=None) as process:
        try:
            wait_for_port(port, seconds=DEADLINE_SECONDS)
            async with Client(f"http://{address}/mcp") as client:
                await whole_library(client)
                yield client
        finally:
            process.terminate()
            await process.wait()


async def spread(**actions: Callable[[], Awaitable[Any]]) -> dict[str, dict[str, float]]:
    """Milliseconds of each action, p50 and p99, in turns."""
    return {
        name: {"p50_ms": round(percentile(each, 0.5), 2), "p99_ms": round(percentile(each, 0.99), 2)}
        for name, each in (await in_turns(actions, ROUNDS)).items()
    }


async def once(action: Callable[[], Awaitable[Any]]) -> float:
    began = time.perf_counter()
    await action()
    return (time.perf_counter() - began) * 1000


async def execute(client: Client, code: str, wanted: object) -> None:
    answer = (await client.call_tool("execute_code", {"code": code})).structured_content
    if answer["result"] != wanted:
        sys.exit(f"wrong answer: {answer}")


async def called(client: Client, times: int) -> None:
    for number in range(times):
        await client.call_tool("echo", {"number": number})


async def measure(manifest: Path, servers: int) -> dict[str, Any]:
    row: dict[str, Any] = {"servers": servers, "cold_start_to_whole_library_ms": await cold_start(manifest)}
    began = time.perf_counter()

    def since_start() -> float:
        return round((time.perf_counter() - began) * 1000)

    async with connected([*PORTAL, "--config", str(manifest)]) as client:
        await client.list_tools()
        row["start_to_tools_list_ms"] = since_start()
        await execute(client, TRIVIAL, 2)
        row["start_to_first_script_ms"] = since_start()
        await client.call_tool("docs_search", {"query": "echo a number"})
        row["start_to_first_search_ms"] = since_start()
        functions = await whole_library(client)
        row["functions"] = functions
        row["start_to_whole_library_ms"] = since_start()
        async with connected(READING) as direct, connected([*BARE, str(manifest.parent)]) as bare:
            row |= await spread(
                trivial=lambda: execute(client, TRIVIAL, 2),
                one_direct_call=lambda: called(direct, 1),
                five_reads=lambda: execute(client, READS, [0, 1, 2, 3, 4]),
                five_calls=lambda: execute(client, SEQUENTIAL, [0, 1, 2, 3, 4]),
                five_calls_gathered=lambda: execute(client, GATHERED, [0, 1, 2, 3, 4]),
                five_direct_calls=lambda: called(direct, 5),
                bare_reads=lambda: bare.call_tool("five", {}),
                bare_calls=lambda: bare.call_tool("five", {"journaled": True}),
            )
        row |= await spread(search=lambda: client.call_tool("docs_search", {"query": "create an issue"}))
        row["memory_mb"] = own_memory()
        await anyio.sleep(2 * REST_SECONDS + 5)
        row["memory_at_rest_mb"] = own_memory()
        row["script_after_rest_ms"] = await once(lambda: execute(client, f"{SEQUENTIAL}\n", [0, 1, 2, 3, 4]))
    async with connected_over_http(manifest) as client:
        await execute(client, TRIVIAL, 2)
        row |= await spread(trivial_over_http=lambda: execute(client, TRIVIAL, 2))
    return row


async def cold_start(manifest: Path) -> float:
    """Milliseconds until a portal that has compiled nothing before has the whole library."""
    shutil.rmtree(default_cache(os.environ) / "library", ignore_errors=True)
    began = time.perf_counter()
    async with connected([*PORTAL, "--config", str(manifest)]) as client:
        await whole_library(client)
        elapsed = time.perf_counter() - began
        await execute(client, TRIVIAL, 2)  # so that the sandbox is compiled before its first script is timed
    return round(elapsed * 1000)


async def whole_library(client: Client) -> int:
    """Wait until nothing behind the portal is starting; gives the number of functions."""
    with anyio.fail_after(DEADLINE_SECONDS):
        while True:
            answer = (await client.call_tool("docs_search", {"query": ""})).structured_content
            if not any("is starting" in notice for notice in answer["notices"]):
                return int(answer["total"])
            await anyio.sleep(0.5)


def own_memory() -> dict[str, float]:
    """Megabytes of the portal and its processes, without the client and the upstreams that share the machine."""
    held = processes.memory_by_role(os.getpid())
    return {role: size for role, size in held.items() if role not in ("client", "upstream")}


def report(rows: list[dict[str, Any]], measured_on: dict[str, Any]) -> None:
    print(f"{'':32}" + "".join(f"{row['servers']:>7} servers" for row in rows))
    for key in (
        "functions",
        "start_to_tools_list_ms",
        "start_to_first_script_ms",
        "start_to_whole_library_ms",
        "cold_start_to_whole_library_ms",
    ):
        print(f"{key:32}" + "".join(f"{row[key]:>15,}" for row in rows))
    for key in (
        "trivial",
        "trivial_over_http",
        "one_direct_call",
        "five_reads",
        "five_calls",
        "five_calls_gathered",
        "five_direct_calls",
        "bare_reads",
        "bare_calls",
        "search",
    ):
        cells = (f"{row[key]['p50_ms']:.2f} / {row[key]['p99_ms']:.2f}" for row in rows)
        print(f"{key + ' p50/p99 ms':32}" + "".join(f"{cell:>15}" for cell in cells))
    for key in ("memory_mb", "memory_at_rest_mb"):
        print(f"{key:32}" + "".join(f"{sum(row[key].values()):>15,.0f}" for row in rows))
    print(f"{'script_after_rest_ms':32}" + "".join(f"{row['script_after_rest_ms']:>15,.0f}" for row in rows))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "portal.json").write_text(
        json.dumps({"machine": measured_on, "rows": rows}, indent=1) + "\n", "utf-8"
    )


def write_manifest(file: Path, urls: dict[str, str]) -> None:
    """`echo` over stdio, and the others at their URLs."""
    upstreams: dict[str, Any] = {name: {"url": url} for name, url in urls.items()}
    upstreams["echo"] = {"command": READING[0], "args": READING[1:]}
    manifest = {"upstreams": upstreams, "server": {"structured": True}}  # a program reads the answers
    file.write_text(json.dumps(manifest), "utf-8")  # JSON is YAML too


async def run(options: argparse.Namespace) -> None:
    folder = ROOT / ".cache"
    folder.mkdir(exist_ok=True)
    manifest = folder / "benchmark.yaml"
    measured_on = machine()  # before: afterwards the load is our own
    recorded = list(read_tools(options.registries)) if max(options.servers) > 1 else []
    os.environ["XDG_CACHE_HOME"] = str(folder / "benchmark")  # so that emptying it costs nobody else a start
    rows = []
    for count in options.servers:
        print(f"measuring with {count} servers ...", file=sys.stderr)
        names = list(itertools.islice(itertools.cycle(recorded), count - 1))
        with served(options.registries, names) as urls:
            write_manifest(manifest, urls)
            rows.append(await measure(manifest, count))
    report(rows, measured_on)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--registries", type=Path, default=REGISTRIES)
    parser.add_argument("--servers", type=int, nargs="*", default=[1, 150, 897, 1_576])
    anyio.run(run, parser.parse_args())


if __name__ == "__main__":
    main()
