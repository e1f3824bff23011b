"""This portal, as `mcp-code-portal serve` starts it."""

import json
import sys
from importlib.metadata import version
from typing import Any

import anyio
from mcp import Client
from mcp_types import CallToolResult

from benchmarks.peers.system import CACHE, About, Launch, Scripts, Upstreams, text_of


def value_of(result: CallToolResult) -> Any:
    answer = json.loads(text_of(result))
    return answer.get("result", answer)


SCRIPTS = Scripts(
    tool="execute_code",
    by_task={
        "trivial": "1 + 1",
        "five_calls": "r = [await echo.echo(number=i) for i in range(5)]\n[x['number'] for x in r]",
        "five_calls_gathered": (
            "import asyncio\n"
            "r = await asyncio.gather(*[echo.echo(number=i) for i in range(5)])\n"
            "[x['number'] for x in r]"
        ),
    },
    leave="import builtins\nbuiltins.left = 1",
    look="import builtins\ngetattr(builtins, 'left', 0)",
    read=value_of,
)


class Portal:
    name = "mcp-code-portal"
    tasks = SCRIPTS

    def prepare(self, upstreams: Upstreams) -> Launch:
        CACHE.mkdir(parents=True, exist_ok=True)
        manifest = CACHE / "portal.yaml"
        manifest.write_text(json.dumps({"upstreams": upstreams.mcp_servers()}), "utf-8")  # JSON is YAML too
        serve = [sys.executable, "-m", "portal", "serve", "--log-level", "warning"]
        return Launch([*serve, "--config", str(manifest)])

    def about(self) -> About:
        return About(
            version=version("mcp-code-portal"),
            language="Python",
            isolation="CPython in wasm, in a locked-down process of its own",
        )

    async def count_tools(self, client: Client) -> int:
        """Of all upstreams: waits for those that are starting."""
        while True:
            code = "found = await portal.search('')\n[found['total'], found['notices']]"
            total, notices = value_of(await client.call_tool("execute_code", {"code": code}))
            if not any("is starting" in notice for notice in notices):
                return int(total)
            await anyio.sleep(0.2)
