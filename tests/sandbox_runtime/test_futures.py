"""Futures and tasks that a script uses as if they were their values, and those that it leaves to themselves."""

import pytest

from manifests.json_value import Json
from tests.sandbox_runtime.running import Runner

pytestmark = pytest.mark.anyio

GATHER = "r = asyncio.gather(*[git.git_log(count=i) for i in range(2)])\n"
TASK = "r = asyncio.create_task(git.git_log(count=1))\n"
UNTIL_DONE = "while not r.done():\n    await asyncio.sleep(0.001)\n"
USES = ["[x for x in r]", "{x['count']: x for x in r}", "a, b = r", "r[0]", "len(r)", "1 in r", "list(r)"]


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("pause", ["", UNTIL_DONE])
async def test_what_gather_gives_says_that_it_was_not_awaited(run: Runner, pause: str, use: str) -> None:
    result = await run(GATHER + pause + use)
    assert result.error is not None
    assert "write `await asyncio.gather(...)`" in result.error.message


@pytest.mark.parametrize("use", USES)
async def test_task_says_that_it_was_not_awaited(run: Runner, use: str) -> None:
    result = await run(TASK + UNTIL_DONE + use)
    assert result.error is not None
    assert "the task was not awaited: write `await` before it" in result.error.message


@pytest.mark.parametrize(
    ("script", "value"),
    [
        (GATHER + "[bool(r), await r]", [True, [{"count": 0}, {"count": 1}]]),
        (TASK + "[bool(r), await r, r.result(), await r]", [True, *[{"count": 1}] * 3]),
        (TASK + "await asyncio.gather(asyncio.gather(r))", [[{"count": 1}]]),
        (TASK + "await asyncio.wait_for(asyncio.shield(asyncio.gather(r)), 10)", [{"count": 1}]),
        (TASK + "done, _ = await asyncio.wait([r])\n[t.result() for t in done]", [{"count": 1}]),
        (TASK + "[await t for t in asyncio.as_completed([r])]", [{"count": 1}]),
        (
            "async with asyncio.TaskGroup() as group:\n    r = group.create_task(git.git_log(count=1))\nr.result()",
            {"count": 1},
        ),
        (
            TASK + "[isinstance(r, asyncio.Task), str(type(r)), await r]",
            [True, "<class '_asyncio.Task'>", {"count": 1}],
        ),
        (
            "r = asyncio.create_task(git.git_log(count=1), name='log')\n[repr(r), (await r)['count']]",
            ["<Task pending name='log' coro=<git.git_log()>>", 1],
        ),
    ],
)
async def test_future_that_is_awaited_is_as_ever(run: Runner, script: str, value: Json) -> None:
    assert await run.value(script) == value


@pytest.mark.parametrize(
    ("begun", "printed"),
    [
        ("asyncio.create_task(bad())", "script.py:2: Task exception was never retrieved: git is down\n"),
        ("asyncio.create_task(git.fails())", "Task exception was never retrieved: git is down\n"),
        (
            "asyncio.gather(bad(), bad())",
            "script.py:2: _GatheringFuture exception was never retrieved: git is down\n",
        ),
        ("asyncio.create_task(git.git_log())", ""),
    ],
)
async def test_failure_of_a_task_left_to_itself_is_told_in_a_line(
    run: Runner, begun: str, printed: str
) -> None:
    script = f"async def bad():\n    await git.fails()\nr = {begun}\n{UNTIL_DONE}del r\n1"
    result = await run(script)
    assert (result.error, result.value, result.stdout) == (None, 1, printed)


async def test_what_is_cancelled_as_the_script_ends_did_not_fail(run: Runner) -> None:
    script = (
        "async def main():\n    asyncio.gather(git.git_log(), git.git_log())\n    return 'sent'\nawait main()"
    )
    result = await run(script)
    assert (result.error, result.value, result.stdout) == (None, "sent", "")
