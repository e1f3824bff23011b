# /// script
# requires-python = ">=3.11"
# dependencies = ["claude-agent-sdk>=0.2.189,<0.3"]
# ///
"""The portal behind the Claude Agent SDK, which brings Claude Code. It needs ANTHROPIC_API_KEY.

With PORTAL_URL and PORTAL_TOKEN it uses a portal that serves over HTTP, else it starts one.
"""

import asyncio
import os
from pathlib import Path

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query

MANIFEST = str(Path(__file__).with_name("portal.yaml"))

if url := os.environ.get("PORTAL_URL"):
    headers = {"Authorization": f"Bearer {os.environ['PORTAL_TOKEN']}"}
    portal = {"type": "http", "url": url, "headers": headers}
else:
    portal = {"command": "mcp-code-portal", "args": ["serve", "--config", MANIFEST]}


async def main() -> None:
    options = ClaudeAgentOptions(
        mcp_servers={"portal": portal},
        strict_mcp_config=True,  # no other MCP servers that this machine configures
        setting_sources=[],  # and none of its settings
        tools=[],  # none of Claude Code's own tools
        allowed_tools=["mcp__portal"],  # run without asking: the manifest says what scripts may do
    )
    task = "It is noon in Tokyo. What time is it in Lima and in Nairobi?"
    async for message in query(prompt=task, options=options):
        if isinstance(message, ResultMessage):
            print(message.result)


asyncio.run(main())
