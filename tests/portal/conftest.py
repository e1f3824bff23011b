"""One event loop for all tests here, so that several can share a portal."""

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
