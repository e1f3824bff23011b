"""What the manifest grants besides tools is told to whoever asks what there is; values are told to scripts alone."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from manifests.json_value import Json
from sandbox_runtime.errors import WorkspaceError
from tests.portal.peers import Opened, opened, states

pytestmark = pytest.mark.anyio

SECRET = "hunter2"


@pytest.fixture(scope="module")
async def portal(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Opened]:
    capabilities: Json = {"environment": {"STAGE": "test", "API_KEY": "${KEY}"}}
    folder = tmp_path_factory.mktemp("granted")
    async with opened(folder, capabilities=capabilities, environ={"KEY": SECRET}) as portal:
        yield portal


async def test_script_reads_the_granted_variables(portal: Opened) -> None:
    assert await portal.result_of("import os\ndict(os.environ)") == {"STAGE": "test", "API_KEY": SECRET}


async def test_empty_search_names_the_variables_and_tells_no_value(portal: Opened) -> None:
    answer = await portal.search()
    assert [notice for notice in answer["notices"] if "API_KEY, STAGE" in notice]
    assert SECRET not in json.dumps(answer) + await portal.search_text()


async def test_without_grants_an_empty_search_tells_none(tmp_path: Path) -> None:
    async with opened(tmp_path) as portal:
        assert "os.environ" not in await portal.search_text()


@pytest.fixture(scope="module")
async def with_files(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Opened]:
    folder = tmp_path_factory.mktemp("with_files")
    (folder / "data").mkdir()
    (folder / "data" / "in.csv").write_text("a,b\n1,2\n")
    async with opened(folder, capabilities={"files": {"workspace": "data", "mode": "write"}}) as portal:
        yield portal


async def test_script_reads_and_writes_files_beside_the_manifest(with_files: Opened) -> None:
    code = (
        'import csv\nrows = list(csv.DictReader(open("in.csv")))\n'
        'with open("out.txt", "w") as f: f.write(str(len(rows)))\nrows'
    )
    assert await with_files.result_of(code) == [{"a": "1", "b": "2"}]
    assert await with_files.result_of('open("out.txt").read()') == "1"


async def test_ledger_counts_what_was_read_and_changed(with_files: Opened) -> None:
    code = (
        'import os\nos.path.exists("x")\nopen("in.csv").read()\nfor n in "ab": open(n, "w").close()\n'
        'for n in "ab": os.remove(n)\nos.mkdir("in.csv")'
    )
    answer = await with_files.run(code)
    assert [(row["seq"], row["function"], row["state"], row["count"]) for row in answer["calls"]] == [
        (1, "portal.files.read", "done", 2),
        (2, "portal.files.write", "done", 4),
        (3, "portal.files.write", "failed", 1),
    ]
    assert "4 done" in answer["error"]["hint"]


async def test_run_without_files_has_no_rows_of_them(with_files: Opened) -> None:
    assert states(await with_files.run("1")) == []


async def test_file_operations_are_no_tool_calls(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    grants: Json = {"files": {"workspace": "data"}, "limits": {"tool_calls": 0}}
    async with opened(tmp_path, capabilities=grants) as portal:
        assert await portal.result_of("import os\nos.listdir()") == []


async def test_model_is_told_of_the_files_where_it_looks(with_files: Opened) -> None:
    answer = await with_files.search()
    assert [notice for notice in answer["notices"] if "/workspace" in notice and "write" in notice]
    (definition,) = [t for t in (await with_files.client.list_tools()).tools if t.name == "execute_code"]
    assert definition.description and "files in /workspace" in definition.description


async def test_model_is_told_nothing_of_what_is_not_granted(portal: Opened) -> None:
    assert "/workspace" not in await portal.search_text()
    error = await portal.error_of('open("x")')
    assert "capabilities.files" in error["hint"]


async def test_session_keeps_its_files_to_itself(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    grants: Json = {"files": {"workspace": "data", "mode": "write", "share": "session"}}
    async with opened(tmp_path, capabilities=grants) as portal:
        session = (await portal.run('open("f", "w").write("mine")', session="new"))["session"]
        assert await portal.result_of('open("f").read()', session=session) == "mine"
        assert await portal.result_of("import os\nos.listdir()", session="new") == []
        assert await portal.result_of("import os\nos.listdir()") == []
    assert list((tmp_path / "data").iterdir()) == []


async def test_workspace_that_is_missing_is_said_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError):
        async with opened(tmp_path, capabilities={"files": {"workspace": "missing"}}):
            pass
