"""Whatever an upstream lists, every tool that can be called is kept and the rest is noted."""

from typing import Any

import pytest
from mcp.server import Server
from mcp_types import ListToolsResult, Tool

from manifests.grants import Hints
from manifests.json_value import Json
from tests.upstreams.peers import DEADLINE_SECONDS, fleet_of, raw_server
from tests.upstreams.test_sdk_servers import in_memory
from upstreams.health import Diagnostics
from upstreams.redaction import Redaction
from upstreams.tools import MAX_LISTED, MAX_PAGES, RecordedTool, read_listing

pytestmark = pytest.mark.anyio

GOOD = {"name": "good", "inputSchema": {"type": "object"}}


async def listed(*tools: Any) -> tuple[dict[str, RecordedTool], tuple[str, ...]]:
    async with fleet_of(server=raw_server(tools=tools)) as fleet:
        upstream = fleet["server"]
        assert upstream.state.status == "ready"
        return {tool.name: tool for tool in upstream.tools}, upstream.diagnostics


async def test_tool_is_recorded_as_it_was_sent() -> None:
    sent = {
        "name": "get-it",
        "title": "Get it",
        "description": "Gets.",
        "inputSchema": {
            "type": "object",
            "properties": {"from": {"const": 9007199254740993}},
            "x-odd": [None],
        },
        "outputSchema": {"type": "object", "$defs": {}},
        "annotations": {"readOnlyHint": True, "unknownHint": 1},
        "execution": {"ours": "not"},
    }
    tools, diagnostics = await listed(sent)
    assert tools["get-it"] == RecordedTool(
        name="get-it",
        title="Get it",
        description="Gets.",
        input_schema=sent["inputSchema"],
        output_schema=sent["outputSchema"],
        annotations={"readOnlyHint": True, "unknownHint": 1},
    )
    assert diagnostics == ()


@pytest.mark.parametrize("schema", [None, True, "object", [], 5])
async def test_input_schema_that_is_no_object_is_replaced_and_noted(schema: Any) -> None:
    tools, diagnostics = await listed({"name": "odd", "inputSchema": schema}, GOOD)
    assert tools["odd"].input_schema == {"type": "object"}
    assert any("'odd'" in remark for remark in diagnostics)


@pytest.mark.parametrize("broken", [None, 5, "tool", [], {}, {"name": 5}, {"name": ""}, {"name": "n" * 201}])
async def test_tool_without_a_usable_name_is_left_out_alone(broken: Any) -> None:
    tools, diagnostics = await listed(broken, GOOD)
    assert list(tools) == ["good"]
    assert len(diagnostics) == 1


@pytest.mark.parametrize("annotations", [[{"destructiveHint": True}], "destructive", 1, [0]])
async def test_tool_whose_annotations_nobody_can_read_is_taken_for_destructive(annotations: Any) -> None:
    tools, diagnostics = await listed({**GOOD, "annotations": annotations})
    assert Hints.of(tools["good"].annotations).destructive
    assert len(diagnostics) == 1


async def test_pagination_without_end_is_cut() -> None:
    async with fleet_of(server=raw_server(pages="endless")) as fleet:
        assert len(fleet["server"].tools) == MAX_PAGES
        assert len(fleet["server"].diagnostics) == 1


async def test_empty_cursor_ends_a_listing_only_before_2026_07_28() -> None:
    async def list_tools(context: Any, params: Any) -> ListToolsResult:
        is_first = params is None or params.cursor is None
        tool = Tool(name="first" if is_first else "second", input_schema={"type": "object"})
        return ListToolsResult(tools=[tool], next_cursor="" if is_first else None)

    async with in_memory(Server("modern", on_list_tools=list_tools)) as upstream:
        assert [tool.name for tool in upstream.tools] == ["first", "second"]
    async with fleet_of(server=raw_server(pages="empty")) as fleet:
        assert [tool.name for tool in fleet["server"].tools] == ["tool_0"]


async def test_more_tools_than_the_cap_are_cut() -> None:
    diagnostics = Diagnostics(Redaction(()))

    async def page(cursor: Json) -> dict[str, Any]:
        assert cursor is None
        tools = [{"name": f"t{n}", "inputSchema": {"type": "object"}} for n in range(MAX_LISTED + 1)]
        return {"tools": tools, "nextCursor": "more"}

    assert len(await read_listing(page, diagnostics)) == MAX_LISTED
    assert len(diagnostics.remarks) == 1


async def test_change_of_the_tools_is_followed() -> None:
    async with fleet_of(server=raw_server()) as fleet:
        await fleet["server"].call("change", {"name": "added"}, seconds=DEADLINE_SECONDS)
        await fleet.until(lambda: "added" in [tool.name for tool in fleet["server"].tools])
