"""One open sandbox per test module, and a way to run a hostile script in it."""

from collections.abc import AsyncIterator

import pytest

from sandbox_runtime.sandbox import Sandbox, open_sandbox
from tests.sandbox_runtime.running import Runner


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Module-wide, because the sandbox is: its sockets belong to one event loop."""
    return "asyncio"


@pytest.fixture(scope="module")
async def sandbox(anyio_backend: str) -> AsyncIterator[Sandbox]:
    async with open_sandbox(workers=2, progress=print) as sandbox:
        yield sandbox


@pytest.fixture
def run(sandbox: Sandbox) -> Runner:
    return Runner(sandbox)
