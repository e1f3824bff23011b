"""Grants besides tools are shown to every caller that searches; their values only to scripts."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from manifests.json_value import Json
from tests.portal.peers import Opened, opened, states
from tests.sandbox_runtime.fetching import hanging, served

SECRET = "hunter2"


@pytest.fixture(scope="module")
async def portal(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Opened]:
    folder = tmp_path_factory.mktemp("granted")
    (folder / "data").mkdir()
    (folder / "data" / "in.csv").write_text("a,b\n1,2\n")
    files = {"workspace": "data", "mode": "write"}
    capabilities: Json = {"environment": {"STAGE": "test", "API_KEY": "${KEY}"}, "files": files}
    on: Json = {"kernels": {"javascript": True}}
    async with opened(folder, capabilities=capabilities, environ={"KEY": SECRET}, server=on) as portal:
        yield portal


async def test_model_is_told_of_files_and_variables_and_of_no_value(portal: Opened) -> None:
    answer = await portal.search()
    for told in ("API_KEY, STAGE", "/workspace"):
        assert [notice for notice in answer["notices"] if told in notice]
    assert SECRET not in json.dumps(answer) + await portal.search_text()
    notices = (await portal.search(kernel="javascript"))["notices"]
    assert any("kernel python have the files" in each for each in notices)
    assert "scripts see in portal.env: API_KEY, STAGE" in notices


async def test_ledger_counts_what_was_read_and_changed(portal: Opened) -> None:
    code = (
        'import os\nos.path.exists("x")\nopen("in.csv").read()\nfor n in "ab": open(n, "w").close()\n'
        'for n in "ab": os.remove(n)\nos.mkdir("in.csv")'
    )
    answer = await portal.run(code)
    assert [(row["seq"], row["function"], row["state"], row["count"]) for row in answer["calls"]] == [
        (1, "portal.files.read", "done", 2),
        (2, "portal.files.write", "done", 4),
        (3, "portal.files.write", "failed", 1),
    ]
    assert "4 done" in answer["error"]["hint"]


async def test_script_fetches_and_the_ledger_tells_it(tmp_path: Path) -> None:
    async with served() as server:
        server.answers |= {"/broken": b"", "/hang": hanging}
        grants: Json = {"network": {"private": [f"127.0.0.1:{server.port}"], "requests": 3}}
        urls = [f"{server.base}/broken", "http://evil.example/", f"{server.base}/b"]
        code = (
            f'r = await portal.fetch("{server.base}/a")\nfor url in {urls!r}:\n'
            '    try:\n        await portal.fetch(url, method="POST")\n'
            "    except ToolError as error:\n        print(error.code)\nr.text"
        )
        async with opened(tmp_path, capabilities=grants) as portal:
            answer = await portal.run(code)
            late = await portal.run(f'await portal.fetch("{server.base}/hang")', timeout_seconds=1)
    assert (answer["status"], answer["result"]) == ("ok", "/a")
    assert answer["stdout"].split() == ["fetch_failed", "not_granted", "fetch_requests_limit"]
    assert [state for _, state in states(answer)] == ["done", "unknown", "refused", "refused"]
    assert (late["error"]["code"], states(late)) == ("wall_limit", [("portal.fetch", "unknown")])
