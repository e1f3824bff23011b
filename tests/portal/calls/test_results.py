"""A script gets all that an upstream answered, by the names that the upstream gave."""

import unicodedata
from collections.abc import AsyncIterator
from typing import Annotated, Any

import pytest
from mcp.server.mcpserver import MCPServer
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, TextContent
from pydantic import Field

from manifests.json_value import Json
from portal.calls.broker import MAX_ERROR_CHARACTERS
from tests.portal.peers import Opened, Peer, opened, schema, text, tool
from tests.upstreams.peers import http_peer
from upstreams.redaction import MASK

SECRET = "hunter2-of-the-upstream"
INTEGER: Json = {"type": "integer"}


def real_server() -> MCPServer:
    """One that validates with pydantic what our own look at the arguments leaves to it: patterns."""
    server = MCPServer("real")

    @server.tool()
    def plan(code: Annotated[str, Field(pattern="^[A-Z]{3}$")]) -> str:
        return code

    return server


async def betray(arguments: dict[str, Json]) -> CallToolResult:
    # The secret stands where the text is cut.
    return text("x" * (MAX_ERROR_CHARACTERS - 6) + f"{SECRET}: invalid arguments", is_error=True)


async def fail(arguments: dict[str, Json]) -> CallToolResult:
    detail: Any = {"code": "NEEDS_HUMAN", "token": [f"x{SECRET}x"]}
    return CallToolResult(
        content=[TextContent(text=f"no {SECRET}")], structured_content=detail, is_error=True
    )


async def silent(arguments: dict[str, Json]) -> CallToolResult:
    return CallToolResult(content=[], structured_content={"code": "NEEDS_HUMAN"}, is_error=True)


async def refuse(arguments: dict[str, Json]) -> CallToolResult:
    raise MCPError(code=-32603, message=arguments.get("message", ""), data={"why": SECRET, "at": [7]})


async def reject(arguments: dict[str, Json]) -> CallToolResult:
    raise MCPError(code=-32602, message='Invalid arguments: [{"code": "invalid_string", "path": ["key"]}]')


ACTS = {"fail": fail, "silent": silent, "refuse": refuse, "reject": reject, "betray": betray}


@pytest.fixture(scope="module")
async def portal(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Opened]:
    tools = [tool(name) for name in ACTS]
    tools += [tool("数据查询"), tool("创建订单"), tool("größe")]
    tools.append(
        tool("query", schema("城市", "$filter", self=INTEGER, 城市={}, 日期={}, größe={}, **{"$filter": {}}))
    )
    peer = Peer(*tools, **ACTS)
    apps = (peer.server.streamable_http_app(), real_server().streamable_http_app())
    async with http_peer(apps[0]) as served, http_peer(apps[1]) as real:
        up, other = ({"url": f"http://127.0.0.1:{each.port}/mcp"} for each in (served, real))
        secret: Json = {"headers": {"Authorization": f"Bearer {SECRET}"}}
        folder = tmp_path_factory.mktemp("results")
        async with opened(folder, {"up": {**up, **secret}, "real": other}) as portal:
            await portal.search()
            yield portal


def caught(call: str) -> str:
    return (
        f"try:\n    {call}\nexcept ToolError as e:\n    out = [e.code, str(e), e.data, e.blocks, e.hint]\nout"
    )


async def test_error_of_a_tool_has_its_data_without_secrets(portal: Opened) -> None:
    code, message, data, blocks, _ = await portal.result_of(caught("await up.fail()"))
    assert (code, data) == ("tool_error", {"code": "NEEDS_HUMAN", "token": [f"x{MASK}x"]})
    assert (message, blocks) == (f"no {MASK}", [{"type": "text", "text": f"no {MASK}"}])


async def test_error_without_text_tells_its_data(portal: Opened) -> None:
    code, message, data, blocks, _ = await portal.result_of(caught("await up.silent()"))
    told = ("tool_error", '{"code": "NEEDS_HUMAN"}', {"code": "NEEDS_HUMAN"}, [])
    assert (code, message, data, blocks) == told


@pytest.mark.parametrize("message", ["Internal error", " "])
async def test_error_of_the_protocol_has_its_data(portal: Opened, message: str) -> None:
    code, told, data, *_ = await portal.result_of(caught(f"await up.refuse(message={message!r})"))
    assert (code, data) == ("upstream_refused", {"why": MASK, "at": [7]})
    assert told == f"upstream 'up': {message}" if message.strip() else '"at": [7]' in told


@pytest.mark.parametrize(
    "call",
    [
        "up.数据查询()",
        "up._____f740()",
        "up.größe()",
        "up.gr__e()",
        unicodedata.normalize("NFD", "up.größe()"),
        "tools.up.数据查询()",
    ],
)
async def test_tools_are_called_by_their_own_and_by_former_names(portal: Opened, call: str) -> None:
    answer = await portal.run(f"await {call}")
    assert answer["status"] == "ok"
    assert answer["calls"][0]["function"] in ("up.数据查询", "up.größe")
    assert not answer["notices"]


async def test_stub_tells_wire_names_where_they_differ(portal: Opened) -> None:
    stub = await portal.result_of("(await portal.describe('up.query'))['stub']")
    assert 'wire name "$filter"' in stub
    assert 'wire name "城市"' not in stub


async def test_error_of_the_tools_own_validation_comes_with_its_text_and_the_signature(
    portal: Opened,
) -> None:
    code, message, _, _, hint = await portal.result_of(caught("await real.plan(code='abc')"))
    assert code == "tool_error" and "String should match pattern '^[A-Z]{3}$'" in message
    assert hint.startswith("Its signature: real.plan(code: str)")
    assert await portal.result_of("await real.plan(code='ABC')") == "ABC"
    code, message, _, _, hint = await portal.result_of(caught("await up.reject()"))
    assert code == "upstream_refused" and '"path": ["key"]' in message and "up.reject(" in hint


async def test_secret_at_the_cut_of_an_upstreams_text_is_not_shown(portal: Opened) -> None:
    _, message, _, _, hint = await portal.result_of(caught("await up.betray()"))
    assert len(message) == MAX_ERROR_CHARACTERS and SECRET[:6] not in message + hint
