# /// script
# requires-python = ">=3.11"
# dependencies = ["openai-agents>=0.24,<0.25"]
# ///
"""The portal behind the OpenAI Agents SDK. It needs OPENAI_API_KEY.

With PORTAL_URL and PORTAL_TOKEN it uses a portal that serves over HTTP, else it starts one.
"""

import asyncio
import os
from pathlib import Path

from agents import Agent, Runner
from agents.mcp import MCPServerStdio, MCPServerStreamableHttp

MANIFEST = str(Path(__file__).with_name("portal.yaml"))
# The defaults are 5 seconds, which end longer scripts.
SECONDS = {"client_session_timeout_seconds": 120}

if url := os.environ.get("PORTAL_URL"):
    headers = {"Authorization": f"Bearer {os.environ['PORTAL_TOKEN']}"}
    portal = MCPServerStreamableHttp({"url": url, "headers": headers, "timeout": 120}, **SECONDS)
else:
    portal = MCPServerStdio(
        {"command": "mcp-code-portal", "args": ["serve", "--config", MANIFEST]}, **SECONDS
    )


async def main() -> None:
    async with portal:
        agent = Agent(name="assistant", model="gpt-5.6-terra", mcp_servers=[portal])
        result = await Runner.run(agent, "It is noon in Tokyo. What time is it in Lima and in Nairobi?")
        print(result.final_output)


asyncio.run(main())
