# /// script
# requires-python = ">=3.11"
# dependencies = ["langchain>=1.5,<2", "langchain-anthropic>=1.7,<2", "langchain-mcp-adapters>=0.3.2,<0.4"]
# ///
"""The portal behind a LangChain agent. It needs ANTHROPIC_API_KEY.

With PORTAL_URL and PORTAL_TOKEN it uses a portal that serves over HTTP, else it starts one.
"""

import asyncio
import os
from pathlib import Path

from langchain.agents import create_agent
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools

MANIFEST = str(Path(__file__).with_name("portal.yaml"))

if url := os.environ.get("PORTAL_URL"):
    headers = {"Authorization": f"Bearer {os.environ['PORTAL_TOKEN']}"}
    portal = {"transport": "http", "url": url, "headers": headers}
else:
    portal = {"transport": "stdio", "command": "mcp-code-portal", "args": ["serve", "--config", MANIFEST]}


async def main() -> None:
    # One session for all calls. The client's get_tools() would start another portal for each call.
    async with MultiServerMCPClient({"portal": portal}).session("portal") as session:
        agent = create_agent("anthropic:claude-sonnet-5-5", tools=await load_mcp_tools(session))
        task = "It is noon in Tokyo. What time is it in Lima and in Nairobi?"
        answer = await agent.ainvoke({"messages": [{"role": "user", "content": task}]})
        print(answer["messages"][-1].text)


asyncio.run(main())
