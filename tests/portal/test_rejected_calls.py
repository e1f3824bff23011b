"""A call that fails its upstream's own validation comes back with the signature and with what differs."""

from collections.abc import AsyncIterator
from typing import Annotated

import pytest
from mcp.server.mcpserver import MCPServer
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult
from pydantic import BaseModel, Field

from manifests.json_value import Json
from portal.broker import MAX_ERROR_CHARACTERS
from portal.library.rejection import LONGEST_DIFFERENCE
from tests.portal.peers import Opened, Peer, opened, schema, text, tool
from tests.upstreams.peers import http_peer

pytestmark = pytest.mark.anyio

SECRET = "hunter2-of-the-upstream"
KEY: Json = {"type": "string", "pattern": "^sk-"}


class Due(BaseModel):
    day: str = Field(pattern=r"^\d{4}-\d\d-\d\d$")


def real_server() -> MCPServer:
    """One that validates with pydantic what our own look at the arguments leaves to it: patterns."""
    server = MCPServer("real")

    @server.tool()
    def plan(code: Annotated[str, Field(pattern="^[A-Z]{3}$")], due: Due) -> str:
        return f"{code} {due.day}"

    return server


async def refuse(arguments: dict[str, Json]) -> CallToolResult:
    raise MCPError(code=-32602, message='Invalid arguments: [{"code": "invalid_string", "path": ["key"]}]')


async def refuse_at_length(arguments: dict[str, Json]) -> CallToolResult:
    paths = ", ".join(f'{{"path": ["key", {number}]}}' for number in range(500))
    return text(f"validation failed: {paths}", is_error=True)


async def betray(arguments: dict[str, Json]) -> CallToolResult:
    # The secret stands where the text is cut.
    return text("x" * (MAX_ERROR_CHARACTERS - 6) + f"{SECRET}: invalid arguments", is_error=True)


async def fail(arguments: dict[str, Json]) -> CallToolResult:
    return text("the store is closed", is_error=True)


async def miss(arguments: dict[str, Json]) -> CallToolResult:
    raise MCPError(code=-32602, message="Unknown tool: miss")


@pytest.fixture(scope="module")
async def portal(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Opened]:
    acts = {
        "refuse": refuse,
        "refuse_at_length": refuse_at_length,
        "fail": fail,
        "miss": miss,
        "betray": betray,
    }
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


async def test_real_validation_error_comes_with_signature_and_difference(portal: Opened) -> None:
    code, _, hint = await portal.result_of(caught("await real.plan(code='abc', due={'day': 'tomorrow'})"))
    assert code == "tool_error"
    differs = hint.partition("\n")[2]
    assert "async def real.plan(*, code: str, due: Due)" in hint
    assert "code: sent a str of 3 characters, wanted is str (pattern ^[A-Z]{3}$)" in differs
    assert "due['day']: sent a str of 8 characters, wanted is a str (pattern " in differs
    assert (
        await portal.result_of("await real.plan(code='ABC', due={'day': '2026-11-22'})") == "ABC 2026-11-22"
    )


async def test_invalid_params_come_with_signature_and_difference(portal: Opened) -> None:
    code, _, hint = await portal.result_of(caught("await store.refuse(key='hunter2-hunter2')"))
    assert code == "upstream_refused"
    assert "async def store.refuse(*, key: str)" in hint
    assert "key: sent a str of 15 characters, wanted is str (pattern ^sk-)" in hint
    assert "hunter2" not in hint


async def test_error_that_ends_the_script_tells_it_too(portal: Opened) -> None:
    error = await portal.error_of("await store.refuse(key='a')")
    assert "key: sent a str of 1 character, wanted is str (pattern ^sk-)" in error["hint"]


async def test_difference_is_of_bounded_length(portal: Opened) -> None:
    _, _, hint = await portal.result_of(caught("await store.refuse_at_length(key='a')"))
    differs = hint.partition("\n")[2]
    assert len(differs) <= LONGEST_DIFFERENCE + 20


async def test_secret_of_the_upstream_is_in_none_of_it(portal: Opened) -> None:
    _, message, hint = await portal.result_of(caught("await store.betray(key='a')"))
    assert len(message) == MAX_ERROR_CHARACTERS
    assert SECRET[:6] not in message + hint


async def test_other_errors_of_a_tool_come_with_the_signature_alone(portal: Opened) -> None:
    _, _, hint = await portal.result_of(caught("await store.fail(key='a')"))
    assert "store.fail" in hint
    assert "\n" not in hint


async def test_tool_that_the_upstream_no_longer_has_is_no_mistake_in_the_arguments(portal: Opened) -> None:
    code, _, hint = await portal.result_of(caught("await store.miss(key='a')"))
    assert code == "upstream_refused"
    assert "What differs" not in hint
