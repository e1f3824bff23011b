"""eryx, from PyPI as pyeryx: `eryx serve --mcp-config`."""

import json

from mcp import Client

from benchmarks.peers.environments import python_environment
from benchmarks.peers.system import CACHE, About, CannotError, Launch, Scripts, Upstreams, json_of

VERSION = "0.11.0"
CALL = "mcp['echo'].echo(number=i)"
SCRIPTS = Scripts(
    tool="run_python",
    by_task={
        "trivial": "print(1 + 1)",
        "five_calls": f"r = [await {CALL} for i in range(5)]\nprint([x['number'] for x in r])",
        "five_calls_gathered": (
            f"import asyncio\nr = await asyncio.gather(*[{CALL} for i in range(5)])\nprint([x['number'] for x in r])"
        ),
    },
    leave="left = 1",
    look="print(globals().get('left', 0))",
    read=json_of,
)


class Eryx:
    name = "eryx"
    tasks = SCRIPTS

    def prepare(self, upstreams: Upstreams) -> Launch:
        if upstreams.urls:
            raise CannotError("it takes stdio upstreams only, and these are HTTP")
        commands = python_environment("eryx", f"pyeryx[serve]=={VERSION}", at_least="3.12")
        config = CACHE / "eryx" / "mcp.json"
        config.write_text(json.dumps({"mcpServers": upstreams.mcp_servers()}), "utf-8")
        return Launch([str(commands / "eryx"), "serve", "--mcp-config", str(config)])

    def about(self) -> About:
        return About(
            version=VERSION,
            language="Python",
            isolation="CPython in wasm, in the process that holds the upstreams",
        )

    async def count_tools(self, client: Client) -> int:
        """They are listed in its tool's description."""
        listed = (await client.list_tools()).tools
        return sum((tool.description or "").count("\n- `await mcp[") for tool in listed)
