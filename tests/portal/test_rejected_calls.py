"""A call that fails its upstream's own validation comes back with the upstream's text and the signature."""

from collections.abc import AsyncIterator
from typing import Annotated

import pytest
from mcp.server.mcpserver import MCPServer
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult
from pydantic import Field

from manifests.json_value import Json
from portal.calls.broker import MAX_ERROR_CHARACTERS
from tests.portal.peers import Opened, Peer, opened, schema, text, tool
from tests.upstreams.peers import http_peer

SECRET = "hunter2-of-the-upstream"
KEY: Json = {"type": "string", "pattern": "^sk-"}


def real_server() -> MCPServer:
    """One that validates with pydantic what our own look at the arguments leaves to it: patterns."""
    server = MCPServer("real")

    @server.tool()
    def plan(code: Annotated[str, Field(pattern="^[A-Z]{3}$")]) -> str:
        return code

    return server


async def refuse(arguments: dict[str, Json]) -> CallToolResult:
    raise MCPError(code=-32602, message='Invalid arguments: [{"code": "invalid_string", "path": ["key"]}]')


async def betray(arguments: dict[str, Json]) -> CallToolResult:
    # The secret stands where the text is cut.
    return text("x" * (MAX_ERROR_CHARACTERS - 6) + f"{SECRET}: invalid arguments", is_error=True)


@pytest.fixture(scope="module")
async def portal(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Opened]:
    acts = {"refuse": refuse, "betray": betray}
    store = Peer(*(tool(name, schema("key", key=KEY)) for name in acts), **acts)
    async with (
        http_peer(real_server().streamable_http_app()) as real,
        http_peer(store.server.streamable_http_app()) as stored,
    ):
        headers = {"Authorization": f"Bearer {SECRET}"}
        upstreams: dict[str, Peer | dict[str, Json]] = {
            "store": {"url": f"http://127.0.0.1:{stored.port}/mcp", "headers": headers},
            "real": {"url": f"http://127.0.0.1:{real.port}/mcp"},
        }
        async with opened(tmp_path_factory.mktemp("rejected"), upstreams) as portal:
            await portal.search()
            yield portal


def caught(call: str) -> str:
    return f"try:\n    {call}\nexcept ToolError as e:\n    out = [e.code, str(e), e.hint]\nout"


async def test_tools_own_error_comes_with_its_text_and_the_signature(portal: Opened) -> None:
    code, message, hint = await portal.result_of(caught("await real.plan(code='abc')"))
    assert code == "tool_error"
    assert "String should match pattern '^[A-Z]{3}$'" in message
    assert hint.startswith("Its signature: real.plan(code: str)")
    assert await portal.result_of("await real.plan(code='ABC')") == "ABC"


async def test_invalid_params_come_with_their_text_and_the_signature(portal: Opened) -> None:
    code, message, hint = await portal.result_of(caught("await store.refuse(key='a')"))
    assert code == "upstream_refused"
    assert '"path": ["key"]' in message
    assert "store.refuse(key: str)" in hint


async def test_secret_of_the_upstream_is_in_none_of_it(portal: Opened) -> None:
    _, message, hint = await portal.result_of(caught("await store.betray(key='a')"))
    assert len(message) == MAX_ERROR_CHARACTERS
    assert SECRET[:6] not in message + hint
