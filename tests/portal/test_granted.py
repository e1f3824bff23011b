"""What the manifest grants besides tools is told to whoever asks what there is; values are told to scripts alone."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from manifests.json_value import Json
from tests.portal.peers import Opened, opened

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
