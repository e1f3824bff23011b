"""Shared by all tests: anyio runs on asyncio, the only loop the MCP SDK's servers are deployed on."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
