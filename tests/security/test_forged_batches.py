"""A script that writes its own batches gets no call past a limit, none past its end, and nobody waits for it."""

import asyncio
import json

import pytest

from manifests.grants import Limits
from tests.sandbox_runtime.running import EchoPort, Runner, where
from tests.security.hostile import INTERPRETER, MOST_SECONDS, RAW_HOST, watched

pytestmark = pytest.mark.anyio

PUT_INTO_THE_HEADER = """
import json
json.dumps = lambda *_, **__: "{}\\n" + values
"""
WAYS_TO_SEND = {
    "block": RAW_HOST + 'SIZE = 9_000_000\nhost.emit(\'{"type": "x", "x": \' + VALUES + \'}\')',
    "value": INTERPRETER + "SIZE = 9_000_000\nvalues = VALUES" + PUT_INTO_THE_HEADER,
    "arguments": RAW_HOST
    + "SIZE = 1_000_000\nanswer = host.exchange('1 git.git_log {\"a\": ' + VALUES + '}', 5000)\n"
    + "['argument_limit' in answer, 'argument_bytes' in answer]",
    "preparation": INTERPRETER
    + "SIZE = 7_000_000\nvalues = VALUES\ninterpreter().prepare = lambda *_: '{\"names\": ' + values + '}'",
}


async def test_calls_of_one_number_neither_pass_parallel_calls_nor_outlive_the_run(run: Runner) -> None:
    port = EchoPort()
    forged = RAW_HOST + "host.exchange('\\n'.join(['1 git.hangs {}'] * 30), 200)"
    result = await run(forged, port=port, limits=Limits(parallel_calls=3))
    await asyncio.sleep(0)
    # None of them ends before the run does.
    assert len(port.calls) == len(port.cancelled) <= 3
    assert result.error is not None


async def test_number_that_was_used_before_is_not_used_again(run: Runner) -> None:
    port = EchoPort()
    forged = RAW_HOST + "host.exchange('1 a.b {}', 500)\nhost.exchange('1 a.b {}', 500)"
    result = await run(forged, port=port)
    assert len(port.calls) == 1
    assert result.error.code == "worker_lost"


@pytest.mark.parametrize("line", ["39", "5"])
async def test_flood_of_cancellations_holds_nobody_up(run: Runner, line: str) -> None:
    calls = "host.exchange('\\n'.join(f'{i} git.hangs {{}}' for i in range(1, 41)), 1)\n"
    flood = f"host.exchange('\\n'.join(['{line}'] * 900_000), 1)"
    async with watched() as delay:
        result = await run(RAW_HOST + calls + flood, limits=Limits(parallel_calls=10))
    assert delay.seconds < MOST_SECONDS
    assert result.error is not None


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
    assert result.error.code == "tool_calls_limit"


async def test_thousands_of_calls_over_the_limit_are_refused_one_by_one(run: Runner) -> None:
    port = EchoPort()
    script = (
        "answers = await asyncio.gather(*[git.git_log(count=i) for i in range(10_000)], return_exceptions=True)\n"
        "[isinstance(a, dict) for a in answers].count(True), {a.code for a in answers if not isinstance(a, dict)}.pop()"
    )
    assert await run.value(script, port=port) == [200, "tool_calls_limit"]
    assert len(port.calls) == 200


@pytest.mark.parametrize("piece", ["[],", "{},", '{"a":[]},', "1e5,", '"",', '",,",', '"\\\\\\\\",'])
@pytest.mark.parametrize("way", ["block", "value", "arguments", "preparation"])
async def test_millions_of_values_are_not_read_and_hold_nobody_up(run: Runner, way: str, piece: str) -> None:
    forged = WAYS_TO_SEND[way].replace("VALUES", f"'[' + {piece!r} * (SIZE // {len(piece)}) + '0]'")
    session = await run.sandbox.open_session()
    async with watched() as delay:
        result = await run(forged, session=session)
        if way == "preparation":
            result = await run("1", session=session)
    session.close()
    assert delay.seconds < MOST_SECONDS
    if way == "block":
        assert result.emitted == ()
        assert "result_bytes" in result.notices[0]
    elif way == "value":
        assert result.error.code == "result_limit"
        assert where("result_bytes") in result.error.message
    elif way == "arguments":
        assert result.value == [True, True]
    else:
        assert result.error.code == "syntax_error"


@pytest.mark.parametrize("piece", ["[],", "{},", '{"a":[]},', "1e5,", '"",', '",,",'])
async def test_thousands_of_values_are_read(run: Runner, piece: str) -> None:
    many = json.loads(f"[{piece * 40_000}0]")
    assert await run.value(f"import json\njson.loads('[' + {piece!r} * 40_000 + '0]')") == many
    assert await run.value(
        f"import json\nawait git.git_log(a=json.loads('[' + {piece!r} * 40_000 + '0]'))"
    ) == {"a": many}
