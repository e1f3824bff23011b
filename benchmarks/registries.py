"""Recorded tool registries, from ../shared, which is not part of this repository; also as running MCP servers."""

import contextlib
import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.measuring import free_port, wait_for_port
from manifests.names import namespace_of
from portal.library.library import LibrarySource
from upstreams.tools import RecordedTool

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


def read_sources(file: Path) -> list[LibrarySource]:
    """Every recorded server as the library sees an upstream; of two with one namespace, the second gets a number."""
    if not file.exists():
        sys.exit(f"There are no recorded registries at {file}: pass --registries FILE.")
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    taken: dict[str, int] = {}
    sources = []
    for row in rows:
        namespace = namespace_of(row["server"])
        taken[namespace] = taken.get(namespace, 0) + 1
        number = f"_{taken[namespace]}" if taken[namespace] > 1 else ""
        tools = [_recorded(tool) for tool in row["tools"]]
        sources.append(LibrarySource(row["server"], namespace + number, row["description"] or "", tools))
    return sources


def _recorded(tool: dict[str, Any]) -> RecordedTool:
    return RecordedTool(
        name=tool["name"],
        description=tool.get("description") or "",
        input_schema=tool["inputSchema"],
        output_schema=tool.get("outputSchema"),
        annotations=tool.get("annotations") or {},
        title=tool.get("title"),
    )
