"""A script sees the environment variables that it is granted, and no others."""

import pytest

from sandbox_runtime.grants.run_grants import RunGrants
from sandbox_runtime.sandbox import Sandbox
from tests.sandbox_runtime.running import Runner

pytestmark = pytest.mark.anyio

GRANTED = RunGrants(environment={"STAGE": "test", "ODD": "ä\n\"'= ☃"})
ALL = "import os\ndict(os.environ)"


async def test_without_a_grant_there_is_no_environment(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORTAL_SECRET", "hunter2")
    assert await run.value(ALL) == {}


async def test_exactly_what_is_granted_is_there(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORTAL_SECRET", "hunter2")
    result = await run(ALL, grants=GRANTED)
    assert (result.error, result.value) == (None, dict(GRANTED.environment))


async def test_a_session_keeps_what_it_set_beside_what_is_granted(run: Runner, sandbox: Sandbox) -> None:
    session = await sandbox.open_session()
    try:
        await run('import os\nos.environ.update(MORE="x", STAGE="mine")', session=session, grants=GRANTED)
        kept = (await run(ALL, session=session, grants=GRANTED)).value
    finally:
        session.close()
    assert kept == {**GRANTED.environment, "MORE": "x"}
