"""A replayed run is the run that was recorded: same value, output, calls and chance, bit for bit."""

import time

import anyio
import pytest

from manifests.grants import Limits
from sandbox_runtime.call_port import CallError, Outcome, ToolCall
from sandbox_runtime.errors import RecordError
from sandbox_runtime.recording import Recording
from sandbox_runtime.replay import replay
from sandbox_runtime.sandbox import Sandbox
from tests.sandbox_runtime.replay.recorder import ChancePort, Recorder, facts
from tests.sandbox_runtime.running import NAMESPACES, Runner, where

pytestmark = pytest.mark.anyio

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
TIGHT = Limits(cpu_seconds=0.3, memory_mib=64, result_bytes=1000, argument_bytes=1000, stdout_bytes=5000)


@pytest.mark.parametrize(("code", "script"), ENDINGS.items())
async def test_failed_run_is_replayed_to_the_same_end(recorded: Recorder, code: str, script: str) -> None:
    wall_seconds = 0.5 if code == "wall_limit" else 20.0
    limits = TIGHT.model_copy(update={"wall_seconds": wall_seconds, "tool_calls": 5})
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
    assert result is not None
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


async def test_blocks_beside_the_data_and_data_of_errors_are_replayed(recorded: Recorder) -> None:
    async def answer(call: ToolCall) -> Outcome:
        if call.function == "git.fails":
            return Outcome(error=CallError("tool_error", "no"), data={"code": 7}, content=[{"type": "image"}])
        return Outcome({"n": 3}, content=[{"type": "text", "text": None}, {"type": "image"}], beside=[1])

    script = """
r = await git.git_log()
try:
    await git.fails()
except ToolError as error:
    failed = [error.data, error.blocks]
[portal.blocks(r), failed]"""
    result = await recorded.and_replay(script, port=answer)
    assert result.value[1] == [{"code": 7}, [{"type": "image"}]]
    assert result.value[0] == [{"type": "text", "text": '{"n": 3}'}, {"type": "image"}]


async def test_runs_of_a_session_go_on_with_its_chance_and_are_not_replayed(recorded: Recorder) -> None:
    session = await recorded.sandbox.open_session()
    scripts = ("import random\nrandom.seed(7)\nfirst = random.random()\nfirst", "random.random()")
    again = "random.seed(7)\n[random.random(), random.random()]"
    told = [await recorded(script, session=session) for script in (*scripts, again)]
    session.close()
    first, second, both = [result.value for result, _ in told if result is not None]
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
