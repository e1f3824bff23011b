"""Scripts search and describe functions as models do, in the library that they were checked against."""

from collections.abc import AsyncIterator

import pytest

from manifests.json_value import Json
from tests.portal.peers import Opened, Peer, opened, schema, states, tool


@pytest.fixture(scope="module")
async def portal(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Opened]:
    tracker = Peer(
        tool("create_issue", schema("title", title={"type": "string"}), description="Create an issue."),
        tool("list-issues", description="List issues."),
        tool("delete_issue", description="Delete an issue."),
    )
    folder = tmp_path_factory.mktemp("script_search")
    upstreams: dict[str, Peer | dict[str, Json]] = {"tracker": tracker, "mail": Peer(tool("send"))}
    grants: Json = {"tools": {"deny": ["tracker.delete_*"]}, "limits": {"tool_calls": 3}}
    async with opened(folder, upstreams, capabilities=grants) as portal:
        yield portal


@pytest.mark.parametrize(
    "arguments",
    ['"issue"', '""', '"issue", detail="full", limit=1', '"tracker.list_issues"', '"x", upstream="no"'],
)
async def test_a_script_finds_what_docs_search_finds(portal: Opened, arguments: str) -> None:
    found = await portal.result_of(f"import portal\nawait portal.search({arguments})")
    told = eval(f"dict(query={arguments})")
    assert found == await portal.search(**told)


async def test_a_script_calls_what_it_found(portal: Opened) -> None:
    code = """
found = await portal.search("new ticket", limit=1)
namespace, _, name = found["functions"][0]["name"].partition(".")
import tools
await getattr(getattr(tools, namespace), name)(title="x")
"""
    assert await portal.result_of(code) == {"title": "x"}


@pytest.mark.parametrize("named", ['"tracker.list_issues"', "tracker.list_issues", '"list-issues"'])
async def test_a_function_is_described_by_itself_or_its_name(portal: Opened, named: str) -> None:
    row = await portal.result_of(f"await portal.describe({named})")
    assert (row["name"], row["tool"]) == ("tracker.list_issues", "list-issues")
    assert "List issues." in row["stub"]


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ('portal.describe("tracker.creat_issue")', "unknown_function"),
        ('portal.describe("tracker.delete_issue")', "not_granted"),
        ('portal.describe("delete_issue")', "not_granted"),
        ('portal.search("x", limit=51)', "invalid_arguments"),
        ('portal.search("x", detail="most")', "invalid_arguments"),
        ("portal.search(7)", "invalid_arguments"),
    ],
)
async def test_what_cannot_be_told_is_an_error_with_its_reason(portal: Opened, call: str, code: str) -> None:
    script = f"try:\n    await {call}\nexcept ToolError as error:\n    print(error.code)"
    answer = await portal.run(script)
    assert answer["stdout"] == f"{code}\n"
    assert [row["state"] for row in answer["calls"]] == ["refused"]


async def test_searches_count_as_calls_and_stand_in_the_ledger(portal: Opened) -> None:
    script = 'for _ in range(5):\n    await portal.search("issue")'
    answer = await portal.run(script)
    assert answer["error"]["code"] == "tool_calls_limit"
    assert states(answer) == [("portal.search", "done")] * 3 + [("portal.search", "refused")]


async def test_a_script_that_calls_docs_search_is_told_the_name_it_has_there(portal: Opened) -> None:
    error = await portal.error_of('await docs_search(query="issue")')
    assert "portal.search" in error["hint"]
