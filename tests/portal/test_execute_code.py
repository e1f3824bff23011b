"""What execute_code answers: value, prints, errors and notices of one script, and the calls it made."""

import json
from collections.abc import AsyncIterator

import pytest
from mcp_types import CallToolResult, ImageContent, TextContent

from manifests.json_value import Json
from tests.portal.peers import Opened, Peer, opened, schema, states, structured, text, text_of, tool

pytestmark = pytest.mark.anyio

IMAGE = ImageContent(data="aGk=", mime_type="image/png")


async def fail(arguments: dict[str, Json]) -> CallToolResult:
    return text("there is no row 7", is_error=True)


async def scan(arguments: dict[str, Json]) -> CallToolResult:
    return CallToolResult(content=[TextContent(text="caption"), IMAGE])


async def count(arguments: dict[str, Json]) -> CallToolResult:
    return structured({"result": 2**63 + 1})


@pytest.fixture(scope="module")
def peer() -> Peer:
    wrapped = {"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]}
    return Peer(
        tool("echo"),
        tool("fail"),
        tool("scan"),
        tool("count", output_schema=wrapped),
        tool("typed", schema("a", a={"type": "integer", "maximum": 9}, b={"enum": ["x", "y"]})),
        tool("delete-it", schema("class", **{"class": {"type": "string"}})),
        tool("drop_all"),
        fail=fail,
        scan=scan,
        count=count,
    )


@pytest.fixture(scope="module")
async def portal(peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Opened]:
    folder = tmp_path_factory.mktemp("execute_code")
    async with opened(folder, {"store": peer}, capabilities={"tools": {"deny": ["drop_*"]}}) as portal:
        yield portal


async def test_an_answer_has_these_fields_in_both_forms(portal: Opened) -> None:
    answer = await portal.run("print('said')\n{'a': 1}")
    run_id = answer.pop("run_id")
    assert isinstance(run_id, str) and run_id
    assert answer == {
        "status": "ok",
        "result": {"a": 1},
        "stdout": "said\n",
        "error": None,
        "calls": [],
        "notices": [],
    }


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("1 + 1", 2),
        ("x = 1\nif x:\n    return ['early']\n'late'", ["early"]),
        ("x = 1", None),
        ("", None),
        ("# nothing\n", None),
        ("[2**63 - 1, -2**63, 2**70]", [2**63 - 1, -(2**63), 2**70]),
        ("'zürich 😀 \\u2028 \\x00'", "zürich 😀 \u2028 \x00"),
        ("(1, 2.5, None, True)", [1, 2.5, None, True]),
        ("import sys\nprint('bye')\nsys.exit(0)", None),
        ("from tools import store\nawait store.echo(a=1)", {"a": 1}),
        ("import store\nawait store.echo(a=1)", {"a": 1}),
        ("import statistics, decimal\nstatistics.mean([1, 3])", 2),
    ],
)
async def test_the_value_of_a_script(portal: Opened, code: str, value: Json) -> None:
    assert await portal.result_of(code) == value


@pytest.mark.parametrize(
    ("code", "place", "kind"), [("{'a': [1, 2j]}", "['a'][1]", "complex"), ("object()", "result", "object")]
)
async def test_a_value_that_is_not_json_is_named_with_its_place(
    portal: Opened, code: str, place: str, kind: str
) -> None:
    error = await portal.error_of(code)
    assert error["code"] == "result_not_json"
    assert place in error["message"]
    assert kind in error["message"]


async def test_a_syntax_error_is_refused_with_its_line(portal: Opened) -> None:
    answer = await portal.run("await store.echo(a=1)\nx = (\n")
    assert answer["status"] == "refused"
    assert (answer["error"]["code"], answer["error"]["line"]) == ("syntax_error", 2)
    assert answer["calls"] == []


async def test_a_tool_error_is_caught_with_the_tools_own_text(portal: Opened) -> None:
    code = (
        "try:\n    await store.fail()\nexcept ToolError as error:\n    told = [str(error), error.code]\ntold"
    )
    answer = await portal.run(code)
    assert answer["result"] == ["there is no row 7", "tool_error"]
    assert states(answer) == [("store.fail", "failed")]


async def test_a_tool_error_that_nobody_catches_is_the_scripts_error(portal: Opened) -> None:
    answer = await portal.run("await store.echo(a=1)\nawait store.fail()")
    assert (answer["error"]["code"], answer["error"]["message"]) == ("tool_error", "there is no row 7")
    assert answer["error"]["line"] == 2
    assert states(answer) == [("store.echo", "done"), ("store.fail", "failed")]
    assert "calls" in answer["error"]["hint"], "it is told that a call was done"


async def test_a_call_that_the_check_cannot_see_is_refused_by_the_broker(portal: Opened, peer: Peer) -> None:
    code = (
        "errors = []\n"
        "for name, arguments in [('typed', {'a': 'no'}), ('typed', {'a': 10}), ('typed', {'a': 1, 'c': 2})]:\n"
        "    try:\n"
        "        await getattr(store, name)(**arguments)\n"
        "    except ToolError as error:\n"
        "        errors.append([error.code, bool(error.hint)])\n"
        "errors"
    )
    answer = await portal.run(code)
    assert answer["result"] == [["invalid_arguments", True]] * 3
    assert {row["state"] for row in answer["calls"]} == {"refused"}
    assert "typed" not in [name for name, _ in peer.calls]


async def test_an_image_reaches_the_client_beside_the_answer(portal: Opened) -> None:
    code = "blocks = await store.scan()\nportal.emit(blocks[1])\n[block['type'] for block in blocks]"
    result = await portal.call("execute_code", code=code)
    assert json.loads(text_of(result))["result"] == ["text", "image"]
    assert result.content[1:] == [IMAGE]


async def test_wrong_arguments_of_the_tool_itself_are_refused(portal: Opened) -> None:
    for arguments in ({}, {"code": 1}, {"code": "1", "timeout": 5}, {"code": "1", "timeout_seconds": -1}):
        result = await portal.call("execute_code", **arguments)
        assert result.is_error
        assert isinstance(result.structured_content, dict)
        assert result.structured_content["error"]["code"] == "invalid_arguments"
