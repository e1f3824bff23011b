"""What a session keeps, no other session and no plain run has, reaches or ends."""

from collections.abc import AsyncIterator

import pytest

from sandbox_runtime.sandbox import Sandbox, Session, open_sandbox
from tests.sandbox_runtime.running import Runner
from tests.security.leaks import LEAKS, Leak

pytestmark = pytest.mark.anyio

# These hold per run: what the loop or the host sets at its start.
PER_RUN = {"context_variable"}
SESSION_LEAKS = [leak for leak in LEAKS if leak.name not in PER_RUN]


@pytest.fixture(scope="module")
async def sandbox(anyio_backend: str) -> AsyncIterator[Sandbox]:
    async with open_sandbox(workers=1, progress=print) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
async def sessions(sandbox: Sandbox) -> AsyncIterator[tuple[Session, Session]]:
    """Two, in which all leaks are tried one after the other."""
    first, second = await sandbox.open_session(), await sandbox.open_session()
    yield first, second
    first.close()
    second.close()


@pytest.mark.parametrize("leak", SESSION_LEAKS, ids=str)
async def test_what_a_session_keeps_is_its_own(
    run: Runner, sessions: tuple[Session, Session], leak: Leak
) -> None:
    first, second = sessions
    await run(leak.leave, session=first)
    assert (await run(leak.look, session=second)).value == leak.clean
    assert (await run(leak.look)).value == leak.clean
    assert (await run(leak.look, session=first)).value == leak.found
