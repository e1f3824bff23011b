"""Calls without end are refused, then stopped; none beyond a limit reaches the port, none outlives its run."""

import asyncio

import pytest

from manifests.grants import Limits
from sandbox_runtime.calls import CallError, Outcome, ToolCall
from sandbox_runtime.sandbox import Sandbox
from tests.sandbox_runtime.running import EchoPort, answering, where
from tests.security.arena import Arena
from tests.security.attack import Attack, Fate, exceeds, loses_worker, yields
from tests.security.hostile import MOST_SECONDS, RAW_HOST, watched
from tests.security.test_forged_batches import SlowPort

pytestmark = pytest.mark.anyio

LIMIT = exceeds("tool_calls", 5, "tool_calls_limit")
BUSY = exceeds("cpu_seconds", 0.2, tool_calls=5)
STUBBORN = """
while True:
    try:
        await git.git_log()
    except ToolError:
        pass
"""
FORGETFUL = """
while True:
    asyncio.ensure_future(git.git_log())
    await asyncio.sleep(0)
"""
BATCH = "'\\n'.join(f'{i} git.git_log {{}}' for i in range(1, 30_000))"


def bomb(name: str, attack: str, fate: Fate = LIMIT, setup: str = "") -> Attack:
    twin = "len(await asyncio.gather(*[git.git_log(a=i) for i in range(5)]))"
    return Attack(name, attack, fate, twin, 5, setup)


ATTACKS = [
    bomb("one_by_one", "for _ in range(6): await git.git_log()"),
    bomb("all_at_once", "await asyncio.gather(*[git.git_log() for _ in range(10_000)])"),
    bomb("refused_and_again", STUBBORN, BUSY),
    bomb("nobody_waits", FORGETFUL, BUSY),
    bomb(
        "in_a_group",
        "async with asyncio.TaskGroup() as group:\n    for _ in range(99): group.create_task(git.git_log())",
        Fate("script_error", "ExceptionGroup", limits={"tool_calls": 5}),
    ),
    bomb(
        "calls_of_calls",
        "async def more():\n    await git.git_log()\n    await asyncio.gather(more(), more())\nawait more()",
    ),
    bomb(
        "cancelled_and_again",
        "while True:\n    call = asyncio.ensure_future(git.hangs())\n    await asyncio.sleep(0.001)\n    call.cancel()",
        exceeds("wall_seconds", 0.5, tool_calls=5),
    ),
    bomb("raw_batch", f"host.exchange({BATCH}, 5000)\nhost.exchange('', 5000)", setup=RAW_HOST),
    bomb(
        "raw_one_by_one",
        "i = 0\nwhile True:\n    i += 1\n    host.exchange(f'{i} git.git_log {{}}', 0)",
        setup=RAW_HOST,
    ),
    bomb("raw_cancellations", "host.exchange('\\n'.join(['7'] * 99_000), 5000)", loses_worker(), RAW_HOST),
    bomb("raw_empty_lines", "host.exchange('\\n' * 99_000, 5000)", loses_worker(), RAW_HOST),
    bomb("raw_long_names", "host.exchange('1 ' + 'x' * 99_000 + ' {}', 5000)", loses_worker(), RAW_HOST),
    bomb("never_made", "for _ in range(10 ** 5): make()", yields(None), "def make(): git.git_log()"),
]


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
async def test_calls_without_end_are_stopped(arena: Arena, attack: Attack) -> None:
    async with watched() as delay:
        await arena.withstands(attack)
    assert delay.seconds < MOST_SECONDS


@pytest.mark.parametrize("attack", ATTACKS[:1], ids=str)
async def test_as_many_calls_as_are_allowed_are_made(arena: Arena, attack: Attack) -> None:
    await arena.spares(attack)


@pytest.mark.parametrize("attack", [attack for attack in ATTACKS if attack.fate.limits], ids=str)
async def test_no_call_beyond_the_limit_reaches_the_port(arena: Arena, attack: Attack) -> None:
    port = EchoPort()
    await arena.run(attack.script, attack.limits, port)
    assert 0 < len(port.calls) <= 5


async def test_run_that_is_stopped_takes_its_calls_with_it(arena: Arena) -> None:
    port = SlowPort()
    calls = "[asyncio.ensure_future(git.hangs()) for _ in range(50)]"
    script = f"await asyncio.wait({calls}, timeout=0.1)\nwhile True: pass"
    result = await arena.run(script, Limits(cpu_seconds=0.3, parallel_calls=20), port)
    assert result.error is not None
    assert (result.error.code, port.most, port.here) == ("cpu_limit", 20, 0)


async def test_more_calls_than_can_wait_are_refused_and_the_script_goes_on(arena: Arena) -> None:
    port = SlowPort()
    script = (
        f"answer = host.exchange({BATCH}, 5000)\n['parallel_calls_limit' in answer, 'portal.yaml' in answer]"
    )
    result = await arena.run(RAW_HOST + script, Limits(tool_calls=100_000, parallel_calls=2), port)
    assert (result.error, result.value) == (None, [True, True])


async def test_answers_that_are_not_read_stop_further_calls(arena: Arena) -> None:
    """A script that never reads cannot fill the portal with what upstreams answer."""
    answered = 0

    async def large(_: ToolCall) -> Outcome:
        nonlocal answered
        answered += 1
        return Outcome("x" * 4_000_000)

    script = RAW_HOST + f"host.exchange({BATCH}, 0)\nwhile True: pass"
    result = await arena.run(script, Limits(cpu_seconds=0.5, tool_calls=40_000, parallel_calls=4), large)
    assert result.error is not None
    assert (result.error.code, answered < 20) == ("cpu_limit", True)


async def test_outcome_beyond_its_limit_is_refused_and_named(arena: Arena) -> None:
    script = (
        "try:\n    await git.git_log()\nexcept ToolError as error:\n    told = [error.code, str(error)]\ntold"
    )
    result = await arena.run(script, Limits(outcome_bytes=1000), answering(["x" * 1000]))
    code, message = result.value
    assert (code, where("outcome_bytes") in message) == ("outcome_limit", True)


class Ledger:
    """Hears of every call."""

    def __init__(self) -> None:
        self.rows: dict[int, str] = {}

    def open(self, seq: int, function: str) -> None:
        self.rows[seq] = function

    def withhold(self, seq: int, error: CallError) -> None:
        self.rows[seq] = error.code


@pytest.mark.parametrize(
    "ending", ["while True: pass", "import os\nos.abort()", "bytes(10 ** 9)", "host.exchange('x', 0)"]
)
async def test_ledger_is_kept_however_the_run_ends(sandbox: Sandbox, ending: str) -> None:
    ledger = Ledger()
    script = RAW_HOST + "host.exchange('1 git.git_log {}\\n2 git.git_log {}', 5000)\n" + ending
    async with asyncio.timeout(30), sandbox.run(Limits(tool_calls=1, cpu_seconds=0.2), where) as run:
        await run.prepare(script, ("git",))
        result = await run.execute({}, EchoPort(), ledger)
    assert result.error is not None
    assert ledger.rows == {1: "git.git_log", 2: "tool_calls_limit"}
