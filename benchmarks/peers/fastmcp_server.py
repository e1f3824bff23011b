"""Runs in FastMCP's own environment: a server over stdio with CodeMode in front of the upstreams of a JSON file."""

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from fastmcp import Client, FastMCP
from fastmcp.experimental.transforms.code_mode import CodeMode
from fastmcp.server import create_proxy


async def main(upstreams: dict[str, Any]) -> None:
    server = FastMCP("peer")
    async with AsyncExitStack() as connections:
        for name, upstream in upstreams.items():
            # A connected client is kept; one that is not is connected anew for each request.
            client = await connections.enter_async_context(Client({"mcpServers": {name: upstream}}))
            server.mount(create_proxy(client), namespace=name)
        server.add_transform(CodeMode())
        await server.run_async(transport="stdio", show_banner=False)


asyncio.run(main(json.loads(Path(sys.argv[1]).read_text("utf-8"))))
