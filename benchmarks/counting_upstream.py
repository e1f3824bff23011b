"""An MCP server over HTTP that appends a line to a file for each effect.

    python -m benchmarks.counting_upstream PORT FILE

`effect` may not be repeated, `read` only reads, `put` is idempotent.
"""

import os
import sys
from typing import Any

import anyio
import uvicorn
from mcp.server.lowlevel import Server
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool, ToolAnnotations

ANYTHING = {"type": "object", "properties": {"n": {"type": "integer"}, "run": {"type": "string"}}}
TOOLS = [
    Tool(name="effect", input_schema=ANYTHING),
    Tool(name="read", input_schema=ANYTHING, annotations=ToolAnnotations(read_only_hint=True)),
    Tool(name="put", input_schema=ANYTHING, annotations=ToolAnnotations(idempotent_hint=True)),
]


def main() -> None:
    port, path = int(sys.argv[1]), sys.argv[2]
    effects = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def list_tools(context: Any, params: Any) -> ListToolsResult:
        return ListToolsResult(tools=TOOLS)

    async def call_tool(context: Any, params: Any) -> CallToolResult:
        arguments = params.arguments
        if params.name == "effect":
            os.write(effects, f"{arguments['run']} {arguments['n']}\n".encode())
        await anyio.sleep(0.005)
        value = {"n": arguments["n"]}
        return CallToolResult(content=[TextContent(text=str(value))], structured_content=value)

    server = Server("box", version="1", on_list_tools=list_tools, on_call_tool=call_tool)
    uvicorn.run(server.streamable_http_app(), port=port, log_level="error")


if __name__ == "__main__":
    main()
