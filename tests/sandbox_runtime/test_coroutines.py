"""A script's own async functions that it calls and never awaits."""

from collections.abc import AsyncIterator

import pytest

from sandbox_runtime.sandbox import Sandbox, Session
from tests.sandbox_runtime.running import Runner

pytestmark = pytest.mark.anyio

MAIN = "seen = []\nasync def main():\n    seen.append(await git.git_log())\n"
TOLD = "`main(...)` has not been awaited, so it has not run: it needs `await main(...)`"


@pytest.fixture
async def session(sandbox: Sandbox) -> AsyncIterator[Session]:
    session = await sandbox.open_session()
    yield session
    session.close()


@pytest.mark.parametrize(
    "kept", ["main()", "[main(), main()]", "{'first': main()}", "(1, main())", "{main()}"]
)
async def test_coroutine_that_is_kept_and_never_awaited_is_told(run: Runner, kept: str) -> None:
    result = await run(f"{MAIN}task = {kept}\nseen")
    assert (result.error, result.value, result.notices) == (None, [], (TOLD,))


@pytest.mark.parametrize(
    "use",
    [
        "await task",
        "asyncio.run(task)",
        "await asyncio.gather(task)",
        "task = asyncio.create_task(task)\nawait asyncio.sleep(0)",
        "task.close()",
        "del task, main",
    ],
)
async def test_coroutine_that_is_used_is_not_told(run: Runner, use: str) -> None:
    result = await run(f"{MAIN}task = main()\n{use}\n1")
    assert (result.error, result.value, result.notices) == (None, 1, ())


async def test_coroutine_of_a_library_is_not_told(run: Runner) -> None:
    assert (await run("task = asyncio.sleep(1)\n1")).notices == ()


async def test_later_run_of_the_session_may_await_it(run: Runner, session: Session) -> None:
    assert (await run(f"{MAIN}task = main()", session=session)).notices == (TOLD,)
    result = await run("await task\nlen(seen)", session=session)
    assert (result.error, result.value, result.notices) == (None, 1, ())
