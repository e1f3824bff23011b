"""What a start costs, the first one ever and a later one, and what a portal holds beyond its SDK."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import anyio
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from benchmarks import processes
from benchmarks.sandbox.workload import TRIVIAL, Measures, ms
from sandbox_runtime.aot import CACHE_VARIABLE

FIRST_RESULT = f"""
import asyncio
from manifests.grants import Limits
from sandbox_runtime.sandbox import open_sandbox

async def main():
    async with open_sandbox(progress=lambda text: None) as sandbox, sandbox.run(Limits(), str) as run:
        await run.prepare({TRIVIAL!r}, ())
        assert (await run.execute({{}}, None)).value == 2

asyncio.run(main())
"""
SDK_ALONE = """
import sys
import mcp, mcp.server.lowlevel, mcp.server.stdio
sys.stdout.write("ready\\n")
sys.stdout.flush()
sys.stdin.read()
"""
LATER_STARTS = 5


def starts() -> Measures:
    """Seconds of whole processes, from nothing to the first result and the end."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, CACHE_VARIABLE: cache}
        first = _process_ms(environment)
        later = sorted(_process_ms(environment) for _ in range(LATER_STARTS))
    return {
        "process from its first start ever to its end, with one result, ms": first,
        "process from a later start to its end, with one result, p50, ms": later[LATER_STARTS // 2],
    }


def _process_ms(environment: dict[str, str]) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", FIRST_RESULT], env=environment, check=True, timeout=300)
    return ms(started)


async def portal_memory() -> Measures:
    """Of a portal without upstreams that has run a script, less that of a process which imports what a server needs
    of the SDK; without the workers and the type checker.
    """
    with tempfile.TemporaryDirectory() as folder:
        manifest = Path(folder) / "portal.yaml"
        manifest.write_text("upstreams: {}\n", "utf-8")
        command = StdioServerParameters(
            command=sys.executable,
            args=["-m", "portal", "serve", "--config", str(manifest), "--log-level", "error"],
            env=dict(os.environ),
        )
        async with Client(stdio_client(command)) as client:
            with anyio.fail_after(60):
                await client.call_tool("execute_code", {"code": TRIVIAL})
            portal = processes.memory_by_role(os.getpid()).get("portal")
    sdk = await anyio.to_thread.run_sync(_sdk_memory)
    if portal is None or sdk is None:
        return {}
    return {"memory of the SDK alone, MB": sdk, "memory of the portal beyond the SDK, MB": portal - sdk}


def _sdk_memory() -> float | None:
    with subprocess.Popen(
        [sys.executable, "-c", SDK_ALONE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        return processes.memory_by_role(process.pid).get("client")
