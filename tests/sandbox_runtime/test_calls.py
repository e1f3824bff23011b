"""Calls: how scripts write them, what a port and its observer see, and the end of those that are never awaited."""

import asyncio
from types import SimpleNamespace
from typing import Any

import anyio.lowlevel
import pytest

from manifests.grants import Limits
from manifests.json_value import Json
from sandbox_runtime.call_port import Outcome, ToolCall
from sandbox_runtime.calls import CallsInFlight
from sandbox_runtime.result import Bounds
from tests.sandbox_runtime.running import EchoPort, Heard, Runner, answering

SIGNATURE = "(*, count: int = 10) -> list[dict]"


async def test_a_lone_answer_is_sent_in_the_turn_of_its_call_and_those_of_one_moment_together() -> None:
    told = list[bytes]()

    async def port(_: ToolCall) -> Outcome:
        asyncio.get_running_loop().call_soon(told.append, b"next turn")
        return Outcome(0)

    worker: Any = SimpleNamespace(
        is_alive=True, is_congested=False, send=lambda _, answers: told.append(answers)
    )
    calls = CallsInFlight(worker, port, None, Bounds(Limits(), str), pytest.fail, None, None)
    for batch in (b"1 git.git_log {}", b"2 git.git_log {}\n3 git.git_log {}"):
        calls.receive(batch)
        while calls.running:
            await anyio.lowlevel.checkpoint()
    assert told == [b"[1,1,0]", b"next turn", b"next turn", b"[2,1,0],[3,1,0]", b"next turn"]


async def test_timeout_in_the_script_cancels_its_call(run: Runner) -> None:
    port = EchoPort()
    # Both are sent at once, so the answer to one shows that the other has begun, however slow the machine is.
    script = """
import asyncio
call = asyncio.ensure_future(git.hangs())
await git.git_log()
try:
    async with asyncio.timeout(0.02):
        await call
except TimeoutError:
    x = 'late'
await git.git_log()
x
"""
    assert await run.value(script, port=port) == "late"
    assert port.cancelled == [2]


async def test_call_that_nobody_awaits_ends_with_the_run(run: Runner) -> None:
    port = EchoPort()
    # The pause lets the task begin its call: one that begins as the script ends is not made.
    script = "t = asyncio.create_task(git.hangs())\nawait asyncio.sleep(0)\nawait git.git_log()\n'done'"
    assert await run.value(script, port=port) == "done"
    assert [call.function for call in port.calls if call.seq in port.cancelled] == ["git.hangs"]


@pytest.mark.parametrize(
    "use",
    ["c['x']", "c.items", "len(c)", "c + 1", "c == 1", "json.dumps({'a': c})"],
)
async def test_call_used_as_its_value_says_what_is_missing(run: Runner, use: str) -> None:
    error = await run.error(f"import json\ndef use(c):\n    return {use}\nuse((lambda: git.git_log())())")
    assert "await git.git_log(...)" in error.message
    assert error.line == 3


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("{'day': 1j}", "argument since['day'] is a complex"),
        ("{(1, 2): 3}", "a key of argument since is a tuple"),
    ],
)
async def test_argument_that_is_no_json_is_named(run: Runner, given: str, told: str) -> None:
    error = await run.error(f"await git.git_log(since={given})")
    assert told in error.message
    assert error.line == 1


async def test_outcomes_of_every_kind_arrive(run: Runner) -> None:
    odd = [None, True, 2**70, 1.5, "é😀\u2028", "\ud800", {"": []}, float("inf")]
    value = await run.value("[*v, inf] = await git.git_log()\n[*v, inf == float('inf')]", port=answering(odd))
    assert value == [None, True, 2**70, 1.5, "é😀\u2028", "\ufffd", {"": []}, True]


@pytest.mark.parametrize(
    ("emitted", "fault"),
    [("'a'", "str"), ("{'text': 'a'}", '"type"'), ("[{'type': 5}]", '"type"')],
)
async def test_what_is_no_block_is_an_error_that_shows_one(run: Runner, emitted: str, fault: str) -> None:
    error = await run.error(f"portal.emit({emitted})")
    shown, _, told = error.message.partition("this is")
    assert ("mimeType" in shown, fault in told) == (True, True)


async def test_observer_hears_of_calls_that_the_port_never_sees(run: Runner) -> None:
    script = "await asyncio.gather(*[git.git_log(count=i) for i in range(3)], return_exceptions=True)\nNone"
    heard = Heard()
    await run(script, port=heard, observer=heard, limits=Limits(tool_calls=2, outcome_bytes=3))
    assert heard.opened == [(1, "git.git_log"), (2, "git.git_log"), (3, "git.git_log")]
    assert sorted(heard.withheld) == [(1, "outcome_limit"), (2, "outcome_limit"), (3, "tool_calls_limit")]
    assert [call.seq for call in heard.calls] == [1, 2]


@pytest.mark.parametrize("number", [3, 3000])
async def test_calls_of_tasks_that_end_with_the_script_are_not_made(run: Runner, number: int) -> None:
    script = f"""async def log(i):
    await git.git_log(count=i)
for i in range({number}): asyncio.create_task(log(i))
await asyncio.sleep(0)
'sent'"""
    heard = Heard()
    result = await run(script, port=heard, observer=heard, limits=Limits(tool_calls=5))
    assert (result.error, result.value, len(heard.opened), heard.calls) == (None, "sent", number, [])


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ("import inspect\ninspect.iscoroutinefunction(git.git_log)", True),
        ("repr(git.git_log)", f"<async function git.git_log{SIGNATURE}>"),
        ("git.git_log.__name__, git.git_log.__qualname__", ["git_log", "git.git_log"]),
        ("git.git_log.__module__, callable(git.git_log)", ["git", True]),
        ("git.git_log is git.git_log, len({git.git_log, git.git_show})", [True, 2]),
        ("import functools\nawait functools.partial(git.git_log, count=3)()", {"count": 3}),
        ("class Repository:\n    log = git.git_log\nawait Repository().log(count=3)", {"count": 3}),
    ],
)
async def test_function_of_the_library_tells_what_it_takes(run: Runner, script: str, value: Json) -> None:
    assert await run.value(script) == value


async def test_help_and_a_returned_function_show_its_signature(run: Runner) -> None:
    told = (await run("help(git.git_log)")).stdout
    assert SIGNATURE in told and 'docs_search(query="git.git_log")' in told
    error = await run.error("[git.git_log]")
    assert (error.code, SIGNATURE in error.message) == ("result_not_json", True)


@pytest.mark.parametrize("name", ["self", "arguments"])
async def test_any_name_may_be_a_parameter(run: Runner, name: str) -> None:
    assert await run.value(f"await git.git_log({name}=1)") == {name: 1}


async def test_waiting_for_calls_is_no_computing(run: Runner) -> None:
    script = "import asyncio\nawait asyncio.sleep(0.3)\nawait git.git_log()"
    result = await run(script, limits=Limits(cpu_seconds=0.1))
    assert (result.error, result.cpu_ms < 100) == (None, True)
