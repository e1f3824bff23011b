"""A server that hostile scripts may be granted."""

from collections.abc import AsyncIterator

import pytest

from tests.sandbox_runtime.fetching import Server, served


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with served() as server:
        yield server
