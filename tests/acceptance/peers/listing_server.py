"""An MCP server that lists what a file says: `listing_server.py FILE`, a JSON list of tools. Each call is noted.

Tools answer their arguments; `environ` answers the variable KEY, `fail` an error that repeats it.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, TextContent, Tool

FILE = Path(sys.argv[1])


def listed() -> list[Tool]:
    tools = [{"inputSchema": {"type": "object"}, **tool} for tool in json.loads(FILE.read_text())]
    return [Tool.model_validate(tool) for tool in tools]


async def list_tools(*_: Any) -> ListToolsResult:
    return ListToolsResult(tools=listed())


def note(tool: str) -> None:
    with FILE.with_suffix(".calls").open("a") as calls:
        calls.write(f"{tool}\n")


async def call_tool(_: Any, params: CallToolRequestParams) -> CallToolResult:
    note(params.name)
    key = os.environ.get("KEY", "")
    if params.name == "fail":
        return CallToolResult(content=[TextContent(type="text", text=f"refused {key}")], is_error=True)
    content = {"key": key} if params.name == "environ" else params.arguments or {}
    return CallToolResult(content=[], structured_content=content)


async def main() -> None:
    server: Server[Any] = Server("listing", on_list_tools=list_tools, on_call_tool=call_tool)
    print(f"started with {os.environ.get('KEY', '')}", file=sys.stderr, flush=True)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


anyio.run(main)
