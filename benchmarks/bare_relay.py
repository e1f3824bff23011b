"""What a portal cannot do without, and nothing else: the floor of five calls in one script.

python -m benchmarks.bare_relay FOLDER

An MCP server by the SDK, as a portal is one. Its tool `five` makes five calls of an upstream, one after the other.
Before each it exchanges a line with another process, as a portal does with the process that runs the script; with
`journaled` it commits a row to a SQLite file in FOLDER, so that it is on the disk before the call is sent. There is no
interpreter, no decision, no check, no ledger, and no SDK between it and its upstream.
"""

import asyncio
import json
import sqlite3
import sys
from pathlib import Path
from typing import Any

import anyio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)

ECHOES = "import sys\nfor line in sys.stdin.buffer:\n    sys.stdout.buffer.write(line)\n    sys.stdout.buffer.flush()"
"""The process that would run the script."""

SCHEMA = {"type": "object", "properties": {"journaled": {"type": "boolean"}}}


class Lines:
    """A process that is asked by lines, and answers each by one."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._to, self._from = process.stdin, process.stdout

    @classmethod
    async def start(cls, *command: str) -> "Lines":
        pipe = asyncio.subprocess.PIPE
        return cls(await asyncio.create_subprocess_exec(sys.executable, *command, stdin=pipe, stdout=pipe))

    def tell(self, line: bytes) -> None:
        self._to.write(line + b"\n")

    async def ask(self, line: bytes) -> bytes:
        self.tell(line)
        return await self._from.readline()

    async def call(self, number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        answer: dict[str, Any] = json.loads(await self.ask(json.dumps(message).encode()))
        return answer


async def main(folder: Path) -> None:
    script = await Lines.start("-c", ECHOES)
    upstream = await Lines.start("-m", "benchmarks.echo_upstream")
    client = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "bare", "version": "1"},
    }
    await upstream.call(0, "initialize", client)
    upstream.tell(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}')
    rows = sqlite3.connect(folder / "bare.sqlite", isolation_level=None)
    rows.executescript(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; DROP TABLE IF EXISTS calls;"
        "CREATE TABLE calls (number, arguments)"
    )

    async def list_tools(context: object, params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(
            tools=[Tool(name="five", description="Makes five calls.", input_schema=SCHEMA)]
        )

    async def call_tool(context: object, params: CallToolRequestParams) -> CallToolResult:
        is_journaled, numbers = (params.arguments or {}).get("journaled"), list[int]()
        await script.ask(b"prepare")
        for number in range(5):
            await script.ask(b"the next call")
            if is_journaled:
                rows.execute("INSERT INTO calls VALUES (?, ?)", (number, json.dumps({"number": number})))
            answer = await upstream.call(
                number + 1, "tools/call", {"name": "echo", "arguments": {"number": number}}
            )
            numbers.append(answer["result"]["structuredContent"]["number"])
        await script.ask(b"the last answer")
        return CallToolResult(content=[TextContent(type="text", text=json.dumps(numbers))])

    server: Server[dict[str, object]] = Server(
        "bare", version="1", on_list_tools=list_tools, on_call_tool=call_tool
    )
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]))
