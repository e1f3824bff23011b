"""Question: what does a script through the portal cost, with few and with many tools behind it?

    python -m benchmarks.portal [--registries FILE] [--servers 1 150 897]

Everything goes through an MCP client over stdio: a trivial script, five upstream calls in one script (one after the
other, and gathered) beside the same five calls made directly by the same client, start to first answers, memory of
the portal and all its processes. The servers behind the portal are recorded registries served over HTTP, next to one
stdio upstream that answers at once. Writes benchmarks/results/portal.json.
"""

import argparse
import contextlib
import gzip
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from benchmarks.measuring import RESULTS, free_port, machine, percentile, wait_for_port

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"
ECHO = [sys.executable, str(ROOT / "benchmarks" / "echo_upstream.py")]
ROUNDS = 200
DEADLINE_SECONDS = 300

TRIVIAL = "1 + 1"
SEQUENTIAL = "r = [await echo.echo(number=i) for i in range(5)]\n[x['number'] for x in r]"
GATHERED = """import asyncio
r = await asyncio.gather(*[echo.echo(number=i) for i in range(5)])
[x['number'] for x in r]"""


@contextlib.contextmanager
def registries(file: Path, count: int) -> Iterator[str]:
    """The first `count` recorded registries as running servers; gives their part of a manifest."""
    if count == 0:
        yield ""
        return
    port = free_port()
    command = [sys.executable, str(SHARED / "tools" / "registry_server.py"), str(file), "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for_port(port, seconds=60)
        yield "\n".join(
            f"  r{i}: {{url: 'http://127.0.0.1:{port}/{name}/mcp'}}"
            for i, name in enumerate(names(file, count))
        )
    finally:
        process.kill()
        process.wait()


def names(file: Path, count: int) -> list[str]:
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line)["server"] for line in lines]
    return [name for name in rows if "/" not in name][:count]


@contextlib.asynccontextmanager
async def connected(command: list[str]) -> AsyncIterator[Client]:
    parameters = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
    async with Client(stdio_client(parameters)) as client:
        yield client


async def timed(action: Callable[[], Awaitable[Any]], rounds: int = ROUNDS) -> dict[str, float]:
    """Milliseconds, p50 and p99, after a fifth as many rounds that do not count."""
    for _ in range(rounds // 5):
        await action()
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        await action()
        times.append((time.perf_counter() - began) * 1000)
    return {"p50_ms": round(percentile(times, 0.5), 2), "p99_ms": round(percentile(times, 0.99), 2)}


async def execute(client: Client, code: str, wanted: object) -> None:
    answer = (await client.call_tool("execute_code", {"code": code})).structured_content
    if answer["result"] != wanted:
        sys.exit(f"wrong answer: {answer}")


async def direct(client: Client) -> None:
    for number in range(5):
        await client.call_tool("echo", {"number": number})


async def measure(manifest: Path, servers: int) -> dict[str, Any]:
    began = time.perf_counter()
    row: dict[str, Any] = {"servers": servers}

    def since_start() -> float:
        return round((time.perf_counter() - began) * 1000)

    async with connected([sys.executable, "-m", "portal", "serve", "--config", str(manifest)]) as client:
        await client.list_tools()
        row["start_to_tools_list_ms"] = since_start()
        await execute(client, TRIVIAL, 2)
        row["start_to_first_script_ms"] = since_start()
        await client.call_tool("docs_search", {"query": "echo a number"})
        row["start_to_first_search_ms"] = since_start()
        functions = await whole_library(client, servers)
        row["functions"] = functions
        row["start_to_whole_library_ms"] = since_start()
        row["trivial"] = await timed(lambda: execute(client, TRIVIAL, 2))
        row["five_calls"] = await timed(lambda: execute(client, SEQUENTIAL, [0, 1, 2, 3, 4]))
        row["five_calls_gathered"] = await timed(lambda: execute(client, GATHERED, [0, 1, 2, 3, 4]))
        row["search"] = await timed(lambda: client.call_tool("docs_search", {"query": "create an issue"}))
        row["memory_mb"] = memory_of_children()
    async with connected(ECHO) as client:
        row["five_direct_calls"] = await timed(lambda: direct(client))
    return row


async def whole_library(client: Client, servers: int) -> int:
    """Wait until nothing behind the portal is starting; gives the number of functions."""
    with anyio.fail_after(DEADLINE_SECONDS):
        while True:
            answer = (await client.call_tool("docs_search", {"query": ""})).structured_content
            if not any("is starting" in notice for notice in answer["notices"]):
                return int(answer["total"])
            await anyio.sleep(0.5)


def memory_of_children() -> dict[str, float]:
    """Proportional set size of the portal and all processes below it, in megabytes (Linux)."""
    with contextlib.suppress(OSError):
        sizes: dict[str, float] = {}
        for pid in descendants(os.getpid()):
            name = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if any(b"echo_upstream" in part or b"registry_server" in part for part in name):
                continue
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text("utf-8")
            pss = next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
            kind = "portal" if b"portal" in name and b"serve" in name else "helpers"
            sizes[kind] = round(sizes.get(kind, 0) + pss / 1024, 1)
        return sizes
    return {}


def descendants(pid: int) -> Iterator[int]:
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text("utf-8").split():
        yield int(child)
        yield from descendants(int(child))


def report(rows: list[dict[str, Any]]) -> None:
    print(f"{'':28}" + "".join(f"{row['servers']:>7} servers" for row in rows))
    for key in (
        "functions",
        "start_to_tools_list_ms",
        "start_to_first_script_ms",
        "start_to_whole_library_ms",
    ):
        print(f"{key:28}" + "".join(f"{row[key]:>15,}" for row in rows))
    for key in ("trivial", "five_calls", "five_calls_gathered", "five_direct_calls", "search"):
        cells = (f"{row[key]['p50_ms']:.2f} / {row[key]['p99_ms']:.2f}" for row in rows)
        print(f"{key + ' p50/p99 ms':28}" + "".join(f"{cell:>15}" for cell in cells))
    print(f"{'memory MB':28}" + "".join(f"{sum(row['memory_mb'].values()):>15,.0f}" for row in rows))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "portal.json").write_text(
        json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n", "utf-8"
    )


async def run(options: argparse.Namespace) -> None:
    folder = ROOT / ".cache"
    folder.mkdir(exist_ok=True)
    manifest = folder / "benchmark.yaml"
    rows = []
    for count in options.servers:
        print(f"measuring with {count} servers ...", file=sys.stderr)
        with registries(options.registries, count - 1) as others:
            echo = f"  echo: {{command: {json.dumps(ECHO[0])}, args: [{json.dumps(ECHO[1])}]}}"
            manifest.write_text(f"upstreams:\n{echo}\n{others}\n", "utf-8")
            rows.append(await measure(manifest, count))
    report(rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--registries", type=Path, default=SHARED / "data" / "registries.jsonl.gz")
    parser.add_argument("--servers", type=int, nargs="*", default=[1, 150, 897])
    anyio.run(run, parser.parse_args())


if __name__ == "__main__":
    main()
