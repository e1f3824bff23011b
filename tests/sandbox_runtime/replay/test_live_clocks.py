"""The clocks of a live run tell the real time, to the millisecond, and randomness is nobody else's."""

import asyncio
import time

import pytest

from manifests.grants import Limits
from sandbox_runtime.call_port import Outcome, ToolCall
from sandbox_runtime.recording import Recording
from sandbox_runtime.sandbox import Sandbox
from tests.sandbox_runtime.running import Runner

pytestmark = pytest.mark.anyio

WHOLE = 0.002
"""Seconds by which a clock in a script may be off: it moves once in a millisecond."""


class RealTime:
    """Answers with the time at the end of a call that takes a while."""

    async def __call__(self, call: ToolCall) -> Outcome:
        await asyncio.sleep(0.05)
        return Outcome(time.time())


async def test_time_is_real_at_the_start_and_after_a_slow_call(run: Runner) -> None:
    before = time.time()
    script = """
import time, datetime
start = time.time()
there = await git.git_log()
[start, there, time.time(), datetime.datetime.now().timestamp()]"""
    value = await run.value(script, port=RealTime())
    after = time.time()
    assert isinstance(value, list)
    start, there, here, date = value
    assert before - WHOLE <= start <= there + WHOLE
    assert there - WHOLE <= here <= after + WHOLE
    assert here - WHOLE <= date <= after + WHOLE  # a date is rounded to microseconds


async def test_clocks_move_once_in_a_millisecond_and_never_go_back(run: Runner) -> None:
    script = """
import time
looks = [(time.time_ns(), time.monotonic_ns()) for _ in range(5000)]
values = {a for a, _ in looks} | {b for _, b in looks}
[len(values) == len({value // 1_000_000 for value in values}), looks == sorted(looks), len(values) < 5000]"""
    assert await run.value(script) == [True, True, True]


async def test_record_that_would_be_too_large_is_given_up_and_the_run_goes_on(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandbox_runtime.recording.MAX_RECORD_BYTES", 20_000)
    recording = Recording()
    async with sandbox.run(Limits(), str, recording=recording) as run:
        await run.prepare("for i in range(30): print('x' * 1000)\nlen(await git.git_log())", ("git",))
        result = await run.execute({}, _long)
    assert (result.error, result.value) == (None, 100_000)
    assert recording.is_too_large
    assert recording.record is None
    assert not recording.events


async def _long(_: ToolCall) -> Outcome:
    return Outcome("x" * 100_000)
