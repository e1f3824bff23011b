"""Bait around the sandbox, ways to run hostile scripts in it, and a server that they may be granted."""

from collections.abc import AsyncIterator, Iterator

import pytest

from sandbox_runtime.sandbox import Sandbox
from tests.sandbox_runtime.fetching import Server, served
from tests.security.arena import Arena
from tests.security.bait import Bait, laid


@pytest.fixture(scope="session")
def bait(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bait]:
    with laid(tmp_path_factory.mktemp("bait")) as bait:
        yield bait


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with served() as server:
        yield server


@pytest.fixture
def arena(sandbox: Sandbox, bait: Bait) -> Arena:
    return Arena(sandbox, bait)
