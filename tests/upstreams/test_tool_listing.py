"""Usable parts of any listing are kept and the rest noted; and each listing ends."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from mcp.server import Server
from mcp_types import ListToolsResult, Tool

from manifests.grants import Hints
from manifests.json_value import Json
from tests.upstreams.peers import fleet_of, in_memory, raw_server
from upstreams.errors import UpstreamAnswerError, UpstreamRefusedError, UpstreamTimeoutError
from upstreams.health import Diagnostics
from upstreams.redaction import Redaction
from upstreams.tools import MAX_LISTED, MAX_PAGES, RecordedTool, read_listing
from upstreams.upstream import MAX_ARGUMENTS, Listed, read_offered

GOOD = {"name": "good", "inputSchema": {"type": "object"}}


async def listed(*tools: Json) -> tuple[dict[str, RecordedTool], list[str]]:
    """The kept tools of such a listing, and the remarks about it."""
    diagnostics = Diagnostics(Redaction(()))

    async def page(cursor: Json) -> dict[str, Json]:
        assert cursor is None, "there is enough"
        return {"tools": [*tools], "nextCursor": "more" if len(tools) > MAX_LISTED else None}

    return {tool.name: tool for tool in await read_listing(page, diagnostics)}, [*diagnostics.remarks]


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
    assert diagnostics == []


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


async def test_empty_cursor_ends_a_listing_only_before_2026_07_28() -> None:
    async def list_tools(context: Any, params: Any) -> ListToolsResult:
        is_first = params is None or params.cursor is None
        tool = Tool(name="first" if is_first else "second", input_schema={"type": "object"})
        return ListToolsResult(tools=[tool], next_cursor="" if is_first else None)

    async with in_memory(Server("modern", on_list_tools=list_tools)) as upstream:
        assert [tool.name for tool in upstream.tools] == ["first", "second"]
    async with fleet_of(one=raw_server(end={"nextCursor": ""})) as fleet:
        assert [tool.name for tool in fleet.one.tools] == ["echo"]


async def test_more_tools_than_the_cap_are_cut() -> None:
    tools, remarks = await listed(*({"name": f"t{n}", "inputSchema": {}} for n in range(MAX_LISTED + 1)))
    assert (len(tools), len(remarks)) == (MAX_LISTED, 1)


Page = Callable[[Json], Awaitable[dict[str, Json]]]


def pages(*answers: dict[str, Json] | Exception) -> Page:
    """Answers these, one after the other, and the last one again and again."""
    asked = 0

    async def page(cursor: Json) -> dict[str, Json]:
        nonlocal asked
        answer = answers[min(asked, len(answers) - 1)]
        asked += 1
        if isinstance(answer, Exception):
            raise answer
        return answer

    return page


def rows(count: int) -> list[Json]:
    return [{"uri": f"note://{number}", "name": "n"} for number in range(count)]


@pytest.mark.parametrize(
    ("listed", "raw", "read"),
    [
        ("resources", [{"uri": "a:b", "name": "n", "size": 3}], [{"uri": "a:b", "name": "n", "size": 3}]),
        ("resources", [{"uri": "a:b"}], [{"uri": "a:b", "name": "a:b"}]),
        ("resources", [{"uri": "a:b", "name": 7}, {"uri": "c:d", "title": []}], []),
        ("resources", [{"uri": "a:b", "name": each} for each in "12"], [{"uri": "a:b", "name": "1"}]),
        ("resources", [None, 7, "x", [], {}, {"uri": ""}, {"uri": 7}, {"uri": "x" * 9_000}], []),
        ("resources", "no list", []),
        ("resources", None, []),
        ("resourceTemplates", [{"uriTemplate": "a:{b}"}], [{"uriTemplate": "a:{b}", "name": "a:{b}"}]),
        ("prompts", [{"name": "p"}], [{"name": "p", "arguments": []}]),
        (
            "prompts",
            [{"name": "p", "arguments": [{"name": "a"}]}, {"name": "q", "arguments": [{"name": 7}]}],
            [{"name": "p", "arguments": [{"name": "a", "required": False}]}],
        ),
    ],
)
async def test_rows_are_kept_as_far_as_they_can_be_used(listed: Listed, raw: Json, read: Json) -> None:
    assert await read_offered(listed, pages({listed: raw})) == read


async def test_prompts_with_too_many_arguments_are_left_out() -> None:
    """Each is validated, which would block the event loop for seconds."""
    noted: list[str] = []
    few, many = [{"name": "a"}] * (MAX_ARGUMENTS - 1), [{"name": ""}] * 1_000_000
    listing = {"prompts": [{"name": "p", "arguments": few}, {"name": "q"}, {"name": "r", "arguments": many}]}
    found = await read_offered("prompts", pages(listing), noted.append)
    assert [row["name"] for row in found] == ["p", "q"]
    assert "20000 arguments" in noted[0]


async def test_field_of_a_row_that_is_not_used_is_not_read() -> None:
    odd = {"icons": [7] * 1_000_000, "annotations": {"audience": [7] * 1_000_000}}
    (row,) = await read_offered("resources", pages({"resources": [{"uri": "a:", **odd}]}))
    assert row.keys() == {"uri", "name"}


async def test_pages_follow_one_another_and_end() -> None:
    first: dict[str, Json] = {"resources": rows(2), "nextCursor": "2"}
    last: dict[str, Json] = {"resources": [{"uri": "last:"}]}
    assert len(await read_offered("resources", pages(first, last))) == 3
    assert len(await read_offered("resources", pages(first))) == 2, "a cursor that came before ends it"


async def test_pagination_without_end_is_cut() -> None:
    noted, diagnostics = list[str](), Diagnostics(Redaction(()))

    async def page(cursor: Json) -> dict[str, Json]:
        number = cursor or 0
        tool = {"name": f"tool_{number}", "inputSchema": {"type": "object"}}
        return {"resources": [{"uri": f"note://{number}"}], "tools": [tool], "nextCursor": number + 1}

    assert len(await read_offered("resources", page, noted.append)) == MAX_PAGES
    assert len(await read_listing(page, diagnostics)) == MAX_PAGES
    assert (len(noted), len(diagnostics.remarks)) == (1, 1)


async def test_a_server_that_does_not_know_the_method_offers_nothing() -> None:
    unknown = UpstreamRefusedError("no", rpc_code=-32601)
    assert await read_offered("prompts", pages(unknown)) == []
    for error in (
        UpstreamRefusedError("no", rpc_code=-32000),
        UpstreamAnswerError("no"),
        UpstreamTimeoutError("no"),
    ):
        with pytest.raises(type(error)):
            await read_offered("prompts", pages(error))
        first: dict[str, Json] = {"resources": rows(2), "nextCursor": "2"}
        assert len(await read_offered("resources", pages(first, error))) == 2


@pytest.mark.parametrize(("cursor", "count"), [
    *((each, 2) for each in ("x", "", 1, 0, 1.5)), *((each, 1) for each in (True, {}, ["x"])),
])  # fmt: skip
async def test_cursor_is_followed_whatever_it_is_or_noted(cursor: Json, count: int) -> None:
    noted: list[str] = []
    first, last = rows(2)
    listed = pages({"resources": [first], "nextCursor": cursor}, {"resources": [last]})
    assert await read_offered("resources", listed, noted.append) == [first, last][:count]
    assert ["nextCursor" in each for each in noted] == [True] * (2 - count)
