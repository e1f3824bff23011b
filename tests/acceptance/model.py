"""Acts like a model behind an MCP client: it searches for functions and runs scripts."""

from typing import Any, TypeAlias

import anyio
from mcp import Client
from mcp_types import CallToolResult, TextContent

Json: TypeAlias = Any
"""A JSON value. The suite has its own name for it, because it imports nothing of the portal."""

CALL_SECONDS = 90
"""The deadline of one call. Generous: the first one may wait for a dozen servers and for the sandbox to compile."""


class Model:
    """Calls the two tools and looks at the whole shape of every answer."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def search(self, query: str = "", **arguments: Json) -> dict[str, Json]:
        """The structured answer of docs_search."""
        result = await self.call("docs_search", {"query": query, **arguments})
        assert not result.is_error, result.content
        assert isinstance(result.structured_content, dict)
        return result.structured_content

    async def run(self, code: str, **arguments: Json) -> dict[str, Json]:
        """The structured answer of execute_code."""
        result = await self.call("execute_code", {"code": code, **arguments})
        answer = result.structured_content
        assert isinstance(answer, dict)
        assert result.is_error is (answer["status"] != "ok")
        return answer

    async def result_of(self, code: str) -> Json:
        """The value of a script that must succeed."""
        answer = await self.run(code)
        assert answer["status"] == "ok", answer
        return answer["result"]

    async def call(self, tool: str, arguments: dict[str, Json]) -> CallToolResult:
        with anyio.fail_after(CALL_SECONDS):
            return await self.client.call_tool(tool, arguments)


def text_of(result: CallToolResult) -> str:
    """The text of an answer; blocks that the script emitted follow it."""
    first = result.content[0]
    assert isinstance(first, TextContent)
    return first.text
