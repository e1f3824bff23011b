"""An MCP server with a tool that answers and one that never does."""

import anyio
from mcp.server.mcpserver import MCPServer

server = MCPServer("waiting")


@server.tool()
async def note(text: str) -> str:
    """Note a text and answer it."""
    return text


@server.tool()
async def wait_forever() -> str:
    """Never answer."""
    await anyio.sleep_forever()
    return "never"


server.run()
