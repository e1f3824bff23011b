"""A replayed run is the run that was recorded, bit for bit; of another one the first difference is named."""

import re
import time
from dataclasses import replace as changed

import anyio
import pytest

from manifests.grants import Limits
from sandbox_runtime.call_port import Outcome, ToolCall
from sandbox_runtime.errors import DivergenceError, RecordError, ReplayInterruptedError
from sandbox_runtime.recording import Event, Record, Recording
from sandbox_runtime.replay import Repetition, replay
from sandbox_runtime.result import RunError
from sandbox_runtime.sandbox import Sandbox, Session
from tests.sandbox_runtime.replay.recorder import ChancePort, Recorder, facts, index_of
from tests.sandbox_runtime.running import NAMESPACES, EchoPort, Runner, where

CHANCE = """
import os, random, secrets, uuid
[random.random(), random.sample(range(99), 5), random.Random().random(), str(uuid.uuid4()), str(uuid.uuid7()),
 uuid.getnode(), secrets.randbelow(10**9), *[os.urandom(n).hex() for n in (1, 32, 5000, 100_000)]]"""
CLOCKS = """
import datetime, select, sqlite3, time
a = [time.time_ns(), time.perf_counter_ns(), time.process_time(), str(datetime.date.today())]
loop = asyncio.get_running_loop()
b = [loop.time(), await asyncio.sleep(0.002, 1), select.select([], [], [], 0.005), loop.time()]
[a, b, list(sqlite3.connect(':memory:').execute('select current_timestamp, julianday()'))]"""


@pytest.mark.parametrize("script", [CHANCE, CLOCKS], ids=["chance", "clocks"])
async def test_chance_and_clocks_are_replayed_and_differ_by_run(recorded: Recorder, script: str) -> None:
    first, second = await recorded.and_replay(script), await recorded.and_replay(script)
    assert first.error is None
    assert first.value != second.value


ENDINGS = {
    "script_error": "print('before')\n1 / 0",
    "syntax_error": "def f(:",
    "result_not_json": "1j",
    "script_exit": "import sys\nprint('x')\nsys.exit(3)",
    "memory_limit": "a = []\nwhile True: a.append('x' * 100_000)",
    "result_limit": "portal.emit({'type': 'text', 'text': 'x' * 600})\n'x' * 600",
    "tool_calls_limit": "for i in range(9): await git.git_log(i=i)",
    "cpu_limit": "print('x')\nwhile True: pass",
    "wall_limit": "import time\ntime.sleep(600)",
}
TIGHT = Limits(memory_mib=64, result_bytes=1000, argument_bytes=1000, stdout_bytes=5000)


@pytest.mark.parametrize(("code", "script"), ENDINGS.items())
async def test_failed_run_is_replayed_to_the_same_end(recorded: Recorder, code: str, script: str) -> None:
    short = {code.replace("_limit", "_seconds"): 0.1} if code in ("wall_limit", "cpu_limit") else {}
    limits = TIGHT.model_copy(update={"tool_calls": 5, **short})
    error = (await recorded.and_replay(script, limits=limits)).error
    assert error is not None and error.code == code


async def test_output_blocks_and_notices_are_replayed(recorded: Recorder) -> None:
    script = """
import warnings
for i in range(400):
    print(i, "é", sep="\\t")
portal.emit([{"type": "text", "text": "a"}, {"type": "image", "data": "x" * 1000, "mimeType": "image/png"}])
warnings.warn("careful")
unused = git.git_log(i=1)
log = git.git_log(i=2)
[float("nan"), log["given"]]"""
    result = await recorded.and_replay(script, limits=Limits(stdout_bytes=1000))
    assert result.error is None
    assert result.stdout_bytes_dropped > 0
    assert len(result.emitted) == 2
    assert result.notices


async def test_replay_makes_no_call_and_waits_for_nothing(recorded: Recorder) -> None:
    port = ChancePort()
    script = """
import time
time.sleep(0.4)
await asyncio.sleep(0.2)
len(await asyncio.gather(git.git_log(), git.fails(), return_exceptions=True))"""
    result, record = await recorded(script, port=port)
    again = await replay(recorded.sandbox, record, where)
    assert facts(again) == facts(result)
    assert len(port.calls) == 2
    assert result.wall_ms > 600 > again.wall_ms


async def test_cancelled_run_has_a_record_of_what_came_before(sandbox: Sandbox) -> None:
    recording = Recording()
    with anyio.CancelScope() as scope:
        async with sandbox.run(Limits(), where, recording=recording) as run:
            await run.prepare("print('x')\nawait git.hangs()", NAMESPACES)

            async def cancel_at_call(_: ToolCall) -> Outcome:
                scope.cancel()
                await anyio.sleep_forever()
                raise AssertionError

            await run.execute({}, cancel_at_call)
    assert recording.record is not None
    result = await replay(sandbox, recording.record, where)
    assert result.error is not None
    assert (result.error.code, result.stdout) == ("cancelled", "x\n")


async def test_runs_of_a_session_go_on_with_its_chance_and_are_not_replayed(
    recorded: Recorder, session: Session
) -> None:
    scripts = ("import random\nrandom.seed(7)\nfirst = random.random()\nfirst", "random.random()")
    again = "random.seed(7)\n[random.random(), random.random()]"
    told = [await recorded(script, session=session) for script in (*scripts, again)]
    first, second, both = [result.value for result, _ in told]
    assert [first, second] == both
    assert [record.origin.position for _, record in told] == [1, 2, 3]
    with pytest.raises(RecordError):
        await replay(recorded.sandbox, told[1][1], str)


WHOLE = 0.002
"""Seconds by which a clock in a script may be off: it moves once in a millisecond."""


async def test_time_is_real_at_the_start_and_after_a_slow_call(run: Runner) -> None:
    async def tell(_: ToolCall) -> Outcome:
        await anyio.sleep(0.05)
        return Outcome(time.time())

    before = time.time()
    script = """
import time, datetime
start = time.time()
there = await git.git_log()
[start, there, time.time(), datetime.datetime.now().timestamp()]"""
    value = await run.value(script, port=tell)
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


SCRIPT = """\
import time
print("begin")
first = await git.git_log(i=1)
started = time.time()
second = await git.git_log(i=2, given=first["chance"])
print("end")
[first, second, started]
"""


async def diverged(sandbox: Sandbox, record: Record) -> DivergenceError:
    with pytest.raises(DivergenceError) as raised:
        await replay(sandbox, record, where)
    return raised.value


@pytest.mark.parametrize(
    ("old", "new", "kind", "nth"),
    [
        ("i=1", "i=3", "sent", 0),
        ('print("begin")\n', "", "printed", 0),
        ("started = time.time()\n", "started = 1\n", "clock", 0),
        ("second = await", "second = await asyncio.sleep(0.001) or await", "sent", 1),
        ("[first, second, started]", "[second, first, started]", "finished", 0),
        ("[first, second, started]", "import os\nos.abort()", "finished", 0),
        ("import time\n", "import time\nimport random\nawait git.git_log(i=random.random())\n", "printed", 0),
    ],
)
async def test_changed_script_diverges_where_it_first_does_another_thing(
    sandbox: Sandbox, recorded: Recorder, old: str, new: str, kind: str, nth: int
) -> None:
    _, record = await recorded(SCRIPT, limits=Limits(cpu_seconds=0.5))
    assert old in record.script
    error = await diverged(sandbox, changed(record, script=record.script.replace(old, new)))
    at = index_of(record, kind, nth)
    assert (error.index, error.expected) == (at, str(record.events[at]))
    assert error.got != error.expected


async def test_changed_answer_diverges_where_it_shows(sandbox: Sandbox, recorded: Recorder) -> None:
    _, record = await recorded(SCRIPT)
    at = index_of(record, "answered")
    answer = record.events[at]
    assert answer.kind == "answered"
    forged = Event("answered", re.sub(r'"chance":[^,}]+', '"chance":1.5', answer.text))
    assert forged != answer
    events = (*record.events[:at], forged, *record.events[at + 1 :])
    assert (await diverged(sandbox, changed(record, events=events))).index == index_of(record, "sent", 1)


async def test_run_that_was_stopped_ends_where_it_was_stopped(sandbox: Sandbox, recorded: Recorder) -> None:
    """Nobody knows what it would have done next."""
    _, record = await recorded(SCRIPT)
    stopped = Event("stopped", "", 7, RunError("wall_limit", "too long"))
    at = index_of(record, "sent")
    result = await replay(sandbox, changed(record, events=(*record.events[:at], stopped)), where)
    assert result.error == stopped.error
    assert (result.stdout, result.stdout_bytes_dropped) == ("begin\n", 7)


async def test_beginning_of_a_run_ends_where_it_would_go_on(sandbox: Sandbox, recorded: Recorder) -> None:
    _, record = await recorded(SCRIPT)
    for length in range(1, len(record.events)):
        with pytest.raises(RecordError):
            await replay(sandbox, changed(record, events=record.events[:length]), where)


async def test_record_of_another_component_is_refused(sandbox: Sandbox, recorded: Recorder) -> None:
    _, record = await recorded(SCRIPT)
    other = changed(record, origin=changed(record.origin, component="0" * 64))
    with pytest.raises(RecordError) as raised:
        await replay(sandbox, other, where)
    assert "0" * 12 in str(raised.value)
    assert sandbox.component[:12] in str(raised.value)


async def test_replay_whose_worker_is_killed_says_so(sandbox: Sandbox, recorded: Recorder) -> None:
    _, record = await recorded("await git.git_log()", limits=Limits(cpu_seconds=60))
    repetition = Repetition(record)
    async with sandbox.run(record.limits, where, recording=repetition) as run:
        await run.prepare(record.script, record.namespaces)
        assert run.worker is not None
        run.worker.kill("by a test")
        assert record.settings is not None
        await run.execute({}, EchoPort())
    with pytest.raises(ReplayInterruptedError):
        repetition.check()
