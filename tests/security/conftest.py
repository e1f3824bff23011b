"""Commands that a test runs, and a server that hostile scripts may be granted."""

import gc
from collections.abc import AsyncIterator, Iterator

import pytest

from sandbox_runtime.sandbox import Sandbox, Session
from tests.portal.commands import PortalCommand, portal_command
from tests.sandbox_runtime.fetching import Server, served


@pytest.fixture
def portal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> PortalCommand:
    return portal_command(monkeypatch, capsys)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with served() as server:
        yield server


@pytest.fixture
async def session(sandbox: Sandbox) -> AsyncIterator[Session]:
    session = await sandbox.open_session()
    yield session
    session.close()


@pytest.fixture
def no_collections() -> Iterator[None]:
    """Python 3.11 may fail to parse if it collects garbage while parsing."""
    gc.disable()
    yield
    gc.enable()
