"""An MCP server that hostile scripts are granted: it repeats its arguments, answers too much, or never."""

from typing import Any

import anyio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    TextContent,
    Tool,
    ToolAnnotations,
)

TOOLS = [
    Tool(name=name, input_schema={"type": "object"}, annotations=ToolAnnotations(read_only_hint=True))
    for name in ("git_log", "hangs", "long")
]


async def list_tools(*_: Any) -> ListToolsResult:
    return ListToolsResult(tools=TOOLS)


async def call_tool(_: Any, params: CallToolRequestParams) -> CallToolResult:
    if params.name == "hangs":
        await anyio.sleep_forever()
    if params.name == "long":
        return CallToolResult(content=[TextContent(type="text", text="x" * 6000)])
    return CallToolResult(content=[], structured_content=params.arguments or {})


async def main() -> None:
    server: Server[Any] = Server("git", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


anyio.run(main)
