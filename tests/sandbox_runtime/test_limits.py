"""Every limit ends or refuses exactly what it bounds, and says which it is, its value, and where it is set.

What scripts try against them: tests/acceptance/test_limits.py.
"""

from typing import Any

import pytest

from manifests.grants import Limits
from tests.sandbox_runtime.running import EchoPort, Runner, where

pytestmark = pytest.mark.anyio


def limits(**values: Any) -> Limits:
    return Limits(**{"wall_seconds": 20, "cpu_seconds": 10, **values})


ENDING = [
    ("cpu_seconds", 0.1, "cpu_limit", "while True: pass"),
    ("wall_seconds", 0.2, "wall_limit", "while True: pass"),
    ("memory_mib", 64, "memory_limit", "bytearray(100_000_000)"),
    ("memory_mib", 64, "memory_limit", "a = []\nwhile True:\n    a.append('x' * 100_000)"),
    ("result_bytes", 1000, "result_limit", "'x' * 999"),
    ("result_bytes", 1000, "result_limit", "portal.emit({'type': 'text', 'text': 'x' * 600})\n'x' * 600"),
    ("result_bytes", 1000, "result_limit", "portal.emit({'type': 'text', 'text': 'x' * 1000})"),
    ("tool_calls", 2, "tool_calls_limit", "for i in range(3):\n    await files.touch(i=i)"),
    ("argument_bytes", 1000, "argument_limit", "await files.write(text='x' * 1000)"),
    ("argument_bytes", 1000, "argument_limit", "await files.write(text='é' * 500)"),
]


@pytest.mark.parametrize(("key", "value", "code", "script"), ENDING)
async def test_limit_names_itself_its_value_and_its_place(
    run: Runner, key: str, value: float, code: str, script: str
) -> None:
    result = await run("print('reached', flush=True)\n" + script, limits=limits(**{key: value}))
    assert result.error is not None
    assert result.error.code == code
    assert key in result.error.message
    assert f"{value:,}" in result.error.message
    assert where(key) in result.error.message
    assert result.stdout == "reached\n"


@pytest.mark.parametrize(("key", "value"), dict.fromkeys((key, value) for key, value, _, _ in ENDING))
async def test_modest_script_keeps_every_limit(run: Runner, key: str, value: float) -> None:
    script = "import asyncio\nawait asyncio.sleep(0)\nx = [await files.touch(i=i) for i in range(2)]\nlen(x)"
    result = await run(script, limits=limits(**{key: value}))
    assert (result.error, result.value) == (None, 2)


async def test_waiting_for_calls_is_no_computing(run: Runner) -> None:
    result = await run(
        "import asyncio\nawait asyncio.sleep(0.3)\nawait git.git_log()", limits=limits(cpu_seconds=0.1)
    )
    assert result.error is None
    assert result.cpu_ms < 100


async def test_refused_call_can_be_caught_and_the_script_goes_on(run: Runner) -> None:
    port = EchoPort()
    script = """
codes = []
for size in (1, 2000, 3, 4):
    try:
        await files.write(text="x" * size)
    except ToolError as error:
        codes.append(error.code)
codes
"""
    result = await run(script, port=port, limits=limits(argument_bytes=1000, tool_calls=3))
    assert result.value == ["argument_limit", "tool_calls_limit"]
    assert [call.seq for call in port.calls] == [1, 3]


async def test_output_is_cut_between_characters_and_the_rest_counted(run: Runner) -> None:
    result = await run("print('é' * 1000)\nprint('later')\n7", limits=limits(stdout_bytes=101))
    assert result.value == 7
    assert result.stdout == "é" * 50
    assert result.stdout_bytes_dropped == 2000 - 100 + len("\nlater\n")


async def test_script_of_more_than_a_mebibyte_is_not_read(run: Runner) -> None:
    assert await run.code("#" * ((1 << 20) + 1)) == "syntax_error"
    assert await run.value("1 #" + "x" * ((1 << 20) - 3)) == 1
