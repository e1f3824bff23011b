"""A run can be taken up where its record ends: what was done is not done again, and the rest is live."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from dataclasses import replace as changed

import pytest

from manifests.grants import Limits
from sandbox_runtime.call_port import Outcome, ToolCall
from sandbox_runtime.errors import DivergenceError, RecordError
from sandbox_runtime.recording import Record
from sandbox_runtime.replay import Repetition, replay, resume
from sandbox_runtime.result import RunResult
from sandbox_runtime.sandbox import Sandbox
from tests.sandbox_runtime.replay.recorder import Ledger, Recorder, facts, kept
from tests.sandbox_runtime.running import EchoPort, where

pytestmark = pytest.mark.anyio

SCRIPT = """\
import random
print("begin")
first = await git.git_log(i=1)
both = await asyncio.gather(git.git_log(i=2), git.git_log(i=3))
async with asyncio.timeout(30):
    late = await git.git_log(i=4)
print("end")
[first, both, late, random.random()]
"""


@dataclass
class CountingPort:
    """Answers with the arguments, a little later."""

    seen: Counter[int] = field(default_factory=Counter)

    async def __call__(self, call: ToolCall) -> Outcome:
        self.seen[call.arguments["i"]] += 1
        await asyncio.sleep(0.001)
        return Outcome(call.arguments)


async def resumed(
    sandbox: Sandbox, record: Record, port: CountingPort, unanswered: CountingPort
) -> tuple[RunResult, Record]:
    repetition = Repetition(kept(record), goes_on=True)
    result = await resume(sandbox, repetition, where, port, unanswered=unanswered)
    assert repetition.record is not None
    return result, repetition.record


async def test_run_is_taken_up_after_any_event_to_the_same_end(sandbox: Sandbox, recorded: Recorder) -> None:
    result, record = await recorded(SCRIPT, port=CountingPort())
    assert result is not None
    for length in range(len(record.events)):
        port, unanswered = CountingPort(), CountingPort()
        beginning = record.until(length)
        again, whole = await resumed(sandbox, beginning, port, unanswered)
        assert facts(again) == facts(result)
        answered = len(list(beginning.answers()))
        begun = sum(event.text.count("\n") + 1 for event in beginning.events if event.kind == "sent")
        assert (unanswered.seen.total(), port.seen.total()) == (begun - answered, 4 - begun)
        assert set((port.seen + unanswered.seen).values()) <= {1}
        assert facts(await replay(sandbox, kept(whole), where)) == facts(result)


async def test_call_without_a_known_outcome_is_not_made_again(sandbox: Sandbox, recorded: Recorder) -> None:
    script = """
try:
    x = await git.git_log(i=1)
except ToolError as error:
    x = error.code
[x, await git.git_log(i=2)]"""
    _, record = await recorded(script)
    sent = next(index for index, event in enumerate(record.events) if event.kind == "sent")
    port = EchoPort()
    result = await resume(sandbox, Repetition(record.until(sent + 1), goes_on=True), where, port)
    assert result.value == ["outcome_unknown", {"i": 2}]
    assert [call.seq for call in port.calls] == [2]


async def test_calls_and_their_ledger_count_on(sandbox: Sandbox, recorded: Recorder) -> None:
    script = "[await git.git_log(i=i) for i in range(4)]\nlen([0])"
    _, record = await recorded(script)
    second = [index for index, event in enumerate(record.events) if event.kind == "answered"][1]
    port, ledger = EchoPort(), Ledger()
    repetition = Repetition(record.until(second + 1), goes_on=True)
    await resume(sandbox, repetition, where, port, ledger)
    assert [call.seq for call in port.calls] == [3, 4]
    assert ledger.rows == [("open", seq, "git.git_log") for seq in (1, 2, 3, 4)]


async def test_limits_count_what_was_done_before(sandbox: Sandbox, recorded: Recorder) -> None:
    script = "for i in range(5): await git.git_log(i=i)"
    _, record = await recorded(script, limits=Limits(tool_calls=5))
    beginning = changed(record.until(5), limits=Limits(tool_calls=3))
    port = EchoPort()
    result = await resume(sandbox, Repetition(beginning, goes_on=True), where, port)
    assert result.error is not None
    assert result.error.code == "tool_calls_limit"
    assert [call.seq for call in port.calls] == [3]


async def test_wall_clock_is_the_present_and_the_monotonic_clock_goes_on(
    sandbox: Sandbox, recorded: Recorder
) -> None:
    script = """
import time
t, m = time.time(), time.monotonic()
await git.git_log()
[time.time() - t, time.monotonic() - m]"""
    _, record = await recorded(script)
    sent = next(index for index, event in enumerate(record.events) if event.kind == "sent")
    long_ago = changed(record.origin, wall_ms=record.origin.wall_ms - 3_600_000)
    beginning = changed(record.until(sent + 1), origin=long_ago)
    repetition = Repetition(beginning, goes_on=True)
    result = await resume(sandbox, repetition, where, EchoPort(), unanswered=EchoPort())
    assert isinstance(result.value, list)
    wall, monotonic = result.value
    assert wall >= 3600 > 60 > monotonic
    assert repetition.record is not None
    assert facts(await replay(sandbox, repetition.record, where)) == facts(result)


async def test_changed_script_diverges_before_anything_is_done(sandbox: Sandbox, recorded: Recorder) -> None:
    _, record = await recorded(SCRIPT, port=CountingPort())
    beginning = changed(record.until(5), script=SCRIPT.replace("i=1", "i=7"))
    port = CountingPort()
    with pytest.raises(DivergenceError):
        await resume(sandbox, Repetition(beginning, goes_on=True), where, port, unanswered=port)
    assert not port.seen


async def test_run_that_has_ended_or_not_begun_is_not_resumed(sandbox: Sandbox, recorded: Recorder) -> None:
    _, ended = await recorded(SCRIPT)
    _, parsed = await recorded(SCRIPT, executes=False)
    part = changed(ended.until(3), origin=changed(ended.origin, position=1))
    for record in (ended, parsed, part):
        with pytest.raises(RecordError):
            await resume(sandbox, Repetition(record, goes_on=True), where, EchoPort())


async def test_calls_are_found_by_their_number_and_nothing_else_is(recorded: Recorder) -> None:
    _, record = await recorded(SCRIPT, port=CountingPort())
    found = [record.index_of_call(seq) for seq in range(6)]
    assert found[0] is None and found[5] is None
    assert found[1] is not None and record.until(found[1]).calls_made == 0
    assert found[2] == found[3], "gathered calls are made by one event"
