"""What the manifest grants besides tools is told to whoever asks what there is; values are told to scripts alone."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from manifests.json_value import Json
from tests.portal.peers import Opened, opened, states
from tests.sandbox_runtime.fetching import Server, hanging, served

SECRET = "hunter2"


@pytest.fixture(scope="module")
async def portal(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Opened]:
    capabilities: Json = {"environment": {"STAGE": "test", "API_KEY": "${KEY}"}}
    folder = tmp_path_factory.mktemp("granted")
    async with opened(folder, capabilities=capabilities, environ={"KEY": SECRET}) as portal:
        yield portal


async def test_empty_search_names_the_variables_and_tells_no_value(portal: Opened) -> None:
    answer = await portal.search()
    assert [notice for notice in answer["notices"] if "API_KEY, STAGE" in notice]
    assert SECRET not in json.dumps(answer) + await portal.search_text()


@pytest.fixture(scope="module")
async def with_files(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Opened]:
    folder = tmp_path_factory.mktemp("with_files")
    (folder / "data").mkdir()
    (folder / "data" / "in.csv").write_text("a,b\n1,2\n")
    async with opened(folder, capabilities={"files": {"workspace": "data", "mode": "write"}}) as portal:
        yield portal


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


async def test_model_is_told_of_the_files_where_it_looks(with_files: Opened) -> None:
    answer = await with_files.search()
    assert [notice for notice in answer["notices"] if "/workspace" in notice and "write" in notice]
    (definition,) = [t for t in (await with_files.client.list_tools()).tools if t.name == "execute_code"]
    assert definition.description and "files in /workspace" in definition.description


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with served() as server:
        yield server


async def test_script_fetches_and_the_ledger_tells_it(server: Server, tmp_path: Path) -> None:
    server.answers["/broken"] = b""
    grants: Json = {"network": {"private": [f"127.0.0.1:{server.port}"], "requests": 3}}
    urls = [f"{server.base}/broken", "http://evil.example/", f"{server.base}/b", f"{server.base}/c"]
    code = (
        f'import portal\nr = await portal.fetch("{server.base}/a")\nfor url in {urls!r}:\n'
        '    try:\n        await portal.fetch(url, method="POST")\n'
        "    except ToolError as error:\n        print(error.code)\nr.text"
    )
    async with opened(tmp_path, capabilities=grants) as portal:
        answer = await portal.run(code)
    assert (answer["status"], answer["result"]) == ("ok", "/a")
    assert answer["stdout"].split() == [
        "fetch_failed",
        "not_granted",
        "fetch_requests_limit",
        "fetch_requests_limit",
    ]
    assert states(answer) == [
        ("portal.fetch", state) for state in ("done", "unknown", "refused", "refused", "refused")
    ]


async def test_fetch_that_was_under_way_when_its_run_ended_is_unknown(server: Server, tmp_path: Path) -> None:
    server.answers["/hang"] = hanging
    grants: Json = {"network": {"private": [f"127.0.0.1:{server.port}"]}}
    async with opened(tmp_path, capabilities=grants) as portal:
        answer = await portal.run(f'await portal.fetch("{server.base}/hang")', timeout_seconds=1)
    assert answer["error"]["code"] == "wall_limit"
    assert states(answer) == [("portal.fetch", "unknown")]
