"""An upstream that says things while it works; made with the official SDK, in one era or the other.

python chatty_server.py modern|legacy       serves over stdio
"""

import sys
import warnings
from typing import Any

import anyio
from mcp.server.lowlevel import Server
from mcp.server.runner import serve_loop
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPDeprecationWarning
from mcp_types import (
    CallToolResult,
    EmptyResult,
    ListToolsResult,
    SetLevelRequestParams,
    TextContent,
    Tool,
)

SECRET = "s3cret-of-the-upstream"
TOOLS = ("count", "log", "flood", "hang", "hangs", "cancelled", "level")


class Chatty:
    """`cancelled` answers once a call of `hang` was cancelled, `level` the level that was set last."""

    def __init__(self, era: str) -> None:
        self.level = "none"
        self.cancelled = anyio.Event()
        self.hanging = anyio.Event()
        self.server: Server[Any] = Server(
            "chatty", version="1", on_list_tools=self._list, on_call_tool=self._call
        )
        if era == "legacy":
            # Without it the SDK's client, and so the portal, goes on with the older handshake.
            del self.server._request_handlers["server/discover"]
            self.server.add_request_handler("logging/setLevel", SetLevelRequestParams, self._set_level)

    async def _list(self, context: Any, params: Any) -> ListToolsResult:
        return ListToolsResult(tools=[Tool(name=name, input_schema={"type": "object"}) for name in TOOLS])

    async def _set_level(self, context: Any, params: SetLevelRequestParams) -> EmptyResult:
        self.level = params.level
        return EmptyResult()

    async def _call(self, context: Any, params: Any) -> CallToolResult:
        answer = await getattr(self, f"_{params.name}")(context, **(params.arguments or {}))
        return CallToolResult(content=[TextContent(text=str(answer))])

    async def _count(self, context: Any, to: int = 3, words: str = "") -> str:
        for number in range(1, to + 1):
            await context.session.report_progress(number, to, f"step {number}{words}")
        return "counted"

    async def _log(self, context: Any, data: Any = "hello", level: str = "info", logger: str = "") -> str:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MCPDeprecationWarning)
            await context.session.send_log_message(level, data, logger or None, context.request_id)
        return "logged"

    async def _flood(self, context: Any, messages: int) -> str:
        for number in range(messages):
            await self._log(context, f"message {number}")
            await context.session.report_progress(number, None, f"message {number}")
        return "flooded"

    async def _hang(self, context: Any) -> str:
        self.hanging.set()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            self.cancelled.set()
            raise
        return "never"

    async def _cancelled(self, context: Any) -> str:
        await self.cancelled.wait()
        return "cancelled"

    async def _hangs(self, context: Any) -> str:
        return "yes" if self.hanging.is_set() else ""

    async def _level(self, context: Any) -> str:
        return self.level


async def main(era: str) -> None:
    server = Chatty(era).server
    async with stdio_server() as (reader, writer):
        if era == "modern":
            await server.run(reader, writer, server.create_initialization_options())
        else:
            await serve_loop(server, reader, writer, lifespan_state={})


if __name__ == "__main__":
    anyio.run(main, sys.argv[1])
