"""A stdio MCP upstream with one tool that answers at once: what a call through the portal costs shows best on it.

python -m benchmarks.echo_upstream [N]: with N tools in all, of which the others do the same; with `reads` instead of N
there are `echo`, which declares nothing, and `read`, which declares that it only reads
"""

import sys

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
    ToolAnnotations,
)

SCHEMA = {
    "type": "object",
    "properties": {"number": {"type": "integer"}, "text": {"type": "string"}},
    "required": ["number"],
}


async def list_tools(context: object, params: PaginatedRequestParams | None) -> ListToolsResult:
    if sys.argv[1:] == ["reads"]:
        return ListToolsResult(tools=[tool("echo"), tool("read", read_only_hint=True)])
    count = int(sys.argv[1]) if sys.argv[1:] else 1
    return ListToolsResult(tools=[tool("echo"), *(tool(f"echo_{number}") for number in range(1, count))])


def tool(name: str, **hints: bool) -> Tool:
    annotations = ToolAnnotations(**hints) if hints else None
    return Tool(name=name, description="Answers its number.", input_schema=SCHEMA, annotations=annotations)


async def call_tool(context: object, params: CallToolRequestParams) -> CallToolResult:
    number = (params.arguments or {}).get("number")
    text = TextContent(type="text", text=f'{{"number": {number}}}')
    return CallToolResult(content=[text], structured_content={"number": number})


async def main() -> None:
    server: Server[dict[str, object]] = Server(
        "echo", version="1", on_list_tools=list_tools, on_call_tool=call_tool
    )
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
