"""Shared by all tests: how deep they search, one event loop, and one sandbox.

anyio runs on asyncio, the only loop the MCP SDK's servers are deployed on.
"""

import gc
import os
import ssl
from collections.abc import AsyncIterator, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import anyio
import httpx2
import keyring
import pytest
import structlog
from hypothesis import settings

from portal.catalog.check.language_server import TypeChecker
from sandbox_runtime.sandbox import Sandbox
from tests.one_sandbox import OneSandbox, one_sandbox
from tests.own_keyring import OwnKeyring
from tests.sandbox_runtime.running import Runner

# `scripts/check` chooses the quick one, and a release the full one. A deadline would make a slow machine a failure.
for name, examples in {"quick": 15, "usual": 30, "full": 200}.items():
    settings.register_profile(name, deadline=None, max_examples=examples)
settings.load_profile("usual")

# By default structlog shows the variables of each frame, which takes ten seconds where a portal is among them.
_PLAIN = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
structlog.configure(processors=[*structlog.get_config()["processors"][:-1], _PLAIN])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long go first: one that starts late would keep the other processes waiting for it."""
    long = ("tests/acceptance/", "tests/security/", "tests/upstreams/")
    items.sort(key=lambda item: not item.nodeid.startswith(long))


def pytest_collection_finish() -> None:
    """Keep the garbage collector from going through thousands of collected tests again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def state_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Portals in tests start without learned types, and leave none behind."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="session", autouse=True)
def trusted() -> Iterator[None]:
    """HTTP clients share what they trust, unless they say what: each of them would load it for 25 ms of computing."""
    create, usual = httpx2.create_ssl_context, cache(lambda *named: httpx2.create_ssl_context())

    def trusting(verify: Any = True, **more: Any) -> ssl.SSLContext:
        if verify is True:
            return usual(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
        return create(verify, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("httpx2._transports.default.create_ssl_context", trusting)
        yield


@pytest.fixture(scope="session", autouse=True)
def checkers_on_demand() -> Iterator[None]:
    """Type checkers start with the first script that needs one: half of the tests' portals have none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TypeChecker, "keep", lambda self: anyio.sleep_forever())
        yield


@pytest.fixture
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder for learned types of this test alone."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def own_keyring() -> Iterator[OwnKeyring]:
    """The system's keyring, for this test."""
    before, own = keyring.get_keyring(), OwnKeyring()
    keyring.set_keyring(own)
    yield own
    keyring.set_keyring(before)


@pytest.fixture(scope="session", autouse=True)
async def one(anyio_backend: str) -> AsyncIterator[OneSandbox]:
    """Not open yet. It keeps the event loop, too, which is one for all tests of a process."""
    async with one_sandbox() as one:
        yield one


@pytest.fixture(scope="session")
async def sandbox(one: OneSandbox) -> Sandbox:
    return await one.opened()


@pytest.fixture
def run(sandbox: Sandbox) -> Runner:
    return Runner(sandbox)
