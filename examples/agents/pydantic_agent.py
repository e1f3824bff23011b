# /// script
# requires-python = ">=3.11"
# dependencies = ["pydantic-ai-slim[mcp,openai]>=2.68,<3"]
# ///
"""The portal behind a pydantic-ai agent. It needs OPENAI_API_KEY.

With PORTAL_URL and PORTAL_TOKEN it uses a portal that serves over HTTP, else it starts one.
"""

import asyncio
import os
from pathlib import Path

from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset

MANIFEST = str(Path(__file__).with_name("portal.yaml"))
# The first start may take longer than the default of 5 seconds. A script that fails is no failed call: by default
# the second one would end the agent, though the model reads what was wrong.
OPTIONS = {"init_timeout": 60, "tool_error_behavior": "failed", "include_instructions": True}

if url := os.environ.get("PORTAL_URL"):
    portal = MCPToolset(url, auth=os.environ["PORTAL_TOKEN"], **OPTIONS)
else:
    portal = MCPToolset(StdioTransport("mcp-code-portal", ["serve", "--config", MANIFEST]), **OPTIONS)


async def main() -> None:
    async with Agent("openai:gpt-5.6-terra", toolsets=[portal]) as agent:
        result = await agent.run("It is noon in Tokyo. What time is it in Lima and in Nairobi?")
        print(result.output)


asyncio.run(main())
