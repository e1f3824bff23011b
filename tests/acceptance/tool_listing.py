"""The tools of a server as a plain MCP client sees them, to compare with what the portal made of them."""

import anyio
from mcp import Client, StdioServerParameters
from mcp.client import ClientRequestContext
from mcp_types import ElicitRequestParams, ElicitResult

from tests.acceptance.model import Json, Model

LISTING_SECONDS = 60
MAX_SEARCH_LIMIT = 50


async def listed_tools(server: dict[str, Json]) -> set[str]:
    """The names that the server itself lists to a client that can ask its person, as the portal says it can."""
    parameters = StdioServerParameters(
        command=server["command"], args=server.get("args", []), env=server.get("env")
    )
    with anyio.fail_after(LISTING_SECONDS):
        async with Client(parameters, elicitation_callback=_declined) as client:
            return {tool.name for tool in (await client.list_tools()).tools}


async def _declined(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
    return ElicitResult(action="decline")


async def assert_every_tool_is_a_function(model: Model, upstream: str, server: dict[str, Json]) -> None:
    """The names agree; of more than one docs_search can show, their number does.

    The manifest must allow as many `output_tokens` as the signatures need.
    """
    tools = await listed_tools(server)
    answer = await model.search(upstream=upstream, limit=MAX_SEARCH_LIMIT)
    assert answer["total"] == len(tools)
    assert len(answer["functions"]) == min(len(tools), MAX_SEARCH_LIMIT)
    assert {function["tool"] for function in answer["functions"]} <= tools
