"""The same two tools in both eras of the protocol."""

from pathlib import Path

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from portal.server.definitions import INSTRUCTIONS
from tests.portal.peers import Peer, opened, text_of, tool

ERAS = ["auto", "legacy"]


@pytest.mark.parametrize("mode", ERAS)
async def test_two_tools_whatever_stands_behind_them(tmp_path: Path, mode: str) -> None:
    peer = Peer(*(tool(f"tool_{number}") for number in range(100)))
    async with opened(tmp_path, {"store": peer}, mode=mode) as portal:
        await portal.search()
        tools = (await portal.client.list_tools()).tools
        assert [tool.name for tool in tools] == ["docs_search", "execute_code"]
        assert portal.client.instructions == INSTRUCTIONS
        assert portal.client.server_info and portal.client.server_info.name == "mcp-code-portal"
        assert await portal.result_of("await store.tool_7(a=1)") == {"a": 1}
        assert "store.tool_7" in text_of(await portal.call("docs_search", query="store.tool_7"))
        assert (await portal.run("1 / 0"))["error"]["code"] == "script_error"


@pytest.mark.parametrize("mode", ERAS)
async def test_the_eras_are_different_revisions(tmp_path: Path, mode: str) -> None:
    async with opened(tmp_path, mode=mode) as portal:
        assert (portal.client.protocol_version >= "2026") is (mode == "auto")


@pytest.mark.parametrize("mode", ERAS)
async def test_an_unknown_tool_is_an_error_of_the_protocol(tmp_path: Path, mode: str) -> None:
    async with opened(tmp_path, mode=mode) as portal:
        for name in ("execute", "", "x" * 10_000, "\x1b[31m"):
            with pytest.raises(MCPError) as caught:
                await portal.client.call_tool(name, {})
            assert caught.value.error.code == INVALID_PARAMS
            assert len(caught.value.error.message) < 500
        assert await portal.result_of("1") == 1
