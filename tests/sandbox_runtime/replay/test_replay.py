"""A replayed run is the run that was recorded: same value, output, calls and chance, bit for bit."""

import anyio
import pytest

from manifests.grants import Limits
from sandbox_runtime.call_port import CallError, Outcome, ToolCall
from sandbox_runtime.recording import Recording
from sandbox_runtime.replay import replay
from sandbox_runtime.sandbox import Sandbox
from tests.sandbox_runtime.replay.recorder import ChancePort, Recorder, facts
from tests.sandbox_runtime.running import NAMESPACES, where

pytestmark = pytest.mark.anyio

PATTERNS = {
    "one after the other": "[await git.git_log(i=i) for i in range(5)]",
    "gathered": "await asyncio.gather(*[git.git_log(i=i) for i in range(20)])",
    "the first completed": """
tasks = [asyncio.ensure_future(git.git_log(i=i)) for i in range(6)]
done, waiting = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
[len(done), len(waiting), sorted(tasks.index(task) for task in done)]""",
    "a group that fails": """
try:
    async with asyncio.TaskGroup() as group:
        group.create_task(git.hangs())
        group.create_task(git.fails())
except* ToolError as errors:
    told = [str(error) for error in errors.exceptions]
told""",
    "out of time": """
late = 0
for i in range(8):
    try:
        async with asyncio.timeout(0.002):
            await git.git_log(i=i)
    except TimeoutError:
        late += 1
late""",
    "sleeping": """
import time
before = time.monotonic()
await asyncio.sleep(0.004)
time.sleep(0.003)
[before, time.monotonic(), time.perf_counter()]""",
}


@pytest.mark.parametrize("script", PATTERNS.values(), ids=PATTERNS)
async def test_waiting_for_calls_is_replayed_as_it_came(recorded: Recorder, script: str) -> None:
    result = await recorded.and_replay(script)
    assert result.error is None


CHANCE = {
    "random": "import random\n[random.random(), random.sample(range(99), 5), random.Random().random()]",
    "uuid": "import uuid\n[str(uuid.uuid1()), str(uuid.uuid4()), str(uuid.uuid7()), uuid.getnode()]",
    "secrets": "import secrets\n[secrets.token_hex(), secrets.randbelow(10**9), secrets.choice('abcdef')]",
    "urandom": "import os\n[os.urandom(n).hex() for n in (1, 32, 5000, 100_000)]",
}


@pytest.mark.parametrize("script", CHANCE.values(), ids=CHANCE)
async def test_chance_is_replayed_and_differs_between_runs(recorded: Recorder, script: str) -> None:
    first, second = await recorded.and_replay(script), await recorded.and_replay(script)
    assert first.error is None
    assert first.value != second.value


CLOCKS = {
    "time": "import time\n[time.time(), time.time_ns(), time.monotonic(), time.perf_counter_ns(), time.process_time()]",
    "datetime": "import datetime\n[str(datetime.datetime.now()), str(datetime.date.today())]",
    "loop": "asyncio.get_running_loop().time(), await asyncio.sleep(0.002, 1), asyncio.get_running_loop().time()",
    "waiting for it": "import time\nend = time.time() + 0.02\nlooks = 0\nwhile time.time() < end: looks += 1\nlooks",
    "sqlite": "import sqlite3\nlist(sqlite3.connect(':memory:').execute('select current_timestamp, julianday()'))",
    "select": "import select, time\nselect.select([], [], [], 0.005)\ntime.monotonic()",
}


@pytest.mark.parametrize("script", CLOCKS.values(), ids=CLOCKS)
async def test_clocks_are_replayed(recorded: Recorder, script: str) -> None:
    result = await recorded.and_replay(script)
    assert result.error is None


ENDINGS = {
    "script_error": "print('before')\n1 / 0",
    "syntax_error": "def f(:",
    "upstream_down": "await git.git_log()\nawait git.fails()",
    "result_not_json": "1j",
    "script_exit": "import sys\nprint('x')\nsys.exit(3)",
    "script_error  ": "import sys\ndef f(): return f()\nsys.setrecursionlimit(10**9)\nf()",
    "memory_limit": "a = []\nwhile True: a.append('x' * 100_000)",
    "result_limit": "portal.emit({'type': 'text', 'text': 'x' * 600})\n'x' * 600",
    "tool_calls_limit": "for i in range(9): await git.git_log(i=i)",
    "cpu_limit": "print('x')\nwhile True: pass",
    "wall_limit": "print('x')\nawait asyncio.gather(git.git_log(), git.hangs())",
    "wall_limit ": "import time\ntime.sleep(600)",
}
TIGHT = Limits(cpu_seconds=0.3, memory_mib=64, result_bytes=1000, argument_bytes=1000, stdout_bytes=5000)


@pytest.mark.parametrize(("code", "script"), ENDINGS.items())
async def test_failed_run_is_replayed_to_the_same_end(recorded: Recorder, code: str, script: str) -> None:
    wall_seconds = 0.8 if code.startswith("wall") else 20.0
    tool_calls = 10_000 if "while True: await" in script else 5
    limits = TIGHT.model_copy(update={"wall_seconds": wall_seconds, "tool_calls": tool_calls})
    result = await recorded.and_replay(script, limits=limits)
    assert result.error is not None
    assert result.error.code == code.strip()


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
time.sleep(1.2)
await asyncio.sleep(0.3)
len(await asyncio.gather(git.git_log(), git.fails(), return_exceptions=True))"""
    result, record = await recorded(script, port=port)
    assert result is not None
    again = await replay(recorded.sandbox, record, where)
    assert facts(again) == facts(result)
    assert len(port.calls) == 2
    assert result.wall_ms > 1500 > again.wall_ms


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
