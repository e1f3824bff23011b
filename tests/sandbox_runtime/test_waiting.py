"""Awaited and forgotten things of a script: locks, tasks, coroutines, and the host's answers."""

import pytest

from manifests.json_value import Json
from tests.sandbox_runtime.running import EchoPort, Runner

HELD = """
import concurrent.futures, queue, threading
held = threading.Lock()
held.acquire()
"""
ATTEMPT = """
import time
def attempt():
    try:
        return str({0})
    except Exception as error:
        return type(error).__name__
began = time.monotonic()
[attempt(), time.monotonic() - began >= 0.05]
"""
WAITS = [
    ("threading.Event().wait({0})", "False"),
    ("threading.Barrier(2).wait({0})", "BrokenBarrierError"),
    ("queue.Queue().get(timeout={0})", "Empty"),
    ("concurrent.futures.Future().result(timeout={0})", "TimeoutError"),
]
ENDLESS = ["threading.Event().wait()", "held.acquire()", "queue.SimpleQueue().get()"]
GATHER = "r = asyncio.gather(*[git.git_log(count=i) for i in range(2)])\n"
TASK = "r = asyncio.create_task(git.git_log(count=1))\n"
UNTIL_DONE = "while not r.done():\n    await asyncio.sleep(0.001)\n"
MAIN = "seen = []\nasync def main():\n    seen.append(await git.git_log())\n"
TOLD = "`main(...)` has not been awaited, so it has not run: it needs `await main(...)`"


@pytest.mark.parametrize(("wait", "outcome"), WAITS)
async def test_wait_with_a_timeout_has_its_time(run: Runner, wait: str, outcome: str) -> None:
    assert await run.value(HELD + ATTEMPT.format(wait.format(0.05))) == [outcome, True]


@pytest.mark.parametrize("wait", ENDLESS)
async def test_wait_that_nobody_could_end_is_an_error_with_its_line(run: Runner, wait: str) -> None:
    result = await run(f"{HELD}print('half', end='')\n{wait}")
    assert result.error is not None
    assert (result.error.code, result.error.line) == ("script_error", HELD.count("\n") + 2)
    assert "DeadlockError" in result.error.message
    assert result.stdout == "half"


@pytest.mark.parametrize("use", ["a, b = r", "r[0]", "len(r)", "1 in r"])
async def test_future_that_is_used_as_its_value_says_that_it_was_not_awaited(run: Runner, use: str) -> None:
    for begun, told in ((GATHER, "write `await asyncio.gather(...)`"), (TASK, "write `await` before it")):
        error = await run.error(begun + UNTIL_DONE + use)
        assert told in error.message


async def test_failure_of_a_task_left_to_itself_is_told_in_a_line(run: Runner) -> None:
    script = f"async def bad():\n    await git.fails()\nr = asyncio.create_task(bad())\n{UNTIL_DONE}del r\n1"
    told = "script.py:2: Task exception was never retrieved: git is down\n"
    result = await run(script)
    assert (result.error, result.value, result.stdout) == (None, 1, told)


@pytest.mark.parametrize("kept", ["main()", "[main(), main()]", "{'first': main()}"])
async def test_coroutine_that_is_kept_and_never_awaited_is_told(run: Runner, kept: str) -> None:
    result = await run(f"{MAIN}task = {kept}\nseen")
    assert (result.error, result.value, result.notices) == (None, [], (TOLD,))


@pytest.mark.parametrize(
    ("call", "function", "arguments"),
    [
        ("sleep()", "sleep", {"seconds": 0}),
        ("sleep(1, minutes=1, hours=0.5, days=2)", "sleep", {"seconds": 174_661}),
        ("event('deployed', timeout=0.5)", "event", {"name": "deployed", "timeout": 0.5}),
        ("event_url('deployed')", "event_url", {"name": "deployed"}),
        ("approve('really?')", "approve", {"question": "really?"}),
        ("recall('kept_1')", "recall", {"handle": "kept_1"}),
        (
            "search_text('kept_1', 'error', limit=3)",
            "search_text",
            {"handle": "kept_1", "text": "error", "context": 200, "limit": 3},
        ),
    ],
)
async def test_each_is_a_call_of_the_host(
    run: Runner, call: str, function: str, arguments: dict[str, Json]
) -> None:
    port = EchoPort()
    assert await run.value(f"await portal.{call}", port=port) == arguments
    assert [(each.function, each.arguments) for each in port.calls] == [(f"portal.{function}", arguments)]


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        ("sleep('5')", "TypeError"),
        ("sleep(-1)", "ValueError"),
        ("sleep(float('nan'))", "ValueError"),
        ("sleep(10 ** 400)", "ValueError"),
        ("event('x', timeout='1')", "TypeError"),
        ("event('x', timeout=-1)", "ValueError"),
    ],
)
async def test_time_that_cannot_be_waited_is_the_script_s_mistake(run: Runner, call: str, kind: str) -> None:
    port = EchoPort()
    script = (
        f"try:\n    await portal.{call}\nexcept (TypeError, ValueError) as e:\n    x = type(e).__name__\nx"
    )
    assert await run.value(script, port=port) == kind
    assert port.calls == []


@pytest.mark.parametrize("use", ["if asked: x = 1", "x = not asked", "x = asked and 1", "assert asked"])
async def test_approval_that_was_not_awaited_asks_all_the_same(run: Runner, use: str) -> None:
    port = EchoPort()
    result = await run(f"asked = portal.approve('really?')\n{use}\n1", port=port)
    assert (result.error, [call.function for call in port.calls]) == (None, ["portal.approve"])


@pytest.mark.parametrize("hidden", ["getattr(portal, 'approve')", "[portal.approve][0]"])
async def test_approval_that_nothing_awaits_is_no_yes(run: Runner, hidden: str) -> None:
    error = await run.error(f"if {hidden}('really?'): x = 1")
    assert "await portal.approve(...)" in error.message


async def test_wait_that_was_not_awaited_is_waited_for(run: Runner) -> None:
    port = EchoPort()
    result = await run("for i in range(2):\n    portal.sleep(hours=1)\n1", port=port)
    assert (result.value, len(port.calls)) == (1, 2)
