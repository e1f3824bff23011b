"""A client on the first major version of the SDK, with a Python of its own.

    sdk1_client.py stdio COMMAND ARGS...    or    sdk1_client.py http URL

It lists the tools, searches, runs a script, and prints `{version, tools, search, run}` as JSON.
"""

import asyncio
import json
import sys
from contextlib import asynccontextmanager
from datetime import timedelta

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client

SCRIPT = "(await time_.get_current_time(timezone='UTC'))['timezone']"


@asynccontextmanager
async def connected(kind, target):
    if kind == "stdio":
        async with stdio_client(StdioServerParameters(command=target[0], args=target[1:])) as streams:
            yield streams
    else:
        async with streamablehttp_client(target[0]) as (reader, writer, _):
            yield reader, writer


async def main(kind, target):
    async with (
        connected(kind, target) as (reader, writer),
        ClientSession(reader, writer, timedelta(seconds=90)) as session,
    ):
        version = (await session.initialize()).protocolVersion
        tools = [tool.name for tool in (await session.list_tools()).tools]
        search = await session.call_tool("docs_search", {"query": "current time"})
        run = await session.call_tool("execute_code", {"code": SCRIPT})
    answers = {"search": search.structuredContent, "run": run.structuredContent}
    print(json.dumps({"version": version, "tools": tools, **answers}))


asyncio.run(main(sys.argv[1], sys.argv[2:]))
