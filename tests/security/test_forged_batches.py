"""A script that writes its own batches gets no call past a limit, none past its end, and nobody waits for it."""

import asyncio

import pytest

from manifests.models import Limits
from sandbox_runtime.calls import Outcome, ToolCall
from tests.sandbox_runtime.running import EchoPort, Runner
from tests.security.hostile import MOST_SECONDS, RAW_HOST, watched

pytestmark = pytest.mark.anyio


class SlowPort:
    """Counts the calls that are there at once; ends none before the run does."""

    def __init__(self) -> None:
        self.here = 0
        self.most = 0
        self.ended = 0

    async def __call__(self, call: ToolCall) -> Outcome:
        self.here += 1
        self.most = max(self.most, self.here)
        try:
            await asyncio.Event().wait()
        finally:
            self.here -= 1
            self.ended += 1
        return Outcome()


async def test_calls_of_one_number_neither_pass_parallel_calls_nor_outlive_the_run(run: Runner) -> None:
    port = SlowPort()
    forged = RAW_HOST + "host.exchange('\\n'.join(['1 git.hangs {}'] * 30), 200)"
    result = await run(forged, port=port, limits=Limits(parallel_calls=3))
    await asyncio.sleep(0)
    assert (port.most <= 3, port.here) == (True, 0)
    assert result.error is not None


async def test_calls_of_rising_numbers_wait_their_turn(run: Runner) -> None:
    port = SlowPort()
    honest = RAW_HOST + "host.exchange('\\n'.join(f'{i} git.hangs {{}}' for i in range(1, 31)), 200)"
    result = await run(honest, port=port, limits=Limits(parallel_calls=3))
    assert (port.most, port.here, port.ended) == (3, 0, 3)
    assert result.error is None


async def test_number_that_was_used_before_is_not_used_again(run: Runner) -> None:
    port = EchoPort()
    forged = RAW_HOST + "host.exchange('1 a.b {}', 500)\nhost.exchange('1 a.b {}', 500)"
    result = await run(forged, port=port)
    assert len(port.calls) == 1
    assert result.error is not None
    assert result.error.code == "worker_lost"


@pytest.mark.parametrize("line", ["39", "5"])
async def test_flood_of_cancellations_holds_nobody_up(run: Runner, line: str) -> None:
    calls = "host.exchange('\\n'.join(f'{i} git.hangs {{}}' for i in range(1, 41)), 1)\n"
    flood = f"host.exchange('\\n'.join(['{line}'] * 900_000), 1)"
    async with watched() as delay:
        result = await run(RAW_HOST + calls + flood, limits=Limits(parallel_calls=10))
    assert delay.seconds < MOST_SECONDS
    assert result.error is not None


async def test_each_call_may_be_cancelled_once(run: Runner) -> None:
    port = EchoPort()
    script = (
        "tasks = [asyncio.create_task(git.hangs()) for _ in range(30)]\n"
        "await git.git_log()\nawait git.git_log()\n"
        "for task in tasks: task.cancel()\n"
        "await git.git_log(count=7)"
    )
    result = await run(script, port=port, limits=Limits(parallel_calls=40))
    assert (result.error, result.value) == (None, {"count": 7})
    assert len(port.cancelled) == 30


async def test_flood_of_calls_ends_the_run_and_holds_nobody_up(run: Runner) -> None:
    flood = (
        "n = 0\n"
        "while True:\n"
        "    host.exchange('\\n'.join(f'{i} a.b {{}}' for i in range(n + 1, n + 60_001)), 0)\n"
        "    n += 60_000"
    )
    async with watched() as delay:
        result = await run(RAW_HOST + flood)
    assert delay.seconds < MOST_SECONDS
    assert result.error is not None
    assert result.error.code == "tool_calls_limit"


async def test_thousands_of_calls_over_the_limit_are_refused_one_by_one(run: Runner) -> None:
    port = EchoPort()
    script = (
        "answers = await asyncio.gather(*[git.git_log(count=i) for i in range(10_000)], return_exceptions=True)\n"
        "[isinstance(a, dict) for a in answers].count(True), {a.code for a in answers if not isinstance(a, dict)}.pop()"
    )
    assert await run.value(script, port=port) == [200, "tool_calls_limit"]
    assert len(port.calls) == 200


@pytest.mark.parametrize("piece", ["[],", "{},", '{"a":[]},', "1e5,"])
async def test_millions_of_values_hold_nobody_up_for_long(run: Runner, piece: str) -> None:
    count = 10_000_000 // len(piece)
    forged = RAW_HOST + f"host.emit('{{\"type\": \"x\", \"x\": [' + '{piece}' * {count} + '0]}}')"
    async with watched() as delay:
        result = await run(forged)
    assert delay.seconds < 2 * MOST_SECONDS
    assert (result.error, len(result.emitted)) == (None, 1)
