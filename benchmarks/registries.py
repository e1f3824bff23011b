"""Recorded tool registries as running MCP servers, from ../shared, which is not part of this repository."""

import contextlib
import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.measuring import free_port, wait_for_port

REGISTRIES = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "registries.jsonl.gz"


@contextlib.contextmanager
def served(file: Path, names: list[str]) -> Iterator[dict[str, str]]:
    """The named registries, served over Streamable HTTP: `r0`, `r1`, ... and the URL of each."""
    if not names:
        yield {}
        return
    port = free_port()
    server = file.resolve().parent.parent / "tools" / "registry_server.py"
    command = [sys.executable, str(server), str(file), "--port", str(port), "--only", *names]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for_port(port, seconds=60)
        yield {f"r{i}": f"http://127.0.0.1:{port}/{name}/mcp" for i, name in enumerate(names)}
    finally:
        process.kill()
        process.wait()


def read_tools(file: Path) -> dict[str, list[Any]]:
    """The tools of each recorded server, in the file's order; without those whose name is no path segment."""
    if not file.exists():
        sys.exit(f"There are no recorded registries at {file}: pass --registries FILE.")
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return {row["server"]: row["tools"] for row in rows if "/" not in row["server"]}
