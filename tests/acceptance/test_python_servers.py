"""Five real servers from PyPI behind one portal over stdio, at work on a repository, a database and a workbook."""

import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.acceptance import real_servers
from tests.acceptance.model import Json, Model
from tests.acceptance.portal_process import stdio_model, write_manifest
from tests.acceptance.scratch import git_output, make_database, make_repository, rows
from tests.acceptance.tool_listing import assert_every_tool_is_a_function

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("python_servers")
    make_repository(folder / "repository")
    make_database(folder / "shop.db")
    return folder


@pytest.fixture(scope="module")
def servers(folder: Path) -> dict[str, dict[str, Json]]:
    return {
        "git": real_servers.git(folder / "repository"),
        "time": real_servers.time(),
        "fetch": real_servers.fetch(),
        "shop": real_servers.sqlite(folder / "shop.db"),
        "excel": real_servers.excel(folder),
    }


@pytest.fixture(scope="module")
async def model(folder: Path, servers: dict[str, dict[str, Json]]) -> AsyncIterator[Model]:
    # Most tools of the workbooks declare themselves destructive, so a rule has to name them.
    granted: Json = {"tools": {"allow": ["*", "excel.*"]}}
    manifest = write_manifest(folder, servers, server={"output_tokens": 100_000}, capabilities=granted)
    async with stdio_model(manifest) as model:
        yield model


async def test_every_upstream_is_listed_as_ready(model: Model) -> None:
    namespaces = (await model.search())["namespaces"]
    assert {row["upstream"]: row["state"] for row in namespaces} == dict.fromkeys(
        ("git", "time", "fetch", "shop", "excel"), "ready"
    )


async def test_an_upstream_named_like_a_module_gets_another_namespace(model: Model) -> None:
    namespaces = (await model.search())["namespaces"]
    assert {row["upstream"]: row["namespace"] for row in namespaces}["time"] == "time_"


@pytest.mark.parametrize("upstream", ["git", "time", "fetch", "shop", "excel"])
async def test_every_tool_is_a_function(
    model: Model, servers: dict[str, dict[str, Json]], upstream: str
) -> None:
    await assert_every_tool_is_a_function(model, upstream, servers[upstream])


async def test_search_finds_the_function_for_a_step(model: Model) -> None:
    answer = await model.search("record the staged changes as a commit")
    assert "git.git_commit" in [function["name"] for function in answer["functions"]]


async def test_exact_name_answers_the_function_in_full(model: Model) -> None:
    answer = await model.search("shop.read_query")
    assert [function["name"] for function in answer["functions"]] == ["shop.read_query"]
    assert "query: str" in answer["functions"][0]["signature"]


async def test_script_makes_a_commit(model: Model, folder: Path) -> None:
    repository = folder / "repository"
    (repository / "tea.txt").write_text("Assam\n")
    await model.result_of(
        f"""
repo = {str(repository)!r}
await git.git_add(repo_path=repo, files=["tea.txt"])
await git.git_commit(repo_path=repo, message="Note the tea")
"""
    )
    assert git_output(repository, "log", "-1", "--format=%s") == "Note the tea"
    assert git_output(repository, "show", "HEAD:tea.txt") == "Assam"


async def test_script_inserts_rows_one_after_the_other(model: Model, folder: Path) -> None:
    answer = await model.run(
        """
for item in ("cup", "spoon"):
    await shop.write_query(query=f"insert into orders (item, price) values ('{item}', 2)")
"""
    )
    assert [(call["function"], call["state"]) for call in answer["calls"]] == [
        ("shop.write_query", "done")
    ] * 2
    assert rows(folder / "shop.db", "select item from orders where price = 2 order by item") == [
        ("cup",),
        ("spoon",),
    ]


async def test_script_fills_a_workbook(model: Model, folder: Path) -> None:
    book = folder / "book.xlsx"
    read = await model.result_of(
        f"""
book = {str(book)!r}
await excel.create_workbook(path=book, sheets=["Tea"])
await excel.write_range(path=book, sheet="Tea", at="A1", rows=[["leaf", "grams"], ["Assam \u2615", 12.5]])
(await excel.read_range(path=book, sheet="Tea"))["values"]
"""
    )
    assert read == [["leaf", "grams"], ["Assam \u2615", 12.5]]
    with zipfile.ZipFile(book) as archive:
        assert any("Assam \u2615".encode() in archive.read(name) for name in archive.namelist())


async def test_script_joins_three_servers_in_parallel(model: Model, folder: Path) -> None:
    answer = await model.run(
        f"""
import asyncio
orders, log, now = await asyncio.gather(
    shop.read_query(query="select item from orders where id <= 2 order by id"),
    git.git_log(repo_path={str(folder / "repository")!r}),
    time_.get_current_time(timezone="UTC"),
)
{{"orders": [row["item"] for row in orders], "begun": "Begin" in str(log), "zone": now["timezone"]}}
"""
    )
    assert answer["result"] == {"orders": ["tea", "pot"], "begun": True, "zone": "UTC"}
    assert {call["state"] for call in answer["calls"]} == {"done"}


async def test_tool_error_is_caught_with_the_tools_own_text(model: Model) -> None:
    told = await model.result_of(
        """
try:
    await fetch.fetch(url="http://127.0.0.1:9/")
except ToolError as error:
    told = str(error)
told
"""
    )
    assert "is not a public address" in told


async def test_uncaught_tool_error_ends_the_script_and_is_in_the_ledger(model: Model) -> None:
    answer = await model.run(
        """
await shop.list_tables()
await fetch.fetch(url="http://127.0.0.1:9/")
await shop.list_tables()
"""
    )
    assert answer["status"] == "error"
    assert "is not a public address" in answer["error"]["message"]
    assert answer["error"]["line"] == 3
    assert [call["state"] for call in answer["calls"]] == ["done", "failed"]


async def test_wrong_argument_is_refused_before_anything_runs(model: Model, folder: Path) -> None:
    answer = await model.run(
        """
await shop.write_query(query="insert into orders (item, price) values ('never', 0)")
await time_.get_current_time(zone="UTC")
"""
    )
    assert answer["status"] == "refused"
    assert answer["calls"] == []
    assert rows(folder / "shop.db", "select * from orders where item = 'never'") == []
