"""A client over stdio that tries out an installed portal, for scripts/release.

python scripts/release_client.py COMMAND HOME RESULT    starts it twice with HOME as its home, and writes what it saw
python scripts/release_client.py --time COMMAND...      prints how long a command takes
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, TextIO

import anyio
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import TextContent

MANIFEST = "server: {kernels: {javascript: true}}\n"
DEADLINE_SECONDS = 300

VERSIONS = """
import decimal, pyexpat, sqlite3, sys, zlib
{
    "CPython": sys.version.split()[0],
    "SQLite": sqlite3.sqlite_version,
    "zlib": zlib.ZLIB_RUNTIME_VERSION,
    "expat": pyexpat.EXPAT_VERSION.removeprefix("expat_"),
    "libmpdec": decimal.__libmpdec_version__,
}
"""
"""What the sandbox says of itself, for the SBOM."""


def try_out(command: Path, home: Path, result: Path) -> None:
    (home / "portal.yaml").write_text(MANIFEST)
    with (home / "stderr").open("w+") as stderr:
        first, versions = anyio.run(start, command, home, stderr)
        stderr.truncate(stderr.seek(0))  # what a first start tells
        second, _ = anyio.run(start, command, home, stderr)
        stderr.seek(0)
        assert all(line.startswith("{") for line in stderr), f"no line of the log: see {stderr.name}"
    told = f"a script's answer after {first:.1f} s, and after {second:.1f} s at the second start"
    result.write_text(json.dumps({"versions": versions, "told": told}))


async def start(command: Path, home: Path, stderr: TextIO) -> tuple[float, dict[str, str]]:
    """Seconds from the start of the command to the answer of a script, and that answer."""
    # What a desktop client gives: no compiler, no uv, no variables of this shell.
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
    parameters = StdioServerParameters(command=str(command), args=["serve"], env=environment, cwd=home)
    begun = time.monotonic()
    with anyio.fail_after(DEADLINE_SECONDS):
        async with Client(stdio_client(parameters, errlog=stderr)) as client:
            versions = await run(client, VERSIONS)
            seconds = time.monotonic() - begun
            assert await run(client, "[1, 2].map((n) => n * 2)", kernel="javascript") == [2, 4]
    return seconds, versions


async def run(client: Client, code: str, **arguments: Any) -> Any:
    answer = await client.call_tool("execute_code", {"code": code, **arguments})
    content = answer.content[0]
    assert isinstance(content, TextContent)
    assert not answer.is_error, content.text
    return json.loads(content.text)["result"]


def timed(command: list[str]) -> str:
    times = []
    for _ in range(5):
        begun = time.monotonic()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        times.append(time.monotonic() - begun)
    over = "" if min(times) <= 1 else ", which is more than the second that it may take"
    return f"{min(times):.2f} s at best, {max(times):.2f} s at worst of {len(times)}{over}"


if __name__ == "__main__":
    if sys.argv[1] == "--time":
        print(timed(sys.argv[2:]))
    else:
        try_out(*map(Path, sys.argv[1:4]))
