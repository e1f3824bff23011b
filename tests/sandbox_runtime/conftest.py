"""A server and a folder that scripts are granted, a recorder of runs, a session, and the component that they run in."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from sandbox_runtime.aot import AotCache, default_cache, guest_component
from sandbox_runtime.sandbox import Sandbox, Session
from tests.sandbox_runtime.fetching import FetchRunner, Server, granting, served
from tests.sandbox_runtime.granted_files import FileRunner, granted
from tests.sandbox_runtime.replay.recorder import Recorder
from tests.sandbox_runtime.running import Runner


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
def fetch(run: Runner, server: Server) -> FetchRunner:
    return granting(run, f"127.0.0.1:{server.port}")


@pytest.fixture
async def files(run: Runner, tmp_path: Path) -> AsyncIterator[FileRunner]:
    async with granted(run, tmp_path) as files:
        yield files


@pytest.fixture
def recorded(sandbox: Sandbox) -> Recorder:
    return Recorder(sandbox)


@pytest.fixture(scope="module")
def compiled() -> Iterator[str]:
    cache = AotCache(default_cache(os.environ), print)
    yield str(cache.compiled(guest_component()))
    cache.close()
