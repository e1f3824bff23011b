"""FastMCP with its CodeMode transform: https://gofastmcp.com, experimental there."""

import json
import re
from pathlib import Path

from mcp import Client

from benchmarks.peers.environments import python_environment
from benchmarks.peers.system import CACHE, About, Launch, Scripts, Upstreams, json_of, text_of

VERSION = "4.2.3"
SERVER = Path(__file__).resolve().parent / "fastmcp_server.py"
CALL = "call_tool('echo_echo', {'number': i})"
SCRIPTS = Scripts(
    tool="execute",
    by_task={
        "trivial": "return 1 + 1",
        "five_calls": f"r = [await {CALL} for i in range(5)]\nreturn [x['number'] for x in r]",
        "five_calls_gathered": (
            f"import asyncio\nr = await asyncio.gather(*[{CALL} for i in range(5)])\nreturn [x['number'] for x in r]"
        ),
    },
    leave="left = 1\nreturn left",
    look="return left",
    read=json_of,
)


class FastMCP:
    name = "FastMCP CodeMode"
    tasks = SCRIPTS

    def prepare(self, upstreams: Upstreams) -> Launch:
        commands = python_environment("fastmcp", f"fastmcp[code-mode]=={VERSION}")
        config = CACHE / "fastmcp" / "upstreams.json"
        config.write_text(json.dumps(upstreams.mcp_servers()), "utf-8")
        # -I: this folder's own fastmcp.py would be taken for the package.
        return Launch([str(commands / "python"), "-I", str(SERVER), str(config)])

    def about(self) -> About:
        return About(
            version=VERSION,
            language="a subset of Python (Monty)",
            isolation="an interpreter of its own in Rust, in a process of its own",
            note="With clients that stay connected: by default it connects for each request, seconds with 13 servers.",
        )

    async def count_tools(self, client: Client) -> int:
        """From the head line of a search that shows one; it has none where there is one tool only."""
        answer = text_of(await client.call_tool("search", {"query": "echo", "limit": 1}))
        total = re.match(r"1 of (\d+) tools", answer)
        return int(total[1]) if total else answer.count("\n- ") + answer.startswith("- ")
