"""A run goes on where its record ends: what was done is not repeated, and secrets of the record may be masked."""

import asyncio
import os
import socket
from collections import Counter
from dataclasses import dataclass, field
from dataclasses import replace as changed
from types import SimpleNamespace
from typing import Any

import pytest

from manifests.grants import Limits
from manifests.json_value import Json
from manifests.kernels import PYTHON
from sandbox_runtime.call_port import Outcome, ToolCall
from sandbox_runtime.errors import DivergenceError, RecordError, ReplayInterruptedError
from sandbox_runtime.frames import REPLAY_LOG_HEADER, RUN_START, RunStart
from sandbox_runtime.grants.run_grants import RunGrants
from sandbox_runtime.guest_json import parse
from sandbox_runtime.kernels import KERNELS
from sandbox_runtime.recording import Event, Mask, Record
from sandbox_runtime.replay import Repetition, replay, resume
from sandbox_runtime.sandbox import Sandbox
from sandbox_runtime.worker.run_host import ReplayLog, RunHost
from sandbox_runtime.worker.worker import Worker
from tests.sandbox_runtime.replay.recorder import RECORD, Recorder, facts, index_of, kept
from tests.sandbox_runtime.running import EchoPort, Heard, answering, where
from upstreams.redaction import Redaction

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


async def test_run_is_taken_up_after_any_event_to_the_same_end(sandbox: Sandbox, recorded: Recorder) -> None:
    result, record = await recorded(SCRIPT, port=CountingPort())
    for length in range(len(record.events)):
        port, beginning = CountingPort(), record.until(length)
        repetition = Repetition(kept(beginning), goes_on=True)
        assert facts(await resume(sandbox, repetition, where, port)) == facts(result)
        assert port.seen.total() == 4 - len(list(beginning.answers()))
        assert set(port.seen.values()) <= {1}
        assert repetition.record is not None
        assert facts(await replay(sandbox, kept(repetition.record), where)) == facts(result)


async def test_calls_and_their_ledger_count_on(sandbox: Sandbox, recorded: Recorder) -> None:
    script = "[await git.git_log(i=i) for i in range(4)]\nlen([0])"
    _, record = await recorded(script)
    second = index_of(record, "answered", 1)
    heard = Heard()
    repetition = Repetition(record.until(second + 1), goes_on=True)
    await resume(sandbox, repetition, where, heard, heard)
    assert [call.seq for call in heard.calls] == [3, 4]
    assert heard.opened == [(seq, "git.git_log") for seq in (1, 2, 3, 4)]


async def test_wall_clock_is_the_present_and_the_monotonic_clock_goes_on(
    sandbox: Sandbox, recorded: Recorder
) -> None:
    script = """
import time
t, m = time.time(), time.monotonic()
await git.git_log()
[time.time() - t, time.monotonic() - m]"""
    _, record = await recorded(script)
    sent = index_of(record, "sent")
    long_ago = changed(record.origin, wall_ms=record.origin.wall_ms - 3_600_000)
    beginning = changed(record.until(sent + 1), origin=long_ago)
    repetition = Repetition(beginning, goes_on=True)
    result = await resume(sandbox, repetition, where, EchoPort())
    assert isinstance(result.value, list)
    wall, monotonic = result.value
    assert wall >= 3600 > 60 > monotonic
    assert repetition.record is not None
    assert facts(await replay(sandbox, repetition.record, where)) == facts(result)


def test_a_replay_may_use_the_cpu_time_of_all_segments_and_more_once_where_it_goes_on() -> None:
    """In the worker itself: how much CPU time a script uses varies too much."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        host, log = RunHost(), b"1 @7 1"
        worker = Worker(theirs, SimpleNamespace(), host, os.getpid(), KERNELS[PYTHON])  # type: ignore[arg-type]
        worker._instance: Any = SimpleNamespace(limit=lambda _: None, call=lambda *_, **__: b"{}")
        worker._replay_log = ReplayLog(REPLAY_LOG_HEADER.pack(True, len(log)) + log)
        worker._prepare(RUN_START.pack(*RunStart(cpu_seconds=10.0)) + b"\n1")
        left = [round(worker._clock._left)]
        for _ in range(4):
            host.monotonic_ns()
            worker._clock.pause()
            left.append(round(worker._clock._left))
            worker._clock._left = 1
        assert left == [40, 40, 1, 10, 1]


async def test_replay_that_computes_too_long_says_which_limit_ends_it(
    sandbox: Sandbox, recorded: Recorder
) -> None:
    _, record = await recorded("sum(range(1_500_000))\nawait git.git_log()", limits=Limits(cpu_seconds=60))
    limited = changed(record, limits=Limits(cpu_seconds=0.02)).until(index_of(record, "sent") + 1)
    with pytest.raises(ReplayInterruptedError) as raised:
        await resume(sandbox, Repetition(limited, goes_on=True), where, EchoPort())
    assert raised.value.code == "cpu_limit"


async def test_changed_script_diverges_before_anything_is_done(sandbox: Sandbox, recorded: Recorder) -> None:
    _, record = await recorded(SCRIPT, port=CountingPort())
    beginning = changed(record.until(5), script=SCRIPT.replace("i=1", "i=7"))
    port = CountingPort()
    with pytest.raises(DivergenceError):
        await resume(sandbox, Repetition(beginning, goes_on=True), where, port)
    assert not port.seen


async def test_run_that_has_ended_or_not_begun_is_not_resumed(sandbox: Sandbox, recorded: Recorder) -> None:
    _, ended = await recorded(SCRIPT)
    parsed = changed(ended.until(1), settings=None)
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


SECRET = "hunter2-hunter2"
GRANTS = RunGrants(environment={"TOKEN": SECRET, "STAGE": "test"})
SECRETIVE = """\
import os
token = os.environ["TOKEN"]
first = await git.git_log(token=token, i=1)
print("sent", token)
second = await git.git_log(token=token, i=2)
[first, second, os.environ["STAGE"]]
"""


mask = Redaction([SECRET])


async def number(call: ToolCall) -> Outcome:
    return Outcome(call.arguments["i"])


def journaled(record: Record) -> Record:
    """The record as a journal keeps it."""
    hidden = masked(record, mask).without_environment()
    assert SECRET.encode() not in RECORD.dump_json(hidden)
    return kept(hidden)


def masked(record: Record, mask: Mask) -> Record:
    return changed(record, events=tuple(event.masked(mask) for event in record.events))


async def test_run_goes_on_from_its_masked_record(sandbox: Sandbox, recorded: Recorder) -> None:
    result, record = await recorded(SECRETIVE, port=number, grants=GRANTS)
    assert result.value == [1, 2, "test"]
    for length in range(len(record.events)):
        seen: list[Json] = []

        async def see(call: ToolCall, seen: list[Json] = seen) -> Outcome:
            seen.append(call.arguments["token"])
            return await number(call)

        kept = journaled(record.until(length)).with_environment(GRANTS.environment)
        repetition = Repetition(kept, goes_on=True, mask=mask)
        again = await resume(sandbox, repetition, where, see)
        assert facts(again) == facts(result)
        assert set(seen) <= {SECRET}
        whole = repetition.record
        assert whole is not None
        assert whole.settings == record.settings
        assert [e for e in journaled(whole).events if e.kind in ("sent", "printed")] == [
            e for e in journaled(record).events if e.kind in ("sent", "printed")
        ]


async def test_other_calls_than_the_masked_ones_diverge_without_secrets(
    sandbox: Sandbox, recorded: Recorder
) -> None:
    _, record = await recorded(SECRETIVE, port=number, grants=GRANTS)
    kept = journaled(record.until(len(record.events) - 1)).with_environment(GRANTS.environment)
    other = changed(kept, script=SECRETIVE.replace("i=1", "i=7"))
    with pytest.raises(DivergenceError) as raised:
        await resume(sandbox, Repetition(other, goes_on=True, mask=mask), where, number)
    assert "[hidden]" in raised.value.got
    assert SECRET not in str(raised.value)
    with pytest.raises(DivergenceError):
        await resume(sandbox, Repetition(kept, goes_on=True), where, number)


async def test_secret_that_became_known_later_is_no_divergence(sandbox: Sandbox, recorded: Recorder) -> None:
    script = f'await git.git_log(a="known-before", b="{SECRET}")\nawait git.git_log(i=2)'
    _, record = await recorded(script)
    sent = index_of(record, "sent")

    kept = masked(record.until(sent + 1), Redaction(["known-before"]))
    assert SECRET in kept.events[sent].text
    repetition = Repetition(kept, goes_on=True, mask=Redaction(["known-before", SECRET]))
    result = await resume(sandbox, repetition, where, EchoPort())
    assert (result.error, result.value) == (None, {"i": 2})


async def test_answer_with_a_secret_is_masked_after_resuming(sandbox: Sandbox, recorded: Recorder) -> None:
    script = "a = await git.git_log()\nawait git.git_log()\na"
    _, record = await recorded(script, port=answering(SECRET))
    answered = index_of(record, "answered")
    repetition = Repetition(journaled(record.until(answered + 1)), goes_on=True, mask=mask)
    result = await resume(sandbox, repetition, where, answering(1))
    assert result.value == "[hidden]"


@pytest.mark.parametrize("kind", ["clock", "emitted", "finished", "resumed"])
def test_events_without_text_of_the_script_are_not_masked(kind: str) -> None:
    event = Event(kind, SECRET)  # type: ignore[arg-type]  # one of its literals
    assert event.masked(mask) is event
    assert Event("printed", SECRET).masked(mask).text == "[hidden]"


async def test_environment_is_that_of_the_present(recorded: Recorder) -> None:
    _, record = await recorded("1", grants=GRANTS)

    def environment(record: Record) -> Json:
        assert record.settings is not None
        settings = parse(record.settings.encode())
        assert isinstance(settings, dict)
        return settings["environment"]

    bare = record.without_environment()
    assert environment(bare) == {"TOKEN": "", "STAGE": ""}
    assert bare.with_environment(GRANTS.environment) == record
    assert environment(bare.with_environment({"STAGE": "live", "NEW": "1"})) == {"STAGE": "live"}


async def test_record_without_environment_stays_as_it_is(recorded: Recorder) -> None:
    _, ran = await recorded("1")
    for record in (ran, changed(ran, settings=None)):
        assert record.without_environment() is record.with_environment({"A": "1"}) is record
    with pytest.raises(RecordError):
        changed(ran, settings='{"environment":').without_environment()
