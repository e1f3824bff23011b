"""What execute_code answers: value, prints, errors and notices of one script, and the calls it made."""

import json
from collections.abc import AsyncIterator

import pytest
from mcp_types import CallToolResult, ImageContent, TextContent

from manifests.json_value import Json
from tests.portal.peers import Opened, Peer, opened, schema, text_of, tool

IMAGE = ImageContent(data="aGk=", mime_type="image/png")


async def scan(arguments: dict[str, Json]) -> CallToolResult:
    return CallToolResult(content=[TextContent(text="caption"), IMAGE])


@pytest.fixture(scope="module")
def peer() -> Peer:
    typed = tool("typed", schema("a", a={"type": "integer", "maximum": 9}, b={"enum": ["x", "y"]}))
    return Peer(tool("scan"), typed, scan=scan)


@pytest.fixture(scope="module")
async def portal(peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Opened]:
    folder = tmp_path_factory.mktemp("execute_code")
    async with opened(folder, {"store": peer}) as portal:
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
        ("x = 1", 1),
        ("x: int = 1", 1),
        ("x = 1\nx += 1", 2),
        ("if __name__ == '__main__':\n    x = y = 3", 3),
        ("if __name__ == '__main__':\n    4", 4),
        ("x = {}\nx['a'] = 1", None),
        ("a, b = 1, 2", None),
        ("x = object()", None),
        ("if False:\n    return 1\nx = 2", 2),
    ],
)
async def test_a_script_that_ends_with_an_assignment_has_its_value(
    portal: Opened, code: str, value: Json
) -> None:
    answer = await portal.run(code)
    assert (answer["status"], answer["result"]) == ("ok", value)
    assert ("4" in code) == (answer["notices"] == [])


async def test_a_run_that_ends_before_its_last_assignment_tells_of_none(portal: Opened) -> None:
    answer = await portal.run("import sys\nif True:\n    sys.exit()\nx = 1")
    assert (answer["result"], answer["notices"]) == (None, [])


async def test_what_no_script_has_is_told_at_once_also_where_it_uses_no_namespace(portal: Opened) -> None:
    error = (await portal.run("import requests\nname = input('?')\nopen(name)"))["error"]
    assert error["code"] == "check_failed"
    assert [each for each in ("requests", "input", "files") if each not in error["message"]] == []


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
