"""A server and a folder that scripts are granted."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.sandbox_runtime.fetching import FetchRunner, Server, granting, served
from tests.sandbox_runtime.granted_files import FileRunner, granted
from tests.sandbox_runtime.running import Runner


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with served() as server:
        yield server


@pytest.fixture
def fetch(run: Runner, server: Server) -> FetchRunner:
    return granting(run, f"127.0.0.1:{server.port}")


@pytest.fixture
async def files(run: Runner, tmp_path: Path) -> AsyncIterator[FileRunner]:
    async with granted(run, tmp_path) as files:
        yield files
