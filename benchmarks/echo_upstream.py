"""A stdio MCP upstream with one tool that answers at once: what a call through the portal costs shows best on it."""

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

SCHEMA = {
    "type": "object",
    "properties": {"number": {"type": "integer"}, "text": {"type": "string"}},
    "required": ["number"],
}


async def list_tools(context: object, params: PaginatedRequestParams | None) -> ListToolsResult:
    return ListToolsResult(tools=[Tool(name="echo", description="Answers its number.", input_schema=SCHEMA)])


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
