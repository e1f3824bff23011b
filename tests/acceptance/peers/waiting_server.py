"""An MCP server whose tools answer at once, never, or only together."""

from collections import Counter

import anyio
from mcp.server.mcpserver import MCPServer

server = MCPServer("waiting")
arrivals: Counter[str] = Counter()
complete: dict[str, anyio.Event] = {}


@server.tool()
async def note(text: str) -> str:
    """Note a text and answer it."""
    return text


@server.tool()
async def fail(text: str) -> str:
    """Fail with a text."""
    raise ValueError(text)


@server.tool()
async def meet(table: str, guests: int) -> int:
    """Answer as soon as so many calls are waiting at the same table: never, unless they run in parallel."""
    event = complete.setdefault(table, anyio.Event())
    arrivals[table] += 1
    if arrivals[table] >= guests:
        event.set()
    await event.wait()
    return arrivals[table]


@server.tool()
async def double(number: int) -> int:
    """Double a number."""
    return 2 * number


@server.tool()
async def wait_forever() -> str:
    """Never answer."""
    await anyio.sleep_forever()
    return "never"


server.run()
