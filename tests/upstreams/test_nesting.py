"""A tool nested too deep to be read costs what is deepest in it, and neither its neighbours nor an answer."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import from_json

from manifests.json_value import Json
from manifests.upstream_sections import HttpUpstream
from tests.upstreams.at_once import at_once
from tests.upstreams.peers import DEADLINE_SECONDS, fleet_of, http_peer, raw_server
from tests.upstreams.raw_http_server import RawHttpServer
from upstreams.errors import UpstreamAnswerError
from upstreams.nesting import MAX_LEVELS, shallow

ECHO = '{"name":"echo","description":"a \\"] {{ \\\\","inputSchema":{"type":"object"}}'


def deep(levels: int, start: str = '{"properties":{"a":', middle: str = "{}", end: str = "}}") -> str:
    return start * levels + middle + end * levels


def deep_tool(levels: int) -> str:
    return f'{{"name":"deep","inputSchema":{deep(levels)},"outputSchema":{deep(levels, "[", "1", "]")}}}'


def depth_of(value: Json) -> int:
    level, depth = [value], 0
    while level := [
        child
        for each in level
        if isinstance(each, dict | list)
        for child in (each.values() if isinstance(each, dict) else each)
    ]:
        depth += 1
    return depth


@pytest.mark.anyio
@pytest.mark.parametrize(("as_events", "packs_events"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("levels", [60, 200, 5_000])
async def test_deep_tool_leaves_its_neighbours_alone_over_http(
    levels: int, as_events: bool, packs_events: bool
) -> None:
    server = RawHttpServer()
    server.tools_text = f"[{deep_tool(levels)},{ECHO}]"
    server.as_events, server.packs_events = as_events, packs_events
    async with (
        http_peer(server.app) as peer,
        fleet_of(deep=HttpUpstream(url=f"http://127.0.0.1:{peer.port}/mcp")) as fleet,
    ):
        tools = {tool.name: tool for tool in fleet["deep"].tools}
        assert tools["echo"].description == 'a "] {{ \\'
        assert "properties" in tools["deep"].input_schema
        assert depth_of(tools["deep"].input_schema) <= MAX_LEVELS


@pytest.mark.anyio
async def test_deep_tool_leaves_its_neighbours_alone_over_stdio() -> None:
    tools_text = f"[{deep_tool(300)},{ECHO}]"
    async with fleet_of(deep=raw_server(tools_text=tools_text)) as fleet:
        assert [tool.name for tool in fleet["deep"].tools] == ["deep", "echo"]


@pytest.mark.anyio
async def test_deep_answer_is_not_cut_but_told() -> None:
    server = RawHttpServer()
    async with (
        http_peer(server.app) as peer,
        fleet_of(deep=HttpUpstream(url=f"http://127.0.0.1:{peer.port}/mcp")) as fleet,
    ):
        server.result_text = f'{{"content":[],"structuredContent":{{"tools":{deep(70)}}}}}'
        result = await fleet["deep"].call("echo", {}, seconds=DEADLINE_SECONDS)
        assert depth_of(result.structured) == 70 * 2 + 1
        server.result_text = f'{{"content":[],"structuredContent":{{"tools":{deep(300)}}}}}'
        with pytest.raises(UpstreamAnswerError):
            await fleet["deep"].call("echo", {}, seconds=DEADLINE_SECONDS)


@given(st.integers(0, 300), st.sampled_from(['{"', "[", '"', "\\", '\\"', "}}}", "", '"tools"']))
def test_whatever_lies_beside_it_is_kept(levels: int, text: str) -> None:
    told = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "result": {"x": {"tools": 1}, "tools": [{text: text}, "deep", text]}}
    )
    message = told.replace('"deep"', deep(levels, middle="[1]")).encode()
    read = from_json(at_once(shallow(message)))["result"]
    assert (read["tools"][0], read["tools"][-1], read["x"]) == ({text: text}, text, {"tools": 1})
    assert ("1" in str(read["tools"][1])) == (at_once(shallow(message)) == message)


@pytest.mark.parametrize(
    "hostile",
    [
        b'{"result":{"tools":' + b"[" * 3_000_000,
        b'{"result":{"tools":[' + b'"\\"' * 1_000_000,
        b'"tools"' + b"}" * 999,
    ],
)
def test_what_is_no_message_stays_as_it_is(hostile: bytes) -> None:
    assert at_once(shallow(hostile)) == hostile
